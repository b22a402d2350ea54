"""A record: the measured cost of one kernel for one workload on one board; and databases of records."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aot.driver.reading import read_limited
from aot.errors import Problem, UsageError
from aot.executor.config import History
from aot.support.dataclass import dataclass
from aot.support.untrusted import is_text, parse_json
from aot.system.files import write_error

VERSION = 1
"""Version of a line's format; others are refused (E5502)."""

UNITS = ("instructions", "cycles")


@dataclass(frozen=True, slots=True)
class Record:
    """`count` of `unit` for one call of `kernel` on `board`, a core `target`, in C compiled by `compiler`.

    `workload` is the key of the fused function (aot.relay.analysis), `text` its readable form.  `estimate`: expected
    instructions by the kernel's author.
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
        """What was measured; two records with the same key differ only if a board counts differently each time."""
        return self.workload, self.kernel, self.target, self.board, self.compiler, self.unit

    @property
    def id(self) -> str:
        """The hash of what was measured."""
        return hashlib.sha256("\n".join(self.key).encode()).hexdigest()[:16]

    def line(self) -> str:
        """The record as a line of a file, without its end."""
        return json.dumps({"v": VERSION, "id": self.id, **asdict(self)}, ensure_ascii=False)


def parse_line(line: str, where: str) -> Record:
    """The record in a line; UsageError E5501 if it is not one, E5502 for another version."""
    try:
        data = parse_json(line)
    except ValueError:
        raise _fault("it is not JSON", where) from None
    if not isinstance(data, Mapping):
        raise _fault("it is not a JSON object", where)
    if data.get("v") != VERSION:
        message = f"the record has version {str(data.get('v'))[:40]!r}, but this compiler reads {VERSION}: run aot tune again"
        raise UsageError(Problem("E5502", message, where))
    texts = [n for n in ("workload", "kernel", "target", "board", "compiler", "unit", "text") if not is_text(data.get(n))]
    numbers = [n for n in ("count", "estimate") if not _is_count(data.get(n))]
    if texts or numbers:
        raise _fault(f"{', '.join([*texts, *numbers])} missing or of a wrong type", where)
    record = Record(**{name: data[name] for name in Record.__dataclass_fields__})
    if record.unit not in UNITS:
        raise _fault(f"unit {record.unit!r} is not one of {', '.join(UNITS)}", where)
    if data.get("id") != record.id:
        raise _fault("its id does not match its fields", where)
    return record


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


def _fault(reason: str, where: str) -> UsageError:
    return UsageError(Problem("E5501", f"not a tuning record: {reason}", where))


# ---- databases of records: files of lines, in any order, that can be concatenated with `cat`


def load(path: Path) -> list[Record]:
    """The records of a file, each once, sorted (E5001, E5002 if it cannot be read, E5501, E5502 with the line)."""
    try:
        text = read_limited(path).decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(Problem("E5501", "not a tuning record: it is not UTF-8 text", str(path))) from None
    lines = text.split("\n")
    return merged(parse_line(line, f"{path}:{i}") for i, line in enumerate(lines, 1) if line.strip())


def merged(records: Iterable[Record]) -> list[Record]:
    """The records in a fixed order; of several measurements of the same thing the smallest counts."""
    best: dict[tuple[str, ...], Record] = {}
    for r in records:
        other = best.get(r.key)
        if other is None or (r.count, r.estimate, r.text) < (other.count, other.estimate, other.text):
            best[r.key] = r
    return [best[key] for key in sorted(best)]


def save(path: Path, records: Iterable[Record]) -> None:
    """Write a file of sorted records, replacing an existing one atomically (E5006, E5007)."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text("".join(f"{r.line()}\n" for r in merged(records)), encoding="utf-8", newline="\n")
        partial.replace(path)
    except OSError as error:
        raise write_error(path, error) from None


def history_of(records: Iterable[Record]) -> History:
    """The records as a history: per core cycles if there are any, since only a board can count them, else instructions.

    Of several boards and compilers the smallest count is used.
    """
    rows = list(records)
    cycles = {r.target for r in rows if r.unit == "cycles"}
    best: dict[tuple[str, str, str], int] = {}
    for r in rows:
        if (r.unit == "cycles") == (r.target in cycles):
            key = r.target, r.workload, r.kernel
            best[key] = min(r.count, best.get(key, r.count))
    return History(tuple((*key, count) for key, count in sorted(best.items())), tuple(sorted(cycles)))


def load_history(path: str | Path) -> History:
    """The records of a file in the form for `aot.build` (`tuning=`); E5001, E5501, E5502.

    `path`: a file written by `aot tune`.
    """
    return history_of(load(Path(path)))
