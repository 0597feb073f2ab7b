#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the line coverage of each room from gcovr's JSON summary.

usage: coverage_by_room.py SUMMARY PERCENT_MIN

Exit 0: at least PERCENT_MIN of all lines were reached. Exit 1: fewer, or there are no lines.
"""

import collections
import json
import sys


def room_of(name):
    """`src/tier/slots.cc` → `tier`; everything public is one room."""
    parts = name.split("/")
    return parts[1] if parts[0] == "src" and len(parts) > 2 else "include"


def main(arguments):
    if len(arguments) != 3:
        print(__doc__)
        return 2
    with open(arguments[1], encoding="utf-8") as file:
        files = json.load(file)["files"]
    rooms = collections.defaultdict(lambda: [0, 0])
    weak = []
    for entry in files:
        reached, lines = entry["line_covered"], entry["line_total"]
        for name in (room_of(entry["filename"]), "all"):
            rooms[name][0] += reached
            rooms[name][1] += lines
        if lines - reached >= 10 and reached < 0.85 * lines:
            weak.append((lines - reached, entry["filename"]))
    total = rooms.pop("all", [0, 0])
    print(f"{'room':<12}{'lines':>8}{'reached':>9}{'%':>8}")
    for name, (reached, lines) in [*sorted(rooms.items()), ("all", total)]:
        print(f"{name:<12}{lines:>8}{reached:>9}{100 * reached / max(1, lines):>8.1f}")
    for missed, name in sorted(weak, reverse=True):
        print(f"note: {name}: {missed} lines were not reached")
    percent_min = float(arguments[2])
    if total[1] == 0 or 100 * total[0] < percent_min * total[1]:
        print(f"coverage: less than {percent_min:g} % of the lines were reached")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
