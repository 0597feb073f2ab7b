# SPDX-License-Identifier: Apache-2.0
"""Variables that the scripts and the tests read may be exported beside the tool's own options.

The tool refuses every TIERCEL_… that it does not know, so each of them must be known to it.
"""

import os
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# How a script of the shell, a program in Python and one in C++ name a variable of the environment.
USES = (
    r"\$\{?(TIERCEL_[A-Z_]+)",
    r"(?:^|[ ;])(?:export )?(TIERCEL_[A-Z_]+)=",
    r"""environ(?:\.get\(|\.pop\(|\[)["'](TIERCEL_[A-Z_]+)""",
    r'(?:getenv|number_from)\("(TIERCEL_[A-Z_]+)',
)
FOLDERS = ("scripts", "tests", ".ci")
FILES = ("test.sh", "run.sh")


def variables_in(text):
    return {name for use in USES for name in re.findall(use, text, re.MULTILINE)}


def variables_of_the_tree():
    paths = [ROOT / name for name in FILES]
    for folder in FOLDERS:
        paths += [path for path in (ROOT / folder).rglob("*")
                  if path.is_file() and "__pycache__" not in path.parts]
    return set().union(*(variables_in(path.read_text(encoding="utf-8", errors="replace"))
                         for path in paths if path != pathlib.Path(__file__).resolve()))


class Variables(unittest.TestCase):
    tool = ""

    def refusal(self, name):
        """What the tool says when `name` is exported; it has another reason to end at once."""
        run = subprocess.run([self.tool, "replay", "--ranks", "no-number"], text=True, check=False,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60,
                             env={**os.environ, name: "1"})
        return run.stdout if "unknown option" in run.stdout else ""

    def test_the_tool_knows_each_variable_of_scripts_and_tests(self):
        names = variables_of_the_tree()
        self.assertLessEqual({"TIERCEL_WITHOUT_NAMESPACES", "TIERCEL_CRASH_ROUNDS",
                              "TIERCEL_FUZZ_SECONDS", "TIERCEL_CRASH_ALL"}, names)
        for name in sorted(names):
            with self.subTest(name):
                self.assertEqual(self.refusal(name), "")

    def test_one_that_nobody_knows_is_refused(self):
        self.assertIn("TIERCEL_WITHOUT_A_NAME", self.refusal("TIERCEL_WITHOUT_A_NAME"))

    def test_every_way_to_name_one_is_seen(self):
        for text in ("x=${TIERCEL_A-60}", "$TIERCEL_A", "export TIERCEL_A=1", "  TIERCEL_A=1 run",
                     'os.environ.get("TIERCEL_A")', "os.environ['TIERCEL_A']",
                     'std::getenv("TIERCEL_A")', 'number_from("TIERCEL_A", 48)'):
            with self.subTest(text):
                self.assertEqual(variables_in(text), {"TIERCEL_A"})
        self.assertEqual(variables_in("cmake -DTIERCEL_CUDA=ON"), set())


if __name__ == "__main__":
    Variables.tool = os.path.abspath(sys.argv.pop(1))
    sys.exit(unittest.main())
