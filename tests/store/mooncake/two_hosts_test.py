# SPDX-License-Identifier: Apache-2.0
"""A pool on one host, a client on another: two network namespaces, and what may happen between.

usage: two_hosts_test.py TIERCEL

Needs root, ip and tc. Where the machine allows no namespaces the test fails; with
TIERCEL_WITHOUT_NAMESPACES=1 it says why and does without. With TIERCEL_WITHOUT_MOONCAKE there is no
pool to have on a host.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
TIERCEL = None
POOL_ADDRESS, CLIENT_ADDRESS = "10.213.77.1", "10.213.77.2"
# Against a hang; nothing here takes as long.
END_S = 100


class NoNamespaces(Exception):
    pass


def run(*words, **options):
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=END_S,
                          **options)


def must(*words):
    done = run(*words)
    if done.returncode != 0:
        raise NoNamespaces(f"{' '.join(words)}: {done.stderr.strip()}")


class TwoHosts:
    """Namespaces with one wire between them; gone, with everything in them, at the end."""

    def __init__(self):
        self.pool = f"tiercel-pool-{os.getpid()}"
        self.client = f"tiercel-client-{os.getpid()}"
        # Names of interfaces are short.
        self.pool_end, self.client_end = f"tp{os.getpid()}", f"tc{os.getpid()}"

    def open(self):
        for tool in ("ip", "tc"):
            if shutil.which(tool) is None:
                raise NoNamespaces(f"there is no {tool} (package iproute2)")
        must("ip", "netns", "add", self.pool)
        must("ip", "netns", "add", self.client)
        must("ip", "link", "add", self.pool_end, "netns", self.pool, "type", "veth",
             "peer", "name", self.client_end, "netns", self.client)
        for host, end, address in ((self.pool, self.pool_end, POOL_ADDRESS),
                                   (self.client, self.client_end, CLIENT_ADDRESS)):
            must("ip", "-n", host, "link", "set", "lo", "up")
            must("ip", "-n", host, "address", "add", f"{address}/24", "dev", end)
            must("ip", "-n", host, "link", "set", end, "up")

    def link(self, state):
        must("ip", "-n", self.client, "link", "set", self.client_end, state)

    def limit_rate(self, rate):
        """Of what the pool sends and of what it is sent."""
        for host, end in ((self.pool, self.pool_end), (self.client, self.client_end)):
            must("tc", "-n", host, "qdisc", "add", "dev", end, "root", "tbf", "rate", rate,
                 "burst", "32kbit", "latency", "50ms")

    def free_rate(self):
        for host, end in ((self.pool, self.pool_end), (self.client, self.client_end)):
            must("tc", "-n", host, "qdisc", "del", "dev", end, "root")

    def start(self, host, *words, **options):
        return subprocess.Popen(["ip", "netns", "exec", host, *words], text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)

    def close(self):
        for host in (self.pool, self.client):
            run("ip", "netns", "del", host)


class Served:
    """A program that obeys lines, each answered by a line."""

    def __init__(self, process):
        self.process = process
        self.first = process.stdout.readline().strip()

    def order(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        if answer != "ok":
            raise AssertionError(f"{line}: {answer or 'no answer'}")

    def close(self):
        self.process.stdin.close()
        self.process.wait(END_S)
        self.process.stdout.close()


class TwoHostsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if "TIERCEL_WITHOUT_MOONCAKE" in os.environ:
            raise unittest.SkipTest("TIERCEL_WITHOUT_MOONCAKE is set: nothing is tested on a pool")
        cls.hosts = TwoHosts()
        cls.addClassCleanup(cls.hosts.close)
        try:
            cls.hosts.open()
        except NoNamespaces as reason:
            if os.environ.get("TIERCEL_WITHOUT_NAMESPACES"):
                print(f"left out, as TIERCEL_WITHOUT_NAMESPACES asks: {reason}")
                raise unittest.SkipTest(str(reason)) from reason
            raise AssertionError(
                f"two hosts cannot be made here: {reason}; it needs root; set "
                "TIERCEL_WITHOUT_NAMESPACES=1 to do without this test") from reason
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)

    def setUp(self):
        process = self.hosts.start(
            self.hosts.pool, sys.executable, str(ROOT / "scripts" / "mooncake-dev"), "serve",
            "--host", POOL_ADDRESS, "--short-times", "--segment", "256MiB")
        self.pool = Served(process)
        self.addCleanup(self.pool.close)
        self.assertTrue(self.pool.first.startswith("mooncake://"), "no pool, see above")

    def check(self, url=None, deadline="5s"):
        return run("ip", "netns", "exec", self.hosts.client, TIERCEL, "store", "check", "--store",
                   url or self.pool.first, "--deadline", deadline, "--rounds", "1")

    def start_replay(self, *options):
        trace = self.folder / "trace.jsonl"
        with open(ROOT / "data" / "conversation_trace.jsonl", encoding="utf-8") as lines:
            trace.write_text("".join(next(lines) for _ in range(3000)))
        return self.hosts.start(
            self.hosts.client, TIERCEL, "replay", "--trace", str(trace), "--store",
            self.pool.first, "--host-blocks", "200", "--block-bytes", "4KiB", "--deadline",
            "300ms", "--json", "-", *options)

    def end_replay(self, replay):
        out, _ = replay.communicate(timeout=END_S)
        self.assertEqual(replay.returncode, 0, out)
        figures = json.loads(out)
        self.assertEqual(figures["mismatches"], 0)
        return figures

    def test_the_pool_is_used_from_another_host(self):
        done = self.check()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_a_cut_wire_is_told_in_words_and_is_no_harm_once_it_is_mended(self):
        self.hosts.link("down")
        self.addCleanup(self.hosts.link, "up")
        done = self.check()
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("cannot be reached", done.stdout)
        self.hosts.link("up")
        done = self.check()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_an_engine_outlives_a_cut_in_which_the_pool_was_emptied_and_uses_it_again(self):
        replay = self.start_replay()
        self.addCleanup(replay.communicate)
        self.addCleanup(replay.kill)
        self.pool.order("await keys 100")
        self.hosts.link("down")
        self.addCleanup(self.hosts.link, "up")
        time.sleep(2)  # the cut
        self.assertIsNone(replay.poll(), "it was to run into the cut: the test is too weak")
        # What is in the pool afterwards has come over the mended wire.
        self.pool.order("kill master")
        self.pool.order("start master")
        self.pool.order("kill owner 0")
        self.pool.order("start owner 0")
        self.hosts.link("up")
        self.pool.order("await keys 50")
        figures = self.end_replay(replay)
        self.assertGreater(figures["counters"]["store_opened"], 0, "nobody noticed the cut")

    def test_a_wire_that_is_too_slow_costs_deadlines_and_never_wrong_bytes(self):
        self.hosts.limit_rate("2mbit")
        self.addCleanup(self.hosts.free_rate)
        figures = self.end_replay(self.start_replay("--limit", "60"))
        self.assertGreater(figures["counters"]["store_opened"], 0, "the wire was no obstacle")

    def test_a_master_behind_a_slow_and_then_a_dead_line(self):
        port = self.pool.first.split(":")[2].split("?")[0]
        proxy = Served(self.hosts.start(
            self.hosts.client, sys.executable, str(pathlib.Path(__file__).parent / "tcp_proxy.py"),
            POOL_ADDRESS, port))
        self.addCleanup(proxy.close)
        url = self.pool.first.replace(f"{POOL_ADDRESS}:{port}", f"127.0.0.1:{proxy.first}")
        url += ("&" if "?" in url else "?") + f"host={CLIENT_ADDRESS}"
        proxy.order("delay 20")
        done = self.check(url)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        proxy.order("stall")
        done = self.check(url, "1s")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        proxy.order("go")
        done = self.check(url)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    TIERCEL = os.path.abspath(sys.argv.pop(1))
    unittest.main()
