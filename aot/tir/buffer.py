"""Buffers: typed memory of the loop-nest IR."""

from __future__ import annotations

from typing import Literal

from aot.support.dataclass import dataclass
from aot.support.dtype import Typed
from aot.tir.expr import Expr, IntoExpr, Load, as_expr

Scope = Literal["param", "const", "arena", "state", "local"]

UNKNOWN_EXTENT = -1
"""The only extent of a parameter of a merged function whose callers pass buffers of different sizes."""


@dataclass(frozen=True, slots=True, eq=False)
class Buffer(Typed):
    """Typed memory.

    `param`: a tensor passed in; `const`: a packed stream in flash; `arena`: planned scratch; `state`: memory that keeps its
    contents between calls; `local`: registers.

    Once loops are unrolled, a local buffer has constant indices and becomes C scalars, or a small C array if `indexed` is set.
    `align` is in bytes.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    scope: Scope = "param"
    align: int = 1
    indexed: bool = False

    @property
    def is_sized(self) -> bool:
        return self.shape != (UNKNOWN_EXTENT,)

    def __getitem__(self, indices: IntoExpr | tuple[IntoExpr, ...]) -> Load:
        return Load(self, as_indices(indices), self.dtype)

    def load(self, dtype: str, index: IntoExpr) -> Load:
        """A typed load; `index` counts elements of `dtype` from the start of the buffer."""
        return Load(self, (as_expr(index),), dtype)


def as_indices(indices: IntoExpr | tuple[IntoExpr, ...]) -> tuple[Expr, ...]:
    """One index or a tuple of them, as a tuple of expressions."""
    if not isinstance(indices, tuple):
        indices = (indices,)
    return tuple(as_expr(i) for i in indices)


def flat_index(buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
    """The row-major element index of `indices` (Horner's scheme); a single index is returned unchanged, a scalar has index 0."""
    if not indices:
        return as_expr(0)
    if len(indices) == 1:
        return indices[0]
    assert len(indices) == len(buffer.shape), f"{buffer.name}: {len(indices)} indices for {len(buffer.shape)} dimensions"
    flat = indices[0]
    for extent, index in zip(buffer.shape[1:], indices[1:], strict=True):
        flat = flat * extent + index
    return flat
