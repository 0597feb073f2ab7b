# SPDX-License-Identifier: Apache-2.0
"""check_built.py finds every source and test that the build does not know."""

import json
import unittest

from house import TreeTest


class CheckBuilt(TreeTest):
    files = {
        "src/base/file.cc": "",
        "src/store/memory/CMakeLists.txt": "tiercel_store(memory)\n",
        "src/store/memory/memory_store.cc": "",
        "src/store/valkey/CMakeLists.txt": "tiercel_store(valkey NEEDS hiredis)\n",
        "src/store/valkey/valkey_store.cc": "",
        "src/transfer/cuda/copier.cc": "",
        "src/transfer/cuda/kernel.cu": "",
        "tests/transfer/cuda/copier_test.cc": "",
        "tests/base/file_test.cc": "",
        "tests/house/CMakeLists.txt": "house_test(form form_test.py)\n",
        "tests/house/form_test.py": "",
    }

    def setUp(self):
        super().setUp()
        self.compile(*(name for name in self.files if name.endswith((".cc", ".cu"))))

    def compile(self, *names):
        commands = [{"directory": str(self.root), "file": str(self.root / name)} for name in names]
        self.write("build/dev/compile_commands.json", json.dumps(commands))

    def check(self):
        return self.run_script("check_built.py", self.root / "build/dev", self.root)

    def test_accepts_a_tree_that_is_built_whole(self):
        self.expect_clean(self.check())

    def test_finds_a_test_in_a_folder_that_no_cmake_file_knows(self):
        self.write("tests/new_room/lost_test.cc", "")
        self.expect_problem(self.check(), "tests/new_room/lost_test.cc")

    def test_finds_a_test_in_a_folder_below_a_known_one(self):
        self.write("tests/base/deeper/lost_test.cc", "")
        self.expect_problem(self.check(), "tests/base/deeper/lost_test.cc")

    def test_finds_a_source_that_is_not_compiled(self):
        self.write("src/base/dead.cc", "")
        self.expect_problem(self.check(), "src/base/dead.cc")

    def test_finds_a_script_test_that_no_cmake_file_names(self):
        self.write("tests/house/lost_test.py", "")
        self.expect_problem(self.check(), "tests/house/lost_test.py")

    def test_lets_a_store_be_left_out_that_needs_a_library(self):
        store = "src/store/memory/memory_store.cc"
        self.compile("src/base/file.cc", store, "tests/base/file_test.cc")
        code, output = self.check()
        self.assertEqual(code, 0, output)
        self.assertIn("store 'valkey' is left out", output)

    def test_finds_a_store_that_is_left_out_for_no_reason(self):
        self.compile("src/base/file.cc", "tests/base/file_test.cc")
        self.expect_problem(self.check(), "src/store/memory/memory_store.cc")

    def test_lets_cuda_be_left_out_whole(self):
        self.compile(*(name for name in self.files if name.endswith(".cc") and "cuda" not in name))
        code, output = self.check()
        self.assertEqual(code, 0, output)
        self.assertIn("src/transfer/cuda is left out", output)

    def test_finds_cuda_sources_that_are_left_out_of_a_build_with_cuda(self):
        self.compile(*(name for name in self.files if name.endswith(".cc")))
        self.expect_problem(self.check(), "src/transfer/cuda/kernel.cu")

    def test_refuses_a_build_folder_without_compile_commands(self):
        (self.root / "build/dev/compile_commands.json").unlink()
        self.expect_problem(self.check(), "compile_commands.json")


if __name__ == "__main__":
    unittest.main()
