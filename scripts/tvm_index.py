#!/usr/bin/env python3
"""What Python says about names of TVM's that are not here, from the tables of docs/tvm.md.

python scripts/tvm_index.py            compare with aot/errors/tvm_index.py; exit 1 where that is not current
python scripts/tvm_index.py --write    write it
"""

from __future__ import annotations

import importlib
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "tvm.md"
INDEX = ROOT / "aot" / "errors" / "tvm_index.py"
HOMES = {"transform": "ir.transform", "instrument": "ir.instrument"}
"""Modules of TVM's that lie elsewhere here."""

HEAD = '''"""What is said about names of TVM's, without `tvm.`, that are not here.

Written by scripts/tvm_index.py from docs/tvm.md.
"""

from __future__ import annotations

from collections.abc import Mapping

NAMES: Mapping[str, str] = {
'''


def rows() -> list[tuple[list[str], str, str]]:
    """(names of TVM's, state, the last cell) of each row of the page's tables."""
    names = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [c.strip().replace("\\|", "|") for c in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 3 and cells[1] in ("works", "other name", "refused"):
            names.append((re.findall(r"`([^`]+)`", cells[0]), cells[1], cells[2]))
    return names


def dotted(names: list[str]) -> Iterator[str]:
    """The names that Python can look up, without `tvm.`."""
    for name in names:
        if re.fullmatch(r"tvm(\.\w+)+", name):
            yield name.removeprefix("tvm.")


def lookup(name: str) -> tuple[Any, str]:
    """(the object of `name` here, ""), or (None, the part of the name that does not exist here)."""
    first, _, remainder = name.partition(".")
    parts = [*(HOMES[first] if first in HOMES and remainder else first).split("."), *(remainder.split(".") if remainder else ())]
    before = len(parts) - len(name.split("."))
    value: Any = importlib.import_module("aot")
    for i, part in enumerate(parts):
        try:
            value = importlib.import_module(f"{value.__name__}.{part}") if hasattr(value, "__path__") else getattr(value, part)
        except ImportError:
            try:
                value = getattr(value, part)
            except AttributeError:
                return None, ".".join(name.split(".")[: i + 1 - before])
        except AttributeError:
            return None, ".".join(name.split(".")[: i + 1 - before])
    return value, ""


def plain(cell: str) -> str:
    """A cell without the marks of Markdown."""
    return re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", cell).replace("`", "")


def text() -> str:
    """The file as it should be."""
    said: dict[str, str] = {}
    for names, state, cell in rows():
        if state == "works":
            continue
        for name in dotted(names):
            _, absent = lookup(name)
            if absent:
                words = f"is not here: {plain(cell).removeprefix('E5091: ')}" if state == "refused" else f"is here: {plain(cell)}"
                said.setdefault(absent, words)
    lines = []
    for name in sorted(said):
        quoted = said[name].replace("\\", "\\\\").replace('"', '\\"')
        pieces = textwrap.wrap(quoted, 110, drop_whitespace=False, break_long_words=False, break_on_hyphens=False)
        if len(name) + len(quoted) + len('    "": "",') <= 130:
            lines.append(f'    "{name}": "{quoted}",\n')
        else:
            lines.append(f'    "{name}": (\n' + "".join(f'        "{p}"\n' for p in pieces) + "    ),\n")
    return HEAD + "".join(lines) + "}\n"


def main(arguments: list[str]) -> int:
    """Compare or write; the exit code."""
    content = text()
    if "--write" in arguments:
        INDEX.write_text(content, encoding="utf-8", newline="\n")
        return 0
    if INDEX.read_text(encoding="utf-8") == content:
        return 0
    print(f"{INDEX.relative_to(ROOT)} is not current: python scripts/tvm_index.py --write", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))
