"""A record: what one kernel took for one workload on one board."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from aot.errors import Problem, UsageError
from aot.support.dataclass import dataclass
from aot.support.untrusted import is_text, parse_json

VERSION = 1
"""Of the form of a line; others are refused (E5502)."""

UNITS = ("instructions", "cycles")


@dataclass(frozen=True, slots=True)
class Record:
    """`count` of `unit` that one call of `kernel` took on `board`, a core `target`, in C compiled by `compiler`.

    `workload` is the key of the fused function (aot.relay.analysis), `text` says to a person what that is.  `estimate`:
    what the kernel's author expected, in instructions.
    """

    workload: str
    kernel: str
    target: str
    board: str
    compiler: str
    unit: str
    count: int
    estimate: int
    text: str

    @property
    def key(self) -> tuple[str, ...]:
        """What was measured; two records of it differ only where a board counts differently each time."""
        return self.workload, self.kernel, self.target, self.board, self.compiler, self.unit

    @property
    def id(self) -> str:
        """The hash of what was measured."""
        return hashlib.sha256("\n".join(self.key).encode()).hexdigest()[:16]

    def line(self) -> str:
        """The record as a line of a file, without its end."""
        return json.dumps({"v": VERSION, "id": self.id, **asdict(self)}, ensure_ascii=False)


def parse_line(line: str, where: str) -> Record:
    """The record in a line; UsageError E5501 for what is none, E5502 for one of another version."""
    try:
        data = parse_json(line)
    except ValueError:
        raise _fault("it is not JSON", where) from None
    if not isinstance(data, Mapping):
        raise _fault("it is not a JSON object", where)
    if data.get("v") != VERSION:
        message = f"the record is of version {str(data.get('v'))[:40]!r}; this compiler reads {VERSION}: run aot tune again"
        raise UsageError(Problem("E5502", message, where))
    texts = [n for n in ("workload", "kernel", "target", "board", "compiler", "unit", "text") if not is_text(data.get(n))]
    numbers = [n for n in ("count", "estimate") if not _is_count(data.get(n))]
    if texts or numbers:
        raise _fault(f"{', '.join([*texts, *numbers])} missing or of a wrong type", where)
    record = Record(**{name: data[name] for name in Record.__dataclass_fields__})
    if record.unit not in UNITS:
        raise _fault(f"unit {record.unit!r}; known: {', '.join(UNITS)}", where)
    if data.get("id") != record.id:
        raise _fault("its id is not that of its fields", where)
    return record


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


def _fault(reason: str, where: str) -> UsageError:
    return UsageError(Problem("E5501", f"no tuning record: {reason}", where))
