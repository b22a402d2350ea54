"""Intervals of integers, many at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from aot.ir.op import Array
from aot.ir.type import TensorType
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """Closed intervals [lo, hi], element by element; of a tensor: one for each index of its last axis."""

    lo: Int64
    hi: Int64

    @property
    def is_constant(self) -> npt.NDArray[np.bool_]:
        """Where there is one value only."""
        result: npt.NDArray[np.bool_] = self.lo == self.hi
        return result

    def __getitem__(self, index: slice) -> Interval:
        return Interval(self.lo[index], self.hi[index])


def channels(type_: TensorType) -> int:
    """Extent of the last axis; 1 for a scalar."""
    return type_.shape[-1] if type_.shape else 1


def full_range(type_: TensorType) -> Interval:
    """Every value of an integer type."""
    low, high = int_range(type_.dtype)
    count = channels(type_)
    return Interval(np.full(count, low, np.int64), np.full(count, high, np.int64))


def of_array(data: Array) -> Interval:
    """The smallest intervals that hold a constant's values, one for each index of the last axis."""
    rows = data.astype(np.int64).reshape(-1, data.shape[-1] if data.shape else 1)
    return Interval(rows.min(axis=0), rows.max(axis=0))


def hull(parts: Sequence[Interval]) -> Interval:
    """The smallest intervals that hold all of these, element by element."""
    return Interval(np.minimum.reduce([p.lo for p in parts]), np.maximum.reduce([p.hi for p in parts]))


def span_of(values: Array) -> Interval:
    """From the smallest to the largest along the first axis of [points, channels]."""
    wide = np.asarray(values).astype(np.int64)
    return Interval(wide.min(axis=0), wide.max(axis=0))
