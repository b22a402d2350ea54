"""The records in the package, for shapes of common networks (TVM's tophub): `--tuning tophub`.

One file per core, aot/tune/records/<core>.json, written by scripts/tophub.py: the counts of each kernel for each
workload, with board and compiler.  Records of kernels whose source has changed since are left out, with a note.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from aot.executor.config import History
from aot.support.dataclass import dataclass

NAME = "tophub"
"""The word for these records, in place of a file of records."""

VERSION = 1
"""Version of a file's format; files with others are left out."""

FOLDER = Path(__file__).resolve().parent / "records"

_PACKAGE = Path(__file__).resolve().parent.parent
_IMPORT = re.compile(r"^from (aot(?:\.\w+)+) import", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Tophub:
    """The usable records; `notes` say what was left out and why, `compilers` by core what the records were counted with."""

    history: History
    notes: tuple[str, ...]
    compilers: Mapping[str, str]


def load_tophub(folder: Path = FOLDER) -> Tophub:
    """The records of the package that still match its kernels."""
    rows: list[tuple[str, str, str, int]] = []
    notes: list[str] = []
    compilers: dict[str, str] = {}
    for path in sorted(folder.glob("*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["v"] != VERSION:
            notes.append(f"{path.name} is of version {data['v']}, and left out: this compiler reads {VERSION}")
            continue
        stale = {module for module, digest in data["sources"].items() if source_digest(module) != digest}
        own, left = _rows(data, stale)
        rows += own
        compilers[data["target"]] = data["compiler"]
        notes += [f"{n} records of {kernel} on {data['target']} are older than the kernel, and left out" for kernel, n in left]
    return Tophub(History(tuple(sorted(rows))), tuple(notes), compilers)


def _rows(data: Mapping[str, Any], stale: set[str]) -> tuple[list[tuple[str, str, str, int]], Sequence[tuple[str, int]]]:
    """The rows of a file, and how many rows of which kernel are left out because their source is in `stale`."""
    rows, left = [], dict[str, int]()
    for workload, task in data["tasks"].items():
        for kernel, count in task["kernels"].items():
            family = kernel.partition("(")[0]
            if data["kernels"][family] in stale:
                left[family] = left.get(family, 0) + 1
            else:
                rows.append((data["target"], workload, kernel, count))
    return rows, sorted(left.items())


@cache
def source_digest(module: str) -> str:
    """The digest of the source of a kernel's module and of its sibling imports; "" if the module no longer exists."""
    parent, digests, pending = module.rpartition(".")[0], {}, [module]
    while pending:
        name = pending.pop()
        path = _PACKAGE.joinpath(*name.split(".")[1:]).with_suffix(".py")
        if name in digests or not path.is_file():
            continue
        digests[name] = path.read_text(encoding="utf-8")
        pending += [m for m in _IMPORT.findall(digests[name]) if m.rpartition(".")[0] == parent]
    if module not in digests:
        return ""
    return hashlib.sha256("\0".join(digests[name] for name in sorted(digests)).encode()).hexdigest()[:16]
