"""Several models that run one after another as one: the record of a chain, and its serialised form.

A serialised chain can be used wherever a model file can.  It is a mark, the length of a JSON header, the header, and the stages'
files.  It does not depend on the location of the files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from aot.support.dataclass import dataclass
from aot.support.untrusted import is_text, parse_json

MARK = b"aot-chain/1\n"
"""The first bytes of a chain; a .tflite has its own mark at byte 4."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Stage:
    """A model of a chain.

    `slide`: its input is a window along `axis` that advances by this many rows per run (None: each run gets a whole new input).
    `output`: the name of the result that goes to the next stage (None: its only result).
    """

    name: str
    model: bytes
    slide: int | None = None
    axis: int = 1
    output: str | None = None


@dataclass(frozen=True, slots=True)
class Chain:
    """Stages in order; `rate`: elements of the first input per second, along its stage's axis (None: unknown)."""

    stages: tuple[Stage, ...]
    rate: float | None = None


def pack(chain: Chain) -> bytes:
    """The serialised chain."""
    rows = [{"name": s.name, "size": len(s.model), "slide": s.slide, "axis": s.axis, "output": s.output} for s in chain.stages]
    head = json.dumps({"rate": chain.rate, "stages": rows}, sort_keys=True).encode()
    return b"".join([MARK, b"%d\n" % len(head), head, *(s.model for s in chain.stages)])


def unpack(data: bytes) -> Chain | None:
    """The chain in these bytes, as `pack` wrote it; None for a model, or for anything that `pack` would not write.

    The bytes are untrusted.
    """
    if not data.startswith(MARK):
        return None
    length, _, body = data[len(MARK) :].partition(b"\n")
    if not re.fullmatch(rb"[0-9]{1,9}", length):
        return None
    try:
        return _chain(parse_json(body[: int(length)]), body[int(length) :])
    except (ValueError, KeyError, TypeError):
        return None


def _chain(head: Mapping[str, Any], rest: bytes) -> Chain:
    stages, at, rate = [], 0, head["rate"]
    for row in head["stages"]:
        name, size, slide, axis, output = (row[key] for key in ("name", "size", "slide", "axis", "output"))
        whole = all(type(n) is int for n in (size, axis, slide or 0))
        named = isinstance(name, str) and _NAME.fullmatch(name) and (output is None or is_text(output))
        if not (whole and named and size >= 0 and (slide is None or slide >= 1)):
            raise ValueError("an invalid stage")
        stages.append(Stage(name, rest[at : at + size], slide, axis, output))
        at += size
    if not stages or at != len(rest):
        raise ValueError("invalid stages")
    if rate is not None and not (type(rate) in (int, float) and 0 < rate < 1e12):
        raise ValueError("an invalid rate")
    return Chain(tuple(stages), rate)
