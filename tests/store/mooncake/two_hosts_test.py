#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A Mooncake pool on one host and Tiercel on another: two network namespaces with a link between
them that goes down and up, becomes slow, and stalls.

usage: two_hosts_test.py TIERCEL

Nothing outside the namespaces changes, and they are gone with this process. Where they cannot be
had the test fails, unless TIERCEL_WITHOUT_NAMESPACES=1 says that this is known.
"""

import ctypes
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
TRACE = str(ROOT / "data/conversation_trace.jsonl")
INSIDE = "TIERCEL_TEST_INSIDE_NAMESPACE"
POOL_HOST, CLIENT_HOST = "10.77.0.1", "10.77.0.2"
LIMIT_S = 100
# What nothing is lost to, however busy the machine is.
PATIENCE = ["--deadline", "60s"]


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def call(*words):
    subprocess.run(words, check=True, timeout=LIMIT_S)


class Proxy:
    """Passes TCP on, each piece later by `delay_s`, and nothing at all while it is stalled."""

    def __init__(self, target):
        self.target = target
        self.delay_s = 0.0
        self.passes = threading.Event()
        self.passes.set()
        self.listener = socket.create_server((POOL_HOST, 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def close(self):
        self.listener.close()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = socket.create_connection(self.target)
            threading.Thread(target=self.carry, args=(near, far), daemon=True).start()

    def carry(self, near, far):
        with near, far:
            back = threading.Thread(target=self.pump, args=(far, near), daemon=True)
            back.start()
            self.pump(near, far)
            back.join()

    def pump(self, source, sink):
        try:
            while data := source.recv(65536):
                self.passes.wait()
                time.sleep(self.delay_s)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass


class TwoHosts(unittest.TestCase):
    tiercel = ""

    def setUp(self):
        # The client's host: a namespace that lives as long as this process in it.
        self.host = subprocess.Popen(["unshare", "--net", "sleep", "1000"],
                                     preexec_fn=die_with_parent)
        self.addCleanup(self.end, self.host)
        ours = os.readlink("/proc/self/ns/net")
        limit = time.monotonic() + LIMIT_S
        while os.readlink(f"/proc/{self.host.pid}/ns/net") == ours:
            self.assertLess(time.monotonic(), limit)
            self.assertIsNone(self.host.poll(), "no second namespace")
        call("ip", "link", "add", "pool", "type", "veth", "peer", "name", "client", "netns",
             str(self.host.pid))
        self.addCleanup(subprocess.run, ["ip", "link", "del", "pool"], check=False)
        call("ip", "addr", "add", f"{POOL_HOST}/24", "dev", "pool")
        for words in (["ip", "addr", "add", f"{CLIENT_HOST}/24", "dev", "client"],
                      ["ip", "link", "set", "client", "up"], ["ip", "link", "set", "lo", "up"]):
            call(*self.over_there(*words))
        call("ip", "link", "set", "pool", "up")
        # Not with short times: on a busy machine the master would forget who gives it memory.
        self.pool = subprocess.Popen(
            [str(ROOT / "scripts/mooncake-dev"), "serve", "--host", POOL_HOST, "--segment",
             "256MiB"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
        self.addCleanup(self.end, self.pool)
        self.url = self.pool.stdout.readline().strip()
        self.assertTrue(self.url.startswith("mooncake://"), "no pool, see above")

    def end(self, process):
        if process.stdin:
            process.stdin.close()
        else:
            process.kill()
        process.wait(LIMIT_S)
        if process.stdout:
            process.stdout.close()

    def over_there(self, *words):
        return ["nsenter", f"--net=/proc/{self.host.pid}/ns/net", *words]

    def start_tool(self, *words):
        return subprocess.Popen(self.over_there(self.tiercel, *words), stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, preexec_fn=die_with_parent)

    def finish(self, tool, status=0):
        output, _ = tool.communicate(timeout=LIMIT_S)
        self.assertEqual(tool.returncode, status, output)
        return output

    def check(self, *words, url=None, status=0):
        return self.finish(self.start_tool("store", "check", "--store", url or self.url, *words),
                           status)

    def start_replay(self, *words):
        return self.start_tool("replay", "--trace", TRACE, "--store", self.url, "--ranks", "2",
                               "--block-bytes", "4KiB", "--no-optimum", *words)

    def command(self, line):
        self.pool.stdin.write(line + "\n")
        self.pool.stdin.flush()
        self.assertEqual(self.pool.stdout.readline().strip(), "ok", line)

    def test_a_pool_on_another_host_is_a_pool(self):
        self.assertIn("the bytes that were put", self.check("--rounds", "1", *PATIENCE))
        for _ in range(2):
            output = self.finish(
                self.start_replay("--limit", "100", "--host-blocks", "300", "--rank-host",
                                  "process", *PATIENCE))
            self.assertRegex(output, r"mismatches +0 ")
        self.assertRegex(output, r"hit .* 100\.00 %", "the first one has put all of it")

    def test_a_link_that_goes_down_and_up_costs_hits_and_nothing_else(self):
        # Long enough for a start on a busy machine; the link costs it once, then the breaker.
        replay = self.start_replay("--limit", "300", "--host-blocks", "300", "--deadline", "10s")
        self.command("await keys 500")
        call("ip", "link", "set", "pool", "down")
        # Told in words, and within the deadlines, while the link is down.
        output = self.check("--deadline", "2s", status=1)
        self.assertIn("FAILED", output)
        call("ip", "link", "set", "pool", "up")
        self.assertRegex(self.finish(replay), r"mismatches +0 ")
        self.check("--rounds", "1", *PATIENCE)

    def test_a_slow_link_is_slow_and_right(self):
        call("tc", "qdisc", "add", "dev", "pool", "root", "tbf", "rate", "400mbit", "burst", "64kb",
             "latency", "50ms")
        self.check("--rounds", "1", *PATIENCE)
        output = self.finish(self.start_replay("--limit", "100", "--host-blocks", "300",
                                               *PATIENCE))
        self.assertRegex(output, r"mismatches +0 ")

    def test_a_master_behind_a_line_that_delays_and_stalls(self):
        _, _, port = self.url.split("?")[0].rpartition(":")
        proxy = Proxy((POOL_HOST, int(port)))
        self.addCleanup(proxy.close)
        url = self.url.replace(f":{port}", f":{proxy.port}")
        proxy.delay_s = 0.02
        self.check("--rounds", "1", *PATIENCE, url=url)
        proxy.passes.clear()
        self.assertIn("FAILED", self.check("--deadline", "1s", url=url, status=1))
        proxy.passes.set()
        self.check("--rounds", "1", *PATIENCE, url=url)


def enter():
    """Runs this program again, in a network namespace of its own."""
    words = ["unshare", "--net"] + ([] if os.geteuid() == 0 else ["--map-root-user"])
    try:
        able = subprocess.run(
            [*words, "sh", "-c", "ip link add near type veth peer name far"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        reason = "" if able.returncode == 0 else able.stdout.strip() or "no reason given"
    except OSError as error:
        reason = str(error)
    if reason:
        print(f"no network namespaces here: {reason}", file=sys.stderr)
        if os.environ.get("TIERCEL_WITHOUT_NAMESPACES"):
            print("left out: TIERCEL_WITHOUT_NAMESPACES is set", file=sys.stderr)
            sys.exit(0)
        print("set TIERCEL_WITHOUT_NAMESPACES=1 to leave this test out", file=sys.stderr)
        sys.exit(1)
    os.environ[INSIDE] = "1"
    os.execvp(words[0], [*words, sys.executable, os.path.abspath(__file__), *sys.argv[1:]])


def main():
    if os.environ.get("TIERCEL_WITHOUT_MOONCAKE"):
        print("left out: TIERCEL_WITHOUT_MOONCAKE is set", file=sys.stderr)
        return 0
    if INSIDE not in os.environ:
        enter()
    # Of the commands that run below.
    del os.environ[INSIDE]
    call("ip", "link", "set", "lo", "up")
    TwoHosts.tiercel = os.path.abspath(sys.argv.pop(1))
    return unittest.main(argv=sys.argv)


if __name__ == "__main__":
    sys.exit(main())
