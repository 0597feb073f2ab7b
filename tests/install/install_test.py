#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs a build into a fresh folder and builds and runs a consumer against what is there.

usage: install_test.py SOURCE_FOLDER BUILD_FOLDER VERSION
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys


def run(*command, **options):
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, **options
    )
    if done.returncode != 0:
        sys.exit(f"failed: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def check_includes(headers):
    """Public headers need nothing but each other, tl/expected.hpp and the standard library."""
    include = re.compile(r'^\s*#\s*include\s+(["<][^">]*[">])', re.MULTILINE)
    for header in headers:
        for name in include.findall(header.read_text(encoding="utf-8")):
            if not re.fullmatch(r'"tiercel/\w+\.h"|<tl/expected\.hpp>|<\w+>', name):
                sys.exit(f"{header.name} includes {name}, which is not installed with it")


def build_consumer(source, prefix, folder, shared, extra_source):
    run("cmake", "-S", source, "-B", folder, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}",
        f"-DBUILD_SHARED_LIBS={'ON' if shared else 'OFF'}", f"-DEXTRA_SOURCE={extra_source}")
    run("cmake", "--build", folder)
    printed = run(folder / "consumer")
    if "a cache of 64 slots" not in printed:
        sys.exit(f"the consumer printed: {printed}")
    needed = run("readelf", "-d", folder / "consumer")
    if ("libtiercel.so" in needed) != shared:
        sys.exit(f"the consumer is linked to the wrong kind of library:\n{needed}")
    return needed


def check_components(source, prefix, folder):
    """A wrong component is named in the refusal."""
    for components, words in (("sttic", "'sttic'"), ("static;shared", "name one of them")):
        done = subprocess.run(
            ["cmake", "-S", source, "-B", folder, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}",
             f"-DCOMPONENTS=COMPONENTS;{components}"], capture_output=True, text=True, check=False)
        if done.returncode == 0 or words not in " ".join(done.stderr.split()):
            sys.exit(f"components {components} are not refused by name:\n{done.stderr}")
        shutil.rmtree(folder)


def main():
    source, build = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    version = sys.argv[3]
    work = build / "install_test"
    shutil.rmtree(work, ignore_errors=True)
    prefix = work / "prefix"
    run("cmake", "--install", build, "--prefix", prefix)

    if version not in run(prefix / "bin" / "tiercel", "version"):
        sys.exit("the installed tool does not know its version")
    headers = sorted((prefix / "include" / "tiercel").glob("*.h"))
    wanted = sorted(path.name for path in (source / "include" / "tiercel").glob("*.h"))
    if [path.name for path in headers] != wanted or not wanted:
        sys.exit(f"installed headers: {[path.name for path in headers]}")
    strange = [path for path in (prefix / "include").rglob("*") if path.is_file()
               and path not in headers]
    if strange:
        sys.exit(f"installed beside the public headers: {strange}")
    check_includes(headers)
    # Each header twice and all of them in one file.
    everything = work / "everything.cc"
    everything.write_text("".join(f'#include "tiercel/{name}"\n' for name in wanted * 2))
    soname = "libtiercel.so." + ".".join(version.split(".")[:2])
    for shared in (False, True):
        folder = work / ("shared" if shared else "static")
        needed = build_consumer(source / "tests" / "install" / "consumer", prefix, folder, shared,
                                "" if shared else everything)
        if shared and soname not in needed:
            sys.exit(f"{soname} is not what the consumer needs:\n{needed}")
    check_components(source / "tests" / "install" / "consumer", prefix, work / "components")
    shutil.rmtree(work)


if __name__ == "__main__":
    os.environ.pop("DESTDIR", None)
    main()
