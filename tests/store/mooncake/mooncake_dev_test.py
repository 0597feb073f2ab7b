#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/mooncake-dev: what it refuses, and that it ends what it has started and nothing else."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = str(pathlib.Path(__file__).resolve().parents[3] / "scripts/mooncake-dev")
LIMIT_S = 100


class MooncakeDev(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.state = self.folder / f"tiercel-mooncake-dev-{os.getuid()}"

    def run_it(self, *words):
        return subprocess.run(
            [PROGRAM, *words], env={**os.environ, "TMPDIR": str(self.folder)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S,
            check=False)

    def bystander(self):
        """A process that has nothing to do with a pool but the name of the program."""
        process = subprocess.Popen(
            [sys.executable, "-c", "import sys; sys.stdin.read()", PROGRAM],
            stdin=subprocess.PIPE)

        def end():
            process.stdin.close()
            process.wait(LIMIT_S)

        self.addCleanup(end)
        return process

    def test_a_segment_that_no_machine_gives_is_refused_with_what_is_allowed(self):
        for size in ("0", "1MiB", "15MiB", "1000000GiB", "-1", "much", "9" * 30):
            outcome = self.run_it("up", f"--segment={size}")
            self.assertEqual(outcome.returncode, 2, size)
            self.assertRegex(outcome.stderr, "allowed: 16MiB to|is no size such as", size)
        for number in ("-1", "65", "one", "9" * 30):
            outcome = self.run_it("up", f"--segments={number}")
            self.assertEqual(outcome.returncode, 2, number)
            self.assertIn("allowed: 0 to 64", outcome.stderr, number)
        self.assertFalse(self.state.exists())

    def test_down_ends_no_process_that_up_has_not_started(self):
        process = self.bystander()
        for text in (f"{process.pid} mooncake://127.0.0.1:1\n",
                     f"{process.pid} 1 mooncake://127.0.0.1:1\n",
                     "-1 1 mooncake://127.0.0.1:1\n", "0 0 mooncake://127.0.0.1:1\n", "nonsense\n"):
            self.state.write_text(text)
            outcome = self.run_it("down")
            self.assertEqual(outcome.returncode, 0, outcome.stderr)
            self.assertIsNone(process.poll(), text)
            self.assertFalse(self.state.exists(), text)

    @unittest.skipIf(os.environ.get("TIERCEL_WITHOUT_MOONCAKE"), "TIERCEL_WITHOUT_MOONCAKE is set")
    def test_up_twice_is_one_pool_and_down_ends_it(self):
        self.addCleanup(self.run_it, "down")
        first = self.run_it("up", "--segment", "16MiB")
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertTrue(first.stdout.startswith("mooncake://127.0.0.1:"), first.stdout)
        second = self.run_it("up", "--segment", "16MiB")
        self.assertEqual(second.stdout, first.stdout)
        pid = self.state.read_text().split()[0]
        self.assertEqual(self.run_it("down").returncode, 0)
        self.assertFalse(pathlib.Path(f"/proc/{pid}/cmdline").exists()
                         and pathlib.Path(f"/proc/{pid}/cmdline").read_bytes())
        self.assertFalse(self.state.exists())


if __name__ == "__main__":
    unittest.main()
