"""The axes of a sequence: time, batch, and what there is at each step."""

from __future__ import annotations

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Sequences:
    """Data of shape [T, B, I] (`time_major`) or [B, T, I]."""

    shape: tuple[int, ...]
    time_major: bool

    @property
    def steps(self) -> int:
        return self.shape[0 if self.time_major else 1]

    @property
    def batch(self) -> int:
        return self.shape[1 if self.time_major else 0]

    @property
    def depth(self) -> int:
        return self.shape[2]

    def by_time(self, data: Array) -> Array:
        """[T, B, I]."""
        return data if self.time_major else np.swapaxes(data, 0, 1)

    def from_time(self, data: Array) -> Array:
        """The other way."""
        return np.ascontiguousarray(data if self.time_major else np.swapaxes(data, 0, 1))
