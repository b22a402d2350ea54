"""Databases of records: files of lines, in any order, that can be put together with `cat`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from aot.driver.reading import read_limited
from aot.errors import Problem, UsageError
from aot.executor.config import History
from aot.system.files import write_error
from aot.tune.record import Record, parse_line


def load(path: Path) -> list[Record]:
    """The records of a file, each once, sorted (E5001, E5002 if it cannot be read, E5501, E5502 with the line)."""
    try:
        text = read_limited(path).decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(Problem("E5501", "no tuning record: it is not text in UTF-8", str(path))) from None
    lines = text.split("\n")
    return merged(parse_line(line, f"{path}:{i}") for i, line in enumerate(lines, 1) if line.strip())


def merged(records: Iterable[Record]) -> list[Record]:
    """The records in one order, whatever order they came in; of several measurements of one thing the smallest counts."""
    best: dict[tuple[str, ...], Record] = {}
    for r in records:
        other = best.get(r.key)
        if other is None or (r.count, r.estimate, r.text) < (other.count, other.estimate, other.text):
            best[r.key] = r
    return [best[key] for key in sorted(best)]


def save(path: Path, records: Iterable[Record]) -> None:
    """Write a file of records in their order, in place of another one at once (E5006, E5007)."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text("".join(f"{r.line()}\n" for r in merged(records)), encoding="utf-8", newline="\n")
        partial.replace(path)
    except OSError as error:
        raise write_error(path, error) from None


def history_of(records: Iterable[Record]) -> History:
    """What the records say: of a core cycles where there are any, since only a board tells them, else instructions.

    Of several boards and compilers the smallest count is taken.
    """
    found = list(records)
    cycles = {r.target for r in found if r.unit == "cycles"}
    best: dict[tuple[str, str, str], int] = {}
    for r in found:
        if (r.unit == "cycles") == (r.target in cycles):
            key = r.target, r.workload, r.kernel
            best[key] = min(r.count, best.get(key, r.count))
    return History(tuple((*key, count) for key, count in sorted(best.items())), tuple(sorted(cycles)))


def load_history(path: str | Path) -> History:
    """The records of a file as `aot.build` takes them (`tuning=`); E5001, E5501, E5502.

    `path`: what `aot tune` wrote.
    """
    return history_of(load(Path(path)))
