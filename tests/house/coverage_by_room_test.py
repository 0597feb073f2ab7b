# SPDX-License-Identifier: Apache-2.0
"""scripts/coverage_by_room.py on made-up summaries."""

import json
import subprocess
import sys
import unittest

from house import ROOT, TreeTest


def entry(name, total, covered):
    return {"filename": name, "line_total": total, "line_covered": covered}


class CoverageByRoom(TreeTest):
    files = {}

    def report(self, *entries):
        self.write("summary.json", json.dumps({"files": list(entries)}))
        run = subprocess.run(
            [
                sys.executable,
                str(ROOT / "scripts/coverage_by_room.py"),
                str(self.root / "summary.json"),
                "90",
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return run.returncode, run.stdout

    def test_ninety_percent_is_enough(self):
        code, output = self.report(entry("src/key/a.cc", 10, 9))
        self.assertEqual(code, 0, output)

    def test_less_is_not(self):
        code, output = self.report(entry("src/key/a.cc", 1000, 899))
        self.assertEqual(code, 1)
        self.assertIn("less than 90 %", output)

    def test_nothing_at_all_is_not(self):
        self.assertEqual(self.report()[0], 1)

    def test_rooms_are_counted_with_their_folders_and_weak_files_are_named(self):
        code, output = self.report(
            entry("src/store/memory/a.cc", 100, 100),
            entry("src/store/b.cc", 100, 50),
            entry("include/tiercel/c.h", 400, 400),
        )
        self.assertEqual(code, 0, output)
        rows = [line.split() for line in output.splitlines()]
        self.assertIn(["store", "200", "150", "75.0"], rows)
        self.assertIn(["include", "400", "400", "100.0"], rows)
        self.assertIn(["all", "600", "550", "91.7"], rows)
        self.assertIn("src/store/b.cc: 50 lines", output)


if __name__ == "__main__":
    unittest.main()
