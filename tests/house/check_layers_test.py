# SPDX-License-Identifier: Apache-2.0
"""check_layers.py finds each kind of wrong include, and nothing in a tree that is right."""

import unittest

from house import TreeTest

ARCHITECTURE = """
<!-- layers:begin -->
| room | may include |
|---|---|
| `base` | – |
| `key` | `base` |
| `index` | `key` |
| `tier` | `key` |
| `store` | `key` |
| `cache` | `store`, `tier`, `index` |
<!-- layers:end -->
<!-- public-headers:begin -->
| header | room |
|---|---|
| `status.h` | `base` |
| `key.h` | `key` |
| `cache.h` | `cache` |
<!-- public-headers:end -->
<!-- libraries:begin -->
| library | headers | only in | files at most |
|---|---|---|---|
| tl::expected | `tl/expected.hpp` | `include/tiercel/status.h` | 1 |
| OpenSSL | `openssl/*` | `src/key/*.cc` | 1 |
| fmt | `fmt/*` | `src/base/*.cc` | – |
| operating system | `sys/*`, `unistd.h` | `src/*` | – |
<!-- libraries:end -->
"""


class CheckLayers(TreeTest):
    files = {
        "ARCHITECTURE.md": ARCHITECTURE,
        "include/tiercel/status.h": "#include <string>\n#include <tl/expected.hpp>\n",
        "include/tiercel/key.h": '#include "tiercel/status.h"\n',
        "include/tiercel/cache.h": '#include "tiercel/key.h"\n',
        "src/base/file.h": '#include <unistd.h>\n#include "tiercel/status.h"\n',
        "src/base/file.cc": '#include "base/file.h"\n#include <fmt/format.h>\n',
        "src/key/sha256.h": '#include "tiercel/key.h"\n',
        "src/key/sha256.cc": '#include "key/sha256.h"\n#include <openssl/sha.h>\n',
        "src/index/block_index.h": '#include "tiercel/key.h"\n',
        "src/tier/slots.h": '#include "base/file.h"\n',
        "src/store/registry.h": '#include "tiercel/key.h"\n',
        "src/store/memory/pool.h": "#include <map>\n",
        "src/store/memory/memory_store.cc": '#include "store/memory/pool.h"\n'
        '#include "store/registry.h"\n',
        "src/cache/cache.cc": '#include "tiercel/cache.h"\n#include "index/block_index.h"\n'
        '#include "base/file.h"\n',
    }

    def check(self):
        return self.run_script("check_layers.py", self.root)

    def append(self, name, text):
        path = self.root / name
        self.write(name, (path.read_text() if path.is_file() else "") + text)

    def replace_in_tables(self, old, new):
        self.assertIn(old, ARCHITECTURE)
        self.write("ARCHITECTURE.md", ARCHITECTURE.replace(old, new))

    def test_accepts_a_tree_that_agrees_with_the_tables(self):
        self.expect_clean(self.check())

    def test_finds_an_upward_include(self):
        self.append("src/base/file.cc", '#include "key/sha256.h"\n')
        self.expect_problem(self.check(), "src/base/file.cc:3", "'base'", "'key'")

    def test_finds_an_upward_include_of_a_public_header(self):
        self.append("src/index/block_index.h", '#include "tiercel/cache.h"\n')
        self.expect_problem(self.check(), "src/index/block_index.h:2", "'index'", "'cache'")

    def test_finds_an_upward_include_between_public_headers(self):
        self.append("include/tiercel/key.h", '#include "tiercel/cache.h"\n')
        self.expect_problem(self.check(), "include/tiercel/key.h:2", "'key'", "'cache'")

    def test_finds_a_sideways_include(self):
        for room, other in (("tier", "index/block_index.h"), ("store", "tier/slots.h")):
            with self.subTest(room=room):
                self.write(f"src/{room}/aside.h", f'#include "{other}"\n')
                self.expect_problem(self.check(), f"src/{room}/aside.h:1", f"'{room}'")

    def test_finds_files_that_include_each_other(self):
        self.write("src/tier/first.h", '#include "tier/second.h"\n')
        self.write("src/tier/second.h", '#include "tier/third.h"\n')
        self.write("src/tier/third.h", '#include "tier/first.h"\n')
        self.expect_problem(self.check(), "include each other", "first.h", "second.h", "third.h")

    def test_finds_a_file_that_includes_itself(self):
        self.append("src/tier/slots.h", '#include "tier/slots.h"\n')
        self.expect_problem(self.check(), "include each other", "src/tier/slots.h")

    def test_finds_a_circle_in_the_table(self):
        self.replace_in_tables("| `base` | – |", "| `base` | `cache` |")
        self.expect_problem(self.check(), "circle", "base", "cache")

    def test_finds_a_library_in_a_wrong_place(self):
        self.append("src/index/block_index.h", "#include <fmt/format.h>\n")
        self.expect_problem(self.check(), "src/index/block_index.h:2", "fmt/format.h")

    def test_finds_a_library_in_a_header_where_only_sources_may_have_it(self):
        self.append("src/key/sha256.h", "#include <openssl/sha.h>\n")
        self.expect_problem(self.check(), "src/key/sha256.h:2", "openssl/sha.h")

    def test_finds_a_library_in_more_files_than_allowed(self):
        self.write("src/key/second.cc", "#include <openssl/evp.h>\n")
        self.expect_problem(self.check(), "OpenSSL", "second.cc", "sha256.cc")

    def test_finds_a_library_that_the_table_does_not_know(self):
        self.append("src/base/file.cc", "#include <boost/asio.hpp>\n")
        self.expect_problem(self.check(), "src/base/file.cc:3", "boost/asio.hpp")

    def test_finds_a_library_in_a_public_header(self):
        self.append("include/tiercel/key.h", "#include <tl/expected.hpp>\n")
        self.expect_problem(self.check(), "include/tiercel/key.h:2", "tl/expected.hpp")

    def test_finds_a_system_header_in_a_public_header(self):
        self.append("include/tiercel/key.h", "#include <unistd.h>\n")
        self.expect_problem(self.check(), "include/tiercel/key.h:2", "unistd.h")

    def test_finds_a_public_header_that_includes_the_inside(self):
        self.append("include/tiercel/cache.h", '#include "index/block_index.h"\n')
        self.expect_problem(self.check(), "include/tiercel/cache.h:2", "public header")

    def test_finds_a_store_that_is_known_outside_its_folder(self):
        self.append("src/store/registry.h", '#include "store/memory/pool.h"\n')
        self.expect_problem(self.check(), "src/store/registry.h:2", "store's folder")

    def test_finds_a_public_header_without_a_room(self):
        self.write("include/tiercel/new.h", "#include <string>\n")
        self.expect_problem(self.check(), "include/tiercel/new.h", "public-headers")

    def test_finds_a_folder_without_a_row(self):
        self.write("src/attic/old.h", "#include <string>\n")
        self.expect_problem(self.check(), "src/attic/old.h", "layers")

    def test_finds_a_row_without_a_header(self):
        (self.root / "include/tiercel/cache.h").unlink()
        self.expect_problem(self.check(), "cache.h", "does not exist")

    def test_finds_an_include_of_no_file(self):
        self.append("src/key/sha256.cc", '#include "sha256.h"\n')
        self.expect_problem(self.check(), "src/key/sha256.cc:3", "is no file")

    def test_finds_an_own_header_in_angle_brackets(self):
        self.append("src/key/sha256.cc", "#include <tiercel/key.h>\n")
        self.expect_problem(self.check(), "src/key/sha256.cc:3", "quotes")

    def test_finds_an_include_through_a_macro(self):
        self.append("src/key/sha256.cc", "#include HIDDEN\n")
        self.expect_problem(self.check(), "src/key/sha256.cc:3", "HIDDEN")

    def test_is_not_fooled_by_spelling(self):
        for text in ('#  include "cache/cache.h"\n', '\t#include"cache/cache.h"\n'):
            with self.subTest(text=text):
                self.write("src/cache/cache.h", "\n")
                self.write("src/tier/spelled.h", text)
                self.expect_problem(self.check(), "src/tier/spelled.h:1", "'tier'", "'cache'")

    def test_leaves_commented_includes_alone(self):
        self.append("src/base/file.cc", '// #include "key/sha256.h"\n/*\n#include <zlib.h>\n*/\n')
        self.expect_clean(self.check())

    def test_counts_lines_behind_a_block_comment(self):
        self.append("src/base/file.cc", "/*\n\n*/\n#include <zlib.h>\n")
        self.expect_problem(self.check(), "src/base/file.cc:6", "zlib.h")

    def test_refuses_a_page_without_a_table(self):
        for name in ("layers", "public-headers", "libraries"):
            with self.subTest(name=name):
                self.replace_in_tables(f"<!-- {name}:begin -->", "")
                self.expect_problem(self.check(), f"'{name}'")

    def test_refuses_an_empty_tree(self):
        self.write("ARCHITECTURE.md", ARCHITECTURE)
        for folder in ("include", "src"):
            (self.root / folder).rename(self.root / f"not-{folder}")
        self.expect_problem(self.check(), "does not exist")


if __name__ == "__main__":
    unittest.main()
