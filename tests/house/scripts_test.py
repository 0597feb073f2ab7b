# SPDX-License-Identifier: Apache-2.0
"""What run.sh, test.sh and scripts/build say and refuse before they do anything."""

import os
import shutil
import subprocess
import unittest

from house import ROOT, TreeTest

CMAKE = """#!/bin/sh
case $1 in
  --list-presets*) echo '  "dev" - daily work' ;;
  *) echo "cmake $*" ;;
esac
"""
NOBODY = 65534


class Build(TreeTest):
    """scripts/build in a tree of its own, with a cmake that only says that it ran."""

    def setUp(self):
        super().setUp()
        (self.root / "scripts").mkdir()
        shutil.copy(ROOT / "scripts/build", self.root / "scripts/build")
        self.write("bin/cmake", CMAKE, mode=0o755)
        self.root.chmod(0o755)

    def build(self, **options):
        environment = dict(os.environ, CCACHE_DIR=str(self.root))
        environment["PATH"] = f"{self.root / 'bin'}{os.pathsep}{environment['PATH']}"
        run = subprocess.run(
            [str(self.root / "scripts/build"), "dev"], env=environment, capture_output=True,
            text=True, check=False, timeout=60, **options)
        return run.returncode, run.stdout + run.stderr

    def test_builds_and_keeps_the_output_of_this_run_only(self):
        self.write("build/dev.log", "an old line\n")
        code, output = self.build()
        self.assertEqual(code, 0, output)
        log = (self.root / "build/dev.log").read_text()
        self.assertIn("cmake --preset dev", log)
        self.assertNotIn("an old line", log)

    def test_says_that_the_log_cannot_be_written_and_shows_no_old_one(self):
        self.write("build/dev.log/is-a-folder", "")
        code, output = self.build()
        self.assertEqual(code, 1, output)
        self.assertIn("cannot be written", output)
        self.assertNotIn("configuring", output)

    @unittest.skipUnless(os.geteuid() == 0, "only root can become somebody else")
    def test_says_so_in_the_checkout_of_somebody_else(self):
        self.write("build/dev.log", "-- Configuring done\n")
        (self.root / "build/dev").mkdir()
        code, output = self.build(user=NOBODY)
        self.assertEqual(code, 1, output)
        self.assertEqual(len(output.splitlines()), 1, output)
        self.assertIn("build/dev.log", output)
        self.assertIn(str(self.root), output)


class Help(TreeTest):
    def test_test_sh_prints_its_usage_and_does_nothing(self):
        shutil.copy(ROOT / "test.sh", self.root / "test.sh")
        for arguments in (["--help"], ["-h"], ["asan", "--help"]):
            with self.subTest(arguments=arguments):
                # There are no scripts in this tree, so that anything else than printing would fail.
                run = subprocess.run([str(self.root / "test.sh"), *arguments], capture_output=True,
                                     text=True, check=False, timeout=60)
                self.assertEqual(run.returncode, 0, run.stderr)
                self.assertTrue(run.stdout.startswith("./test.sh [PRESET]"), run.stdout)
                self.assertIn("TIERCEL_FUZZ_SECONDS", run.stdout)
                self.assertNotIn("set -euo", run.stdout)
                self.assertNotIn("#", run.stdout)


if __name__ == "__main__":
    unittest.main()
