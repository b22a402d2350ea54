"""Several models that run one after the other as one: the record of a chain, and its form as bytes.

As bytes a chain goes wherever a model's file goes: a mark, the length of a JSON header, the header, and the stages' files one
after the other.  Nothing in it depends on where the files were.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from aot.support.dataclass import dataclass
from aot.support.untrusted import parse_json

MARK = b"aot-chain/1\n"
"""Begins a chain; a .tflite has its own mark from byte 4 on."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A model of a chain.

    `slide`: its input is a window along `axis` that moves by so many rows a run (None: each run gets a whole new input).
    `output`: the name of the result that goes on to the next stage (None: the only one).
    """

    name: str
    model: bytes
    slide: int | None = None
    axis: int = 1
    output: str | None = None


@dataclass(frozen=True, slots=True)
class Chain:
    """Stages in their order; `rate`: elements of the first input a second, along the axis of its stage (None: not known)."""

    stages: tuple[Stage, ...]
    rate: float | None = None


def pack(chain: Chain) -> bytes:
    """The chain as bytes."""
    rows = [{"name": s.name, "size": len(s.model), "slide": s.slide, "axis": s.axis, "output": s.output} for s in chain.stages]
    head = json.dumps({"rate": chain.rate, "stages": rows}, sort_keys=True).encode()
    return b"".join([MARK, b"%d\n" % len(head), head, *(s.model for s in chain.stages)])


def unpack(data: bytes) -> Chain | None:
    """The chain in these bytes, which `pack` made; None for a model or anything else."""
    if not data.startswith(MARK):
        return None
    length, _, rest = data[len(MARK) :].partition(b"\n")
    try:
        head, rest = parse_json(rest[: int(length)]), rest[int(length) :]
        return _chain(head, rest)
    except (ValueError, KeyError, TypeError):
        return None


def _chain(head: Mapping[str, Any], rest: bytes) -> Chain:
    stages, at = [], 0
    for row in head["stages"]:
        size = int(row["size"])
        stages.append(Stage(row["name"], rest[at : at + size], row["slide"], row["axis"], row["output"]))
        at += size
    return Chain(tuple(stages), head["rate"])


def with_models(chain: Chain, models: Mapping[str, bytes]) -> Chain:
    """The chain with other files in some stages, by their names."""
    return replace(chain, stages=tuple(replace(s, model=models.get(s.name, s.model)) for s in chain.stages))
