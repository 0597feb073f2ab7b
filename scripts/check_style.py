#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the form of the tree's own text: what a reviewer should not have to look for.

usage: check_style.py [ROOT]

Exit 0: nothing wrong. Exit 1: each fault by file and line. Files that have grown long are reported
only. Formatting is checked by clang-format 14 where it is installed; other versions differ.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

SKIPPED_FOLDERS = {".git", ".cache", "build", "__pycache__", "shared"}
CPP_SUFFIXES = {".h", ".cc", ".cu"}
CODE_SUFFIXES = CPP_SUFFIXES | {".py", ".sh", ".cmake"}
TEXT_SUFFIXES = CODE_SUFFIXES | {".md", ".txt", ".toml"}
COLUMNS_MAX = 100
LINES_COMFORTABLE = 600
CLANG_FORMAT_VERSION = "14"

SPDX = "SPDX-License-Identifier: Apache-2.0"
# Put together from pieces, so that this file does not find itself.
OPEN_ENDS = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" + "XX"]) + r")\b")
MACHINE_PATH = re.compile(r"(?<![\w.<>{}$-])/(?:home|Users|root|work|tmp)/\w+")
STANDARD_OUTPUT = re.compile(r"\bstd::c" + r"out\b")
ENVIRONMENT = re.compile(r"\b(?:secure_)?get" + r"env\b")


def source_files(root):
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in SKIPPED_FOLDERS)
        for name in sorted(names):
            path = pathlib.Path(folder, name)
            if path.suffix in TEXT_SUFFIXES or is_script(path):
                yield path


def is_script(path):
    if path.suffix or path.is_symlink() or not os.access(path, os.X_OK):
        return False
    with open(path, "rb") as file:
        return file.read(2) == b"#!"


def without_comment(line):
    """`line` up to a // that is outside a string, as far as that can be told from one line."""
    position = line.find("//")
    while position >= 0 and line[:position].count('"') % 2:
        position = line.find("//", position + 2)
    return line if position < 0 else line[:position]


def check_file(root, path, problems, notes):
    name = path.relative_to(root).as_posix()
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        problems.append(f"{name}: not UTF-8: {error}")
        return
    lines = text.split("\n")
    is_cpp = path.suffix in CPP_SUFFIXES
    is_code = path.suffix in CODE_SUFFIXES or path.suffix == "" or name.endswith("CMakeLists.txt")

    if is_cpp and not lines[0].startswith(f"// {SPDX}"):
        problems.append(f"{name}:1: the first line must be '// {SPDX}'")
    if path.suffix in (".py", ".sh", "") and not any(SPDX in line for line in lines[:2]):
        problems.append(f"{name}:1: one of the first two lines must be '# {SPDX}'")
    if path.suffix == ".h" and "#pragma once" not in lines:
        problems.append(f"{name}: no '#pragma once'")
    if text and not text.endswith("\n"):
        problems.append(f"{name}:{len(lines)}: no newline at the end of the file")
    if text.endswith("\n\n"):
        problems.append(f"{name}:{len(lines) - 1}: empty line at the end of the file")
    if "\r" in text:
        problems.append(f"{name}: carriage return")

    in_tool_or_tests = name.startswith(("src/cli/", "tests/", "examples/", "bench/"))
    for number, line in enumerate(lines, 1):
        where = f"{name}:{number}"
        if is_code:
            if "\t" in line:
                problems.append(f"{where}: tab")
            if line != line.rstrip():
                problems.append(f"{where}: space at the end of the line")
            if len(line) > COLUMNS_MAX:
                problems.append(f"{where}: {len(line)} columns; at most {COLUMNS_MAX}")
        if OPEN_ENDS.search(line):
            problems.append(f"{where}: '{OPEN_ENDS.search(line).group()}': open an issue instead")
        if MACHINE_PATH.search(line):
            problems.append(f"{where}: path of one machine: {MACHINE_PATH.search(line).group()}")
        if is_cpp:
            code = without_comment(line)
            if STANDARD_OUTPUT.search(code) and not in_tool_or_tests:
                problems.append(f"{where}: standard output belongs to the tool (src/cli)")
            if (
                ENVIRONMENT.search(code)
                and name.startswith(("src/", "include/"))
                and name != "src/cli/main.cc"
            ):
                problems.append(f"{where}: the environment is read in src/cli/main.cc only")

    if is_code and len(lines) - 1 > LINES_COMFORTABLE:
        notes.append(f"note: {name} has {len(lines) - 1} lines; near 500 it wants to be two")


def find_clang_format():
    """The program, or (None, why not)."""
    for name in (f"clang-format-{CLANG_FORMAT_VERSION}", "clang-format"):
        program = shutil.which(name)
        if program is None:
            continue
        answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
        match = re.search(r"version (\d+)", answer.stdout)
        if match and match.group(1) == CLANG_FORMAT_VERSION:
            return program, ""
        return None, f"{name} is not version {CLANG_FORMAT_VERSION}"
    return None, f"clang-format-{CLANG_FORMAT_VERSION} is not installed"


def check_format(root, files, problems, notes):
    program, reason = find_clang_format()
    if program is None:
        notes.append(f"note: formatting was not checked: {reason}")
        return
    if not (root / ".clang-format").is_file():
        notes.append("note: formatting was not checked: there is no .clang-format")
        return
    for path in files:
        run = subprocess.run(
            [program, "--style=file", "--output-replacements-xml", str(path)],
            capture_output=True,
            text=True,
            check=False,
        )
        name = path.relative_to(root).as_posix()
        if run.returncode != 0:
            problems.append(f"{name}: clang-format failed: {run.stderr.strip()}")
        elif "<replacement " in run.stdout:
            problems.append(f"{name}: not formatted; run clang-format-14 -i {name}")


def main(arguments):
    default_root = pathlib.Path(__file__).resolve().parent.parent
    root = pathlib.Path(arguments[1]).resolve() if len(arguments) > 1 else default_root
    problems, notes, files = [], [], list(source_files(root))
    if not files:
        print(f"check_style: no file to check under {root}")
        return 1
    for path in files:
        check_file(root, path, problems, notes)
    check_format(root, [path for path in files if path.suffix in CPP_SUFFIXES], problems, notes)
    for line in notes + problems:
        print(line)
    if problems:
        print(f"check_style: {len(problems)} problem(s)")
        return 1
    print(f"check_style: {len(files)} files, nothing to complain about")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
