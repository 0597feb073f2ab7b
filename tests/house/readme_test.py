# SPDX-License-Identifier: Apache-2.0
"""The example in README.md is the text of examples/hello.cc, which is a test of its own."""

import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def example_of(readme: str) -> str:
    return readme.split("```cpp\n", 1)[1].split("```", 1)[0]


def example_source(source: str) -> str:
    return source.split("// readme:begin\n", 1)[1].split("// readme:end", 1)[0]


class Readme(unittest.TestCase):
    def test_the_example_is_the_one_that_is_compiled(self):
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        source = (ROOT / "examples" / "hello.cc").read_text(encoding="utf-8")
        self.assertEqual(example_of(readme), example_source(source))

    def test_another_text_is_noticed(self):
        self.assertNotEqual(example_of("```cpp\nint x;\n```"),
                            example_source("// readme:begin\nint y;\n// readme:end"))

    def test_files_that_the_readme_links_to_exist(self):
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        links = [part.split(")", 1)[0] for part in readme.split("](")[1:]]
        self.assertTrue(links)
        for link in links:
            self.assertTrue((ROOT / link).exists(), link)


if __name__ == "__main__":
    sys.exit(unittest.main())
