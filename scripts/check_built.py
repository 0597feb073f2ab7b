#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that no source and no test is silently left out of the build.

usage: check_built.py BUILD_FOLDER [ROOT]

Every .cc and .cu under src/, tests/, examples/ and bench/ must be compiled, by the build folder's
compile_commands.json, and every tests/**/*_test.py must be named by the CMakeLists.txt of its
folder. A store's folder may be left out whole, where its library is missing, and so may the folders
named cuda, all together.
"""

import json
import pathlib
import re
import sys


def compiled_files(build):
    commands = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    return {pathlib.Path(entry["directory"], entry["file"]).resolve() for entry in commands}


def left_out_stores(root, compiled):
    """Folders of stores of which no file is compiled and which name a library that they need."""
    for file in sorted((root / "src/store").glob("*/CMakeLists.txt")):
        sources = {path.resolve() for path in file.parent.glob("*.cc")}
        if not sources & compiled and re.search(r"\bNEEDS\b", file.read_text(encoding="utf-8")):
            yield file.parent


def left_out_cuda(root, compiled):
    """The folders named cuda, if no file of any of them is compiled (TIERCEL_CUDA is off)."""
    folders = [path for top in ("src", "tests") for path in sorted((root / top).rglob("cuda"))]
    sources = {path.resolve() for folder in folders for path in source_files(folder)}
    return [] if sources & compiled else folders


def source_files(folder):
    return sorted(path for path in folder.rglob("*") if path.suffix in (".cc", ".cu"))


def check(root, build):
    problems, notes = [], []
    compiled = compiled_files(build)
    left_out = list(left_out_stores(root, compiled))
    for folder in left_out:
        notes.append(f"note: store '{folder.name}' is left out of this build")
    for folder in left_out_cuda(root, compiled):
        notes.append(f"note: {folder.relative_to(root)} is left out of this build")
        left_out.append(folder)
    count = 0
    for folder in ("src", "tests", "examples", "bench"):
        for path in source_files(root / folder):
            if any(other in path.parents for other in left_out):
                continue
            count += 1
            if path.resolve() not in compiled:
                name = path.relative_to(root)
                problems.append(f"{name}: is not compiled; does a CMakeLists.txt know its folder?")
    for path in sorted((root / "tests").rglob("*_test.py")):
        count += 1
        if not is_named(path):
            problems.append(f"{path.relative_to(root)}: no CMakeLists.txt beside it names it")
    if count == 0:
        problems.append(f"no source under {root}")
    return problems, notes, count


def is_named(path):
    """The name, the stem, or the stem less `_test` is a word of the folder's CMakeLists.txt."""
    file = path.parent / "CMakeLists.txt"
    if not file.is_file():
        return False
    found = set(re.findall(r"[\w.]+", file.read_text(encoding="utf-8")))
    return bool(found & {path.name, path.stem, path.stem.removesuffix("_test")})


def main(arguments):
    if len(arguments) < 2:
        print(__doc__)
        return 2
    default_root = pathlib.Path(__file__).resolve().parent.parent
    root = pathlib.Path(arguments[2]).resolve() if len(arguments) > 2 else default_root
    try:
        problems, notes, count = check(root, pathlib.Path(arguments[1]))
    except (OSError, ValueError, KeyError) as error:
        print(f"check_built: {error}")
        return 1
    for line in notes + problems:
        print(line)
    if problems:
        print(f"check_built: {len(problems)} problem(s)")
        return 1
    print(f"check_built: all {count} sources and tests are built")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
