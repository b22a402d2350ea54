"""The windows that a model with `--slide` stands for: what the reference runs on where the model is given new rows only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from aot.ir.op import Array
from aot.report.measure.sets import Sets
from aot.support.dtype import numpy_dtype


def as_windows(sets: Sets, metadata: Mapping[str, Any]) -> Sets:
    """The sets with whole windows in place of rows: each is the one before, moved on; at the start it is zeros.

    The sets as they are where the model does not slide.
    """
    slides = {row["index"]: row for row in metadata.get("slide", {}).get("inputs", ())}
    if not slides:
        return sets
    by_input = zip(*sets.inputs, strict=True)
    moved = [
        _windows(rows, info, slides[info["index"]]) if info["index"] in slides else list(rows)
        for rows, info in zip(by_input, metadata["inputs"], strict=True)
    ]
    return replace(sets, inputs=tuple(zip(*moved, strict=True)))


def fill_count(metadata: Mapping[str, Any]) -> int:
    """After how many runs a window holds nothing of the zeros at the start; 0 where the model does not slide."""
    return max((-(-row["rows"] // row["hop"]) for row in metadata.get("slide", {}).get("inputs", ())), default=0)


def _windows(rows: tuple[Array, ...], info: Mapping[str, Any], slide: Mapping[str, Any]) -> list[Array]:
    axis, size = slide["axis"], slide["rows"]
    shape = (*info["shape"][:axis], size, *info["shape"][axis + 1 :])
    window = np.full(shape, info["zero_point"] or 0, numpy_dtype(info["dtype"]))
    windows = []
    for new in rows:
        joined = np.concatenate([window, new.reshape(info["shape"])], axis=axis)
        window = np.ascontiguousarray(np.take(joined, range(slide["hop"], slide["hop"] + size), axis=axis))
        windows.append(window)
    return windows
