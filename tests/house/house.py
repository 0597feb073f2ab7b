# SPDX-License-Identifier: Apache-2.0
"""What the tests of the scripts share: a small tree in a temporary folder, and a script's run."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SPDX_CPP = "// SPDX-License-Identifier: Apache-2.0\n"
SPDX_SCRIPT = "# SPDX-License-Identifier: Apache-2.0\n"


class TreeTest(unittest.TestCase):
    """A test with a tree of its own; `files` of the class are written before each test."""

    files = {}

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tiercel-house-")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        for name, text in self.files.items():
            self.write(name, text)

    def write(self, name, text, mode=0o644):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8"))
        path.chmod(mode)
        return path

    def run_script(self, name, *arguments):
        """(exit code, output) of a script of scripts/."""
        run = subprocess.run(
            [sys.executable, str(ROOT / "scripts" / name), *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=60,
        )
        return run.returncode, run.stdout

    def expect_clean(self, result):
        code, output = result
        self.assertEqual(code, 0, output)

    def expect_problem(self, result, *parts):
        """Exit 1 and one line that has all `parts`."""
        code, output = result
        self.assertEqual(code, 1, output)
        self.assertTrue(
            any(all(part in line for part in parts) for line in output.splitlines()),
            f"no line with {parts} in:\n{output}",
        )
