"""Compact forms of float32 constants in flash: the float16 numbers or integers that the file stores.

The graph knows only the values.  If the file stores a constant in fewer bytes, `Constant.stored` is its type in the file.  The
value may since have been transposed, sliced or changed, so when a kernel asks, this module checks bit by bit whether that type
can still represent it.  A pass that loses the note thus costs flash, and a pass that wrongly keeps it costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from aot.ir.op import Array
from aot.ir.transform import PassContext, function_pass
from aot.ir.type import TensorType
from aot.relay.expr import Constant, Expr, Function, rewrite
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range


@dataclass(frozen=True, slots=True)
class Codes:
    """A float32 constant as `float32(data)` with float16 data, or as `scale * (data - zero)` with int8 data, computed in float32.

    The int8 data is within the range of `dtype`.  `scale` (float32) and `zero` (int32) have the data's rank, with one element or
    one per index of an axis.  `zero` is None if the integers minus their zero points are in range; `data` then holds these
    differences.
    """

    data: Array
    dtype: str
    scale: Array | None = None
    zero: Array | None = None


def codes_of(constant: Constant) -> Codes | None:
    """The compact form of a constant; None if it has none."""
    stored = constant.stored
    if stored is None or constant.type.dtype != "float32":
        return None
    if stored.quant is None:
        return encoded(constant.data, "float16", None) if stored.dtype == "float16" else None
    scale, zero = np.asarray(stored.quant.scale, np.float32), np.asarray(stored.quant.zero_point, np.int32)
    rank, axis = constant.data.ndim, stored.quant.axis
    if scale.size > 1 and (axis is None or axis >= rank or constant.data.shape[axis] != scale.size):
        return None
    along = [-1 if scale.size > 1 and a == axis else 1 for a in range(rank)]
    zero = zero - 128 if stored.dtype == "uint8" else zero
    return encoded(constant.data, stored.dtype, scale.reshape(along), zero.reshape(along))


def encoded(values: Array, dtype: str, scale: Array | None = None, zero: Array | int = 0) -> Codes | None:
    """float32 `values` as float16, or as integers with `scale` and `zero` (broadcast); None unless the form is exact.

    The integers are int4 if `dtype` is int4 and they fit, else int8.
    """
    if scale is None:
        with np.errstate(all="ignore"):
            half = values.astype(np.float16)
        return Codes(half, "float16") if _same(half.astype(np.float32), values) else None
    with np.errstate(all="ignore"):
        ratio = np.where(scale == 0, 0.0, values.astype(np.float64) / np.where(scale == 0, 1, scale))
    if not np.isfinite(ratio).all() or (np.abs(ratio) > 256).any():
        return None
    integers = np.rint(ratio).astype(np.int32)
    if not _same(scale * integers.astype(np.float32), values):
        return None
    for kind in ("int4", "int8") if dtype == "int4" else ("int8",):
        low, high = int_range(kind)
        for data, less in ((integers, None), (integers + zero, np.asarray(zero, np.int32))):
            if data.size == 0 or (low <= data.min() and data.max() <= high):
                return Codes(data.astype(np.int8), kind, scale, less)
    return None


@function_pass(required=True)
def widen_float16(func: Function, _context: PassContext) -> Function:
    """Store constants as float32 in flash even if the file has them as float16."""

    def rule(expr: Expr) -> Expr:
        if isinstance(expr, Constant) and expr.stored is not None and expr.stored.dtype == "float16":
            return replace(expr, stored=None)
        return expr

    return rewrite(func, rule)


def flattened(constant: Constant) -> Constant:
    """The same elements in one dimension."""
    flat = TensorType((constant.data.size,), constant.type.dtype, None)
    return inheriting(Constant(constant.data.reshape(-1), flat, constant.span), [constant])


def _same(a: Array, b: Array) -> bool:
    return np.ascontiguousarray(a, np.float32).tobytes() == np.ascontiguousarray(b, np.float32).tobytes()


def inheriting(value: Constant, sources: Sequence[Constant]) -> Constant:
    """A constant computed from `sources`, with the `stored` note of the first source whose form can represent it too."""
    if value.type.dtype != "float32" or value.stored is not None:
        return value
    for source in sources:
        for stored in _candidates(source.stored, value.type):
            noted = replace(value, stored=stored)
            if codes_of(noted) is not None:
                return noted
    return value


def _candidates(stored: TensorType | None, type_: TensorType) -> list[TensorType]:
    """The note `stored` for another shape; if it has several scales, once for each axis of that extent."""
    if stored is None:
        return []
    quant = stored.quant
    if quant is None or len(quant.scale) == 1:
        return [replace(stored, shape=type_.shape)]
    axes = [a for a, n in enumerate(type_.shape) if n == len(quant.scale)]
    return [replace(stored, shape=type_.shape, quant=replace(quant, axis=a)) for a in axes]
