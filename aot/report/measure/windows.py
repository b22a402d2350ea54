"""The windows that a model with `--slide` stands for: what the reference runs on where the model is given new rows only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def moves(metadata: Mapping[str, Any]) -> bool:
    """Whether a run is a push of new rows."""
    return "slide" in metadata or "chain" in metadata


def fill_count(metadata: Mapping[str, Any]) -> int:
    """After how many runs no window holds anything of the zeros at the start; 0 where the model does not slide."""
    if "chain" in metadata:
        return int(metadata["chain"]["pushes"])
    return max((-(-row["rows"] // row["hop"]) for row in metadata.get("slide", {}).get("inputs", ())), default=0)


def moved_windows(rows: Sequence[Array], shape: tuple[int, ...], *, axis: int, zero: int = 0) -> list[Array]:
    """A window of `shape` after each of the arrays of new rows; it begins as `zero`s."""
    window = np.full(shape, zero, rows[0].dtype)
    windows = []
    for new in rows:
        joined = np.concatenate([window, new], axis=axis)
        window = np.ascontiguousarray(np.take(joined, range(new.shape[axis], joined.shape[axis]), axis=axis))
        windows.append(window)
    return windows


def _windows(rows: tuple[Array, ...], info: Mapping[str, Any], slide: Mapping[str, Any]) -> list[Array]:
    axis = slide["axis"]
    shape = (*info["shape"][:axis], slide["rows"], *info["shape"][axis + 1 :])
    new = [r.reshape(info["shape"]).astype(numpy_dtype(info["dtype"]), copy=False) for r in rows]
    return moved_windows(new, shape, axis=axis, zero=info["zero_point"] or 0)
