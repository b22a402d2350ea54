"""The one line of JSON in which an image reports: crt/src/harness.c and startup.c write it, but a board, an emulator or a GDB
server may send anything, so all of it is checked here and nothing else is read from it."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from aot.support.dataclass import dataclass
from aot.support.text import printable

LONGEST = 1 << 20
"""Characters of a line: the counts of 50,000 layers."""
_BRACKETS = 4
"""A report is an object, with one list or one object in it."""
_WORD = 1 << 32
_COUNT = 1 << 60
"""Units of a counter: a run of a year."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a run says of itself; None where its mode does not measure that.

    `status` is the model's, 0 or negative, of input set `set`; `error` is the harness's own.  `fault`: words as text by name (pc,
    lr, sp, cfsr).  Counts are in units of the board's counter, sizes in bytes.
    """

    status: int = 0
    sets: int = 0
    set: int = 0
    error: str = ""
    fault: dict[str, str] | None = None
    units: int | None = None
    all: int | None = None
    most: int | None = None
    loop: int | None = None
    stack: int | None = None
    touched: int | None = None
    extent: int | None = None
    layers: tuple[int, ...] | None = None


def read_report(line: str, *, memory: int) -> Report:
    """The report of a machine with so many bytes of `memory` (ValueError with what is wrong with it)."""
    if len(line) > LONGEST or line.count("{") + line.count("[") > _BRACKETS:
        raise ValueError("it is not of the harness's form")
    try:
        data = json.loads(line)
    except ValueError:
        raise ValueError("it is not JSON") from None
    if not isinstance(data, dict):
        raise ValueError("it is not an object")
    if "fault" in data:
        return Report(fault=_words(data["fault"]))
    if "error" in data:
        return Report(error=printable(str(data["error"])))
    status = _number(data, "status", -_WORD, 1)
    if status:
        return Report(status=status, set=_number(data, "set", 0, _WORD))
    count = partial(_optional, data, limit=_COUNT)
    size = partial(_optional, data, limit=memory + 1)
    report = Report(
        sets=_number(data, "sets", 1, _WORD), units=count("units"), all=count("all"), most=count("most"), loop=count("loop"),
        stack=size("stack"), touched=size("touched"), extent=size("extent"),
        layers=_counts(data["layers"]) if "layers" in data else None,
    )  # fmt: skip
    _check_order(report)
    return report


def _number(data: dict[str, Any], key: str, least: int, limit: int) -> int:
    value = data.get(key)
    if type(value) is not int or not least <= value < limit:
        shown = "missing" if value is None else printable(json.dumps(value), limit=40)
        raise ValueError(f"{key} is {shown}")
    return value


def _optional(data: dict[str, Any], key: str, *, limit: int) -> int | None:
    return _number(data, key, 0, limit) if key in data else None


def _counts(values: object) -> tuple[int, ...]:
    if not isinstance(values, list) or not all(type(v) is int and 0 <= v < _COUNT for v in values):
        raise ValueError("layers is not a list of counts")
    return tuple(values)


def _words(fault: object) -> dict[str, str]:
    """Registers as they were printed; what is no text becomes a word that cannot be read."""
    if not isinstance(fault, dict):
        raise ValueError("fault is not an object")
    return {key: printable(text) if isinstance(text, str) else "?" for key, text in fault.items() if isinstance(key, str)}


def _check_order(report: Report) -> None:
    """Counts that cannot be true together: the longest run is none of several, or more bytes were touched than lie between."""
    units, most, total = report.units, report.most, report.all
    if most is not None and ((units or 0) > most or (total is not None and total < most)):
        raise ValueError("units, most and all contradict each other")
    if report.touched is not None and report.extent is not None and report.touched > report.extent:
        raise ValueError("touched is more than extent")
