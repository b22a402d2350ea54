#!/usr/bin/env python3
"""The picture of the rooms in ARCHITECTURE.md, drawn from the imports.

    python scripts/rooms.py            print it
    python scripts/rooms.py --write    put it into ARCHITECTURE.md; a test compares

A line is a room and the rooms that it depends on directly; indirect ones are omitted.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "ARCHITECTURE.md"
BEGIN, END = "<!-- rooms: drawn by scripts/rooms.py -->\n", "<!-- end of rooms -->\n"


def graph() -> dict[str, set[str]]:
    """Room -> rooms that its files import, of the tables and the reader of tests/test_repository.py."""
    sys.path.insert(0, str(ROOT))
    from tests.test_repository import imports, module_name, part_of, sources

    rooms: dict[str, set[str]] = {}
    for path in sources("aot"):
        room = part_of(module_name(path))
        below = rooms.setdefault(room, set())
        below |= {part_of(name) for _, name in imports(path)} - {room}
    del rooms[""]  # the package itself offers the driver's names
    return {room: below - {"", "version"} for room, below in rooms.items() if room != "version"}


def depths(rooms: Mapping[str, set[str]]) -> dict[str, int]:
    """The longest way down from each room."""
    depth_of: dict[str, int] = {}

    def depth(room: str) -> int:
        if room not in depth_of:
            depth_of[room] = 1 + max((depth(below) for below in rooms[room]), default=-1)
        return depth_of[room]

    for room in rooms:
        depth(room)
    return depth_of


def reached(rooms: Mapping[str, set[str]], start: str) -> set[str]:
    """All rooms below `start`."""
    below: set[str] = set()
    waiting = list(rooms[start])
    while waiting:
        room = waiting.pop()
        if room not in below:
            below.add(room)
            waiting += rooms[room]
    return below


def picture() -> str:
    """The rooms from the top down, each with its direct dependencies."""
    rooms = graph()
    depth = depths(rooms)
    width = max(map(len, rooms))
    lines = []
    for room in sorted(rooms, key=lambda r: (-depth[r], r)):
        below = rooms[room]
        direct = below - {r for other in below for r in reached(rooms, other)}
        lines.append(f"    {room:{width}}  → {'  '.join(sorted(direct, key=lambda r: (-depth[r], r))) or '–'}")
    return "\n".join(lines) + "\n"


def with_picture(text: str) -> str:
    """The page with the current picture between the marks."""
    head, after = text.split(BEGIN)
    return f"{head}{BEGIN}\n{picture()}\n{END}{after.split(END)[1]}"


def main() -> int:
    if "--write" in sys.argv[1:]:
        PAGE.write_text(with_picture(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(picture(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
