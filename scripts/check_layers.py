#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the direction of includes against the tables in ARCHITECTURE.md.

usage: check_layers.py [ROOT]

Three tables, each between the markers `<!-- NAME:begin -->` and `<!-- NAME:end -->`:
  layers          room, the rooms that it may include (and, through them, theirs)
  public-headers  header under include/tiercel, the room that it belongs to
  libraries       library, its headers, the files that may include them, how many files at most

Exit 0: every include under src/ and include/ agrees. Exit 1: each that does not, by file and line.
"""

import fnmatch
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\b\s*(?:"([^"]*)"|<([^>]*)>|(.*))')
BLOCK_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
STANDARD_HEADER = re.compile(r"^[a-z_0-9]+$")
NOTHING = {"", "-", "–"}


class TableError(Exception):
    """ARCHITECTURE.md itself is wrong."""


def read_table(text, name, columns):
    """Rows of the table between the markers of `name`, as lists of cells without backticks."""
    match = re.search(rf"<!-- {name}:begin -->(.*?)<!-- {name}:end -->", text, re.DOTALL)
    if not match:
        raise TableError(f"ARCHITECTURE.md: no table between the markers of '{name}'")
    rows = []
    for line in match.group(1).strip().splitlines():
        cells = [cell.strip().replace("`", "") for cell in line.strip().strip("|").split("|")]
        if len(cells) != columns:
            raise TableError(
                f"ARCHITECTURE.md: table '{name}' has {columns} columns, this row has "
                f"{len(cells)}: {line}"
            )
        rows.append(cells)
    if len(rows) < 3:
        raise TableError(f"ARCHITECTURE.md: table '{name}' has no rows")
    return rows[2:]


def words(cell):
    return [] if cell in NOTHING else [word.strip() for word in cell.split(",")]


def find_circle(edges):
    """Some circle in a graph given as node → successors, as a list of nodes, or None."""
    done, path = set(), []

    def visit(node):
        if node in path:
            return path[path.index(node) :] + [node]
        if node in done:
            return None
        path.append(node)
        for successor in sorted(edges.get(node, ())):
            circle = visit(successor)
            if circle:
                return circle
        done.add(path.pop())
        return None

    for start in sorted(edges):
        circle = visit(start)
        if circle:
            return circle
    return None


class Layers:
    """The three tables, read once."""

    def __init__(self, text):
        self.direct = {}
        for room, may_include in read_table(text, "layers", 2):
            self.direct[room] = set(words(may_include))
        for room, others in self.direct.items():
            for other in others - set(self.direct):
                raise TableError(f"ARCHITECTURE.md: room '{room}' may include unknown '{other}'")
        circle = find_circle(self.direct)
        if circle:
            raise TableError(f"ARCHITECTURE.md: table 'layers' has a circle: {' → '.join(circle)}")
        self.allowed = {room: self._closure(room) for room in self.direct}

        self.header_rooms = {}
        for header, room in read_table(text, "public-headers", 2):
            if room not in self.direct:
                raise TableError(f"ARCHITECTURE.md: header '{header}' is in unknown room '{room}'")
            self.header_rooms[header] = room

        self.libraries = []
        for name, headers, only_in, files_max in read_table(text, "libraries", 4):
            limit = None if files_max in NOTHING else int(files_max)
            self.libraries.append((name, words(headers), words(only_in), limit))

    def _closure(self, room):
        reached, waiting = {room}, [room]
        while waiting:
            for other in self.direct[waiting.pop()] - reached:
                reached.add(other)
                waiting.append(other)
        return reached

    def library_of(self, header):
        for library in self.libraries:
            if any(fnmatch.fnmatchcase(header, pattern) for pattern in library[1]):
                return library
        return None


def read_includes(path):
    """(line number, text in quotes or None, text in angle brackets or None, anything else)."""
    text = path.read_text(encoding="utf-8")
    text = BLOCK_COMMENT.sub(lambda comment: "\n" * comment.group().count("\n"), text)
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield (number, *match.groups())


class Checker:
    """Walks one tree and collects what is wrong with it."""

    def __init__(self, root):
        self.root = root
        self.layers = Layers((root / "ARCHITECTURE.md").read_text(encoding="utf-8"))
        self.problems = []
        self.edges = {}
        self.library_files = {}

    def run(self):
        files = [
            path
            for folder in ("include", "src")
            for path in sorted((self.root / folder).rglob("*"))
            if path.suffix in (".h", ".cc", ".cu")
        ]
        for path in files:
            self._check_file(path.relative_to(self.root).as_posix())
        for header in self.layers.header_rooms:
            if not (self.root / "include/tiercel" / header).is_file():
                self.problems.append(
                    f"ARCHITECTURE.md: table 'public-headers' names {header}, which does not exist"
                )
        for name, _, _, limit in self.layers.libraries:
            users = sorted(self.library_files.get(name, ()))
            if limit is not None and len(users) > limit:
                self.problems.append(
                    f"{users[-1]}: {name} may be included by {limit} file(s), but is by "
                    f"{len(users)}: {', '.join(users)}"
                )
        circle = find_circle(self.edges)
        if circle:
            self.problems.append(f"{circle[0]}: files include each other: {' → '.join(circle)}")
        return len(files)

    def _room_of(self, name):
        parts = name.split("/")
        if name.startswith("include/tiercel/"):
            return self.layers.header_rooms.get("/".join(parts[2:]))
        if parts[0] == "src" and len(parts) > 2 and parts[1] in self.layers.direct:
            return parts[1]
        return None

    def _check_file(self, name):
        room = self._room_of(name)
        if room is None:
            table = "public-headers" if name.startswith("include/") else "layers"
            self.problems.append(f"{name}: belongs to no room; add it to the table '{table}'")
            return
        for number, quoted, bracketed, other in read_includes(self.root / name):
            where = f"{name}:{number}"
            if quoted is not None:
                self._check_own(where, name, room, quoted)
            elif bracketed is not None:
                self._check_foreign(where, name, bracketed)
            else:
                self.problems.append(f"{where}: cannot tell what is included by '{other.strip()}'")

    def _check_own(self, where, name, room, header):
        folder = "include/" if header.startswith("tiercel/") else "src/"
        target = folder + header
        if not (self.root / target).is_file():
            self.problems.append(
                f'{where}: "{header}" is no file; write the path from src/ or from include/, and '
                f"other projects' headers in angle brackets"
            )
            return
        self.edges.setdefault(name, set()).add(target)
        if name.startswith("include/") and not target.startswith("include/"):
            self.problems.append(f"{where}: a public header includes {target}")
            return
        target_room = self._room_of(target)
        if target_room is not None and target_room not in self.layers.allowed[room]:
            allowed = ", ".join(sorted(self.layers.allowed[room] - {room})) or "no other room"
            self.problems.append(
                f"{where}: room '{room}' includes {target} of room '{target_room}'; "
                f"allowed: {allowed}"
            )
        backend = re.match(r"src/store/[^/]+/", target)
        if backend and not name.startswith(backend.group()):
            self.problems.append(
                f"{where}: includes {target}; nothing outside a store's folder knows the store"
            )

    def _check_foreign(self, where, name, header):
        if header.startswith("tiercel/"):
            self.problems.append(f"{where}: <{header}> is our own header; write it in quotes")
            return
        if STANDARD_HEADER.match(header):
            return
        library = self.layers.library_of(header)
        if library is None:
            self.problems.append(
                f"{where}: <{header}> belongs to no library of the table 'libraries'"
            )
            return
        library_name, _, only_in, _ = library
        self.library_files.setdefault(library_name, set()).add(name)
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in only_in):
            self.problems.append(
                f"{where}: <{header}> of {library_name}; allowed only in {', '.join(only_in)}"
            )


def main(arguments):
    default_root = pathlib.Path(__file__).resolve().parent.parent
    root = pathlib.Path(arguments[1]) if len(arguments) > 1 else default_root
    try:
        checker = Checker(root)
        file_count = checker.run()
    except (TableError, OSError) as error:
        print(error)
        return 1
    for problem in checker.problems:
        print(problem)
    if checker.problems:
        print(f"check_layers: {len(checker.problems)} problem(s)")
        return 1
    if file_count == 0:
        print(f"check_layers: no source file under {root}")
        return 1
    print(f"check_layers: {file_count} files, every include as ARCHITECTURE.md allows")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
