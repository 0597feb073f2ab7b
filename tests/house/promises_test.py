# SPDX-License-Identifier: Apache-2.0
"""Every test that docs/promises.md and the pages like it name exists."""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAME = re.compile(r"`((?:[a-z_]+/)+[A-Za-z0-9_.]+)`")


def names_in(page: str) -> list[str]:
    """What stands in the cells of the table as `room/Suite.Test` or `room/test`."""
    rows = [line for line in page.splitlines() if line.startswith("|")]
    return [name for row in rows for name in NAME.findall(row) if not name.startswith("src/")]


def exists(name: str, root: pathlib.Path) -> bool:
    folder, _, test = name.rpartition("/")
    if folder == "fuzz":
        return (root / "tests" / "fuzz" / f"{test}_fuzz.cc").exists()
    if folder == "sim":
        text = (root / "tests" / "sim" / "CMakeLists.txt").read_text(encoding="utf-8")
        test = re.sub(r"^seed_\d+$", "seed_${seed}", test)
        meta = test.removeprefix("without_")
        return f"sim_test({test} " in text or f"sim_meta_test({meta} " in text
    suite, _, case = test.partition(".")
    definition = re.compile(rf"TEST(_F|_P)?\(\s*{suite},\s*{case}\s*\)")
    files = (root / "tests" / folder).glob("*_test.cc")
    return any(definition.search(file.read_text(encoding="utf-8")) for file in files)


class Promises(unittest.TestCase):
    def test_every_test_that_is_named_exists(self):
        for page in ("promises.md", "comparison-fastdeploy.md", "mooncake.md"):
            names = names_in((ROOT / "docs" / page).read_text(encoding="utf-8"))
            self.assertGreater(len(names), 20)
            for name in names:
                self.assertTrue(exists(name, ROOT), f"{page}: {name}")

    def test_each_weak_point_has_its_line(self):
        page = (ROOT / "docs" / "comparison-fastdeploy.md").read_text(encoding="utf-8")
        numbers = re.findall(r"^\| (\d+) \|.*`[a-z/_]+/\w+[.\w]*`.* \|$", page, re.MULTILINE)
        self.assertEqual(numbers, [str(number) for number in range(1, 26)])

    def test_one_that_does_not_exist_is_noticed(self):
        for name in ("key/Frame.Sings", "sim/without_shoes", "fuzz/nothing", "no/Room.Test",
                     "examples/tiny_llm/No.Test"):
            self.assertEqual(names_in(f"| x | `{name}` |"), [name])
            self.assertFalse(exists(name, ROOT), name)


if __name__ == "__main__":
    sys.exit(unittest.main())
