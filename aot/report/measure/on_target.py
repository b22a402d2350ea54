"""What a program of the user's counted of each layer: the text that crt/src/layer_profile.c makes, found in a log.

Lines may stand behind time stamps or other words of the log, and among lines of others.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from aot.errors import Problem, UsageError
from aot.support.dataclass import dataclass
from aot.support.text import does_of, printable

MOST_BYTES = 1 << 26
"""of a log"""
_HEAD = re.compile(r"aot-profile 1 (\w{1,31}) layers ([0-9]{1,9}) runs ([0-9]{1,10}) hz ([0-9]{1,10})")
_LAYER = re.compile(r"aot-layer ([0-9]{1,9}) ([0-9]{1,20}) ([0-9]{1,10}) ([0-9]{1,10})")
_END = re.compile(r"aot-profile-end ([0-9]{1,10})")
_NAME = 31
"""characters of a model's name that the text holds"""


@dataclass(frozen=True, slots=True)
class OnTarget:
    """`cycles[i]` of layer i in one run, the average of `runs`; `hz` is the core's clock, 0 if it was not told."""

    runs: int
    hz: int
    cycles: tuple[int, ...]

    @property
    def total(self) -> int:
        """Cycles of all layers."""
        return sum(self.cycles)


@dataclass(frozen=True, slots=True)
class _Text:
    """One profile of the log; `whole`: its end is there, and the checksum is right."""

    name: str
    runs: int
    hz: int
    layers: tuple[tuple[int, int, int], ...]
    whole: bool


def read_on_target(log: str, metadata: Mapping[str, Any]) -> OnTarget:
    """The last profile of a model that `log` holds, `metadata` being the model's.

    Raises UsageError E5417 (the log has none, or none of a run), E5418 (lines are missing or damaged), E5419 (of a model of that
    name which was compiled from another file or in another way).
    """
    name = str(metadata["name"])
    found = list(_profiles(log.splitlines()))
    mine = [text for text in found if text.name == name[:_NAME]]
    if not mine:
        others = ", ".join(sorted({text.name for text in found}))
        held = f"there are profiles of {others}" if others else "no line begins a profile (aot-profile 1 ...)"
        raise UsageError(Problem("E5417", f"the log has no profile of {name}: {held}"))
    last = mine[-1]
    if not last.whole:
        raise UsageError(Problem("E5418", f"the profile of {name} is not as it was printed: lines are missing or damaged"))
    if last.runs == 0:
        raise UsageError(Problem("E5417", f"the profile of {name} is of no run: call aot_profile_run() before the model's"))
    _check_model(last, metadata)
    return OnTarget(last.runs, last.hz, tuple((cycles + last.runs // 2) // last.runs for cycles, _, _ in last.layers))


def _profiles(lines: Sequence[str]) -> Iterator[_Text]:
    """All profiles in the order of the log; one that another interrupts is not whole."""
    head: re.Match[str] | None = None
    rows: list[re.Match[str]] = []
    for line in lines:
        begun, row, end = (pattern.search(line) for pattern in (_HEAD, _LAYER, _END))
        if head is not None and (begun is not None or end is not None):
            yield _text(head, rows, end if begun is None else None)
            head = None
        if begun is not None:
            head, rows = begun, []
        elif row is not None:
            rows.append(row)
    if head is not None:
        yield _text(head, rows, None)


def _text(head: re.Match[str], rows: Sequence[re.Match[str]], end: re.Match[str] | None) -> _Text:
    layers = tuple((int(r[2]), int(r[3]), int(r[4])) for r in rows)
    complete = len(layers) == int(head[2]) and [int(r[1]) for r in rows] == list(range(len(rows)))
    whole = complete and end is not None and int(end[1]) == checksum([head[0], *(r[0] for r in rows)])
    return _Text(head[1], int(head[3]), int(head[4]), layers, whole)


def checksum(lines: Sequence[str]) -> int:
    """FNV-1a of 32 bits over the lines, each with one end of line."""
    value = 2166136261
    for byte in "".join(f"{line}\n" for line in lines).encode():
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return value


def _check_model(text: _Text, metadata: Mapping[str, Any]) -> None:
    """E5419 unless the layers are those of the model: as many, and each with results of the same size where it ran."""
    layers = metadata["layers"]
    if len(text.layers) != len(layers):
        raise UsageError(Problem("E5419", f"the profile has {len(text.layers)} layers, the model {len(layers)}"))
    for layer, (_, calls, size) in zip(layers, text.layers, strict=True):
        output = layer["output"]
        wanted = math.prod(output["shape"]) * np.dtype(output["dtype"]).itemsize
        if calls and size != wanted:
            where = f'layer {layer["index"]} {does_of(layer)} "{printable(str(layer["name"]))}"'
            raise UsageError(Problem("E5419", f"the profile's result has {size:,} bytes, the model's {wanted:,}", where))
