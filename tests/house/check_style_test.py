# SPDX-License-Identifier: Apache-2.0
"""check_style.py finds each kind of fault, and nothing in a tree that is right."""

import shutil
import unittest

from house import SPDX_CPP, SPDX_SCRIPT, TreeTest


class CheckStyle(TreeTest):
    files = {
        "src/base/file.h": SPDX_CPP + "#pragma once\n",
        "src/base/file.cc": SPDX_CPP + '#include "base/file.h"\n',
        "src/cli/main.cc": SPDX_CPP + 'const char* home = std::getenv("HOME");\n',
        "scripts/tool.py": SPDX_SCRIPT + "print(1)\n",
        "README.md": "A tab\tand a line of any length may stand in a page." + " word" * 40 + "\n",
    }

    def check(self):
        return self.run_script("check_style.py", self.root)

    def expect_fault(self, name, text, *parts):
        self.write(name, text)
        self.expect_problem(self.check(), name, *parts)

    def test_accepts_a_tidy_tree(self):
        self.expect_clean(self.check())

    def test_finds_a_source_without_licence_line(self):
        self.expect_fault("src/base/file.cc", "int a;\n", ":1:", "SPDX")

    def test_finds_a_licence_line_that_is_not_the_first(self):
        self.expect_fault("src/base/file.cc", "int a;\n" + SPDX_CPP, ":1:", "SPDX")

    def test_finds_a_script_without_licence_line(self):
        self.expect_fault("scripts/tool.py", "print(1)\n", "SPDX")
        self.write("scripts/tool.py", SPDX_SCRIPT)
        self.write("scripts/run", "#!/bin/sh\ntrue\n", mode=0o755)
        self.expect_problem(self.check(), "scripts/run", "SPDX")

    def test_finds_a_header_without_guard(self):
        self.expect_fault("src/base/file.h", SPDX_CPP + "int a;\n", "#pragma once")

    def test_finds_open_ends(self):
        for word in ("TO" + "DO", "FIX" + "ME", "X" + "XX"):
            with self.subTest(word=word):
                self.expect_fault("src/base/file.cc", SPDX_CPP + f"// {word}: later\n", ":2:", word)

    def test_finds_a_tab(self):
        self.expect_fault("src/base/file.cc", SPDX_CPP + "\tint a;\n", ":2:", "tab")

    def test_finds_space_at_the_end_of_a_line(self):
        self.expect_fault("src/base/file.cc", SPDX_CPP + "int a; \n", ":2:", "space")

    def test_finds_a_long_line_and_counts_characters_not_bytes(self):
        line = "// " + "→" * 97 + "\n"
        self.write("src/base/file.cc", SPDX_CPP + line)
        self.expect_clean(self.check())
        self.expect_fault("src/base/file.cc", SPDX_CPP + line.replace("\n", "→\n"), ":2:", "101")

    def test_finds_the_path_of_a_machine(self):
        for folder in ("/ho" + "me/me/x", "/ro" + "ot/x", "/wo" + "rk/main", "/t" + "mp/x"):
            with self.subTest(folder=folder):
                self.expect_fault("README.md", f"See {folder}.\n", ":1:", "path")
                self.expect_fault("src/base/file.cc", SPDX_CPP + f'auto p = "{folder}";\n', ":2:")

    def test_finds_standard_output_outside_the_tool(self):
        text = SPDX_CPP + "void f() { std::c" + "out << 1; }\n"
        self.expect_fault("src/base/file.cc", text, ":2:", "standard output")

    def test_allows_standard_output_in_the_tool_and_in_tests(self):
        text = SPDX_CPP + "void f() { std::c" + "out << 1; }\n"
        self.write("src/cli/print.cc", text)
        self.write("tests/base/file_test.cc", text)
        self.expect_clean(self.check())

    def test_finds_the_environment_read_outside_main(self):
        for name in ("src/base/file.cc", "src/cli/other.cc"):
            with self.subTest(name=name):
                text = SPDX_CPP + 'const char* h = get' + 'env("HOME");\n'
                self.expect_fault(name, text, ":2:", "environment")
                self.write(name, SPDX_CPP)

    def test_leaves_words_in_comments_alone(self):
        self.write("src/base/file.cc", SPDX_CPP + "// never get" + "env, never std::c" + "out\n")
        self.expect_clean(self.check())

    def test_finds_a_file_without_newline_at_its_end(self):
        self.expect_fault("src/base/file.cc", SPDX_CPP + "int a;", "newline")

    def test_finds_a_carriage_return(self):
        self.expect_fault("README.md", "text\r\n", "carriage return")

    def test_reports_a_long_file_but_does_not_fail(self):
        self.write("src/base/file.cc", SPDX_CPP + "int a;\n" * 700)
        code, output = self.check()
        self.assertEqual(code, 0, output)
        self.assertIn("src/base/file.cc has 701 lines", output)

    def test_leaves_build_folders_alone(self):
        self.write("build/dev/generated.cc", "\tint a;")
        self.expect_clean(self.check())

    def test_refuses_an_empty_tree(self):
        for name in self.files:
            (self.root / name).unlink()
        self.expect_problem(self.check(), "no file")

    @unittest.skipUnless(shutil.which("clang-format-14"), "clang-format-14 is not installed")
    def test_finds_a_file_that_is_not_formatted(self):
        self.write(".clang-format", "BasedOnStyle: Google\n")
        self.expect_fault("src/base/file.cc", SPDX_CPP + "int   a;\n", "not formatted")


if __name__ == "__main__":
    unittest.main()
