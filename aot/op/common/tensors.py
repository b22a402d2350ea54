"""Shared by operators: clamps, movable types, indices, broadcasting, reduced axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

import numpy as np

from aot.ir.op import Array, TypeRuleError
from aot.ir.type import QuantParams, TensorType, Type
from aot.numerics.fixed_point import named, requantize, tir_multiply_by_quantized_multiplier
from aot.numerics.linear import Rescaling
from aot.support.dtype import is_float
from aot.te.tensor import TensorFn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, binop, cast, clamp, imm, select

# Checks shared by several converters, each ending in a coded refusal.


class Clamped:
    """Attributes (a frozen dataclass) of an operator that clamps its result to [lo, hi]."""

    __slots__ = ()

    lo: int
    hi: int

    def clipped(self, lo: int, hi: int) -> Self:
        """The same, followed by a clamp to [lo, hi]."""
        return replace(self, lo=min(max(self.lo, lo), hi), hi=max(min(self.hi, hi), lo))  # type: ignore[type-var]


class Rescaled(Clamped):
    """Attributes of an operator whose result is clamp(zero_point + x * multiplier * 2^(shift - 31)), rounded twice."""

    __slots__ = ()

    multiplier: int
    shift: int
    zero_point: int

    @property
    def rescaling(self) -> Rescaling:
        """The numbers alone."""
        return Rescaling(self.multiplier, self.shift, self.zero_point, self.lo, self.hi)

    def rescaled(self, x: Array) -> Array:
        """The results of integers x."""
        return requantize(x, self.multiplier, self.shift, zero_point=self.zero_point, lo=self.lo, hi=self.hi)

    def tir_rescaled(self, b: IRBuilder, x: Expr) -> Expr:
        """The same of an int32 expression, int32."""
        scaled = tir_multiply_by_quantized_multiplier(b, x, self.multiplier, self.shift)
        return clamp(scaled + self.zero_point, self.lo, self.hi)


# Shared by operators that move data: element types, constant operands, axes.

MOVABLE = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "float16", "float32")
"""Element types of operators that move data: bytes are copied, whatever they mean."""

INDEX_TYPES = ("int16", "int32", "int64")


def tensors_of(types: Sequence[Type], count: int | None = None) -> list[TensorType]:
    """The operands' types, which must be single tensors, `count` of them (None: any number)."""
    tensors = [t for t in types if isinstance(t, TensorType)]
    count = len(types) if count is None else count
    if len(tensors) != count or len(types) != count:
        raise TypeRuleError(f"{count} tensors are expected, not {', '.join(map(str, types))}")
    return tensors


def require(data: TensorType, name: str, *dtypes: str, least_rank: int = 0) -> None:
    """TypeRuleError unless the operand of operator `name` has one of these element types and enough dimensions."""
    if data.dtype not in dtypes or len(data.shape) < least_rank:
        choice = " or ".join(filter(None, (", ".join(dtypes[:-1]), dtypes[-1])))
        raise TypeRuleError(f"{name} needs {'an' if choice.startswith('int') else 'a'} {choice} tensor, not {data}")


def np_bounded(x: Array, lo: float | None, hi: float | None) -> Array:
    """Numbers clamped to the bounds (None: no bound); a NaN stays."""
    for bound, beyond in ((lo, np.less), (hi, np.greater)):
        if bound is not None:
            limit = np.asarray(bound, x.dtype)
            x = np.where(beyond(x, limit), limit, x)
    return x


def tir_bounded(b: IRBuilder, x: Expr, lo: float | None, hi: float | None) -> Expr:
    """The same of an expression."""
    for bound, beyond in ((lo, "<"), (hi, ">")):
        if bound is not None:
            x = named(b, "value", x)
            limit = imm(float(np.float32(bound)) if is_float(x.dtype) else int(bound), x.dtype)
            x = select(binop(beyond, x, limit), limit, x)
    return x


def broadcast_index(data: TensorFn, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The element of `data` for element `indices` of the result to which it is broadcast."""
    own = indices[len(indices) - len(data.shape) :]
    return tuple(imm(0) if extent == 1 else i for extent, i in zip(data.shape, own, strict=True))


def clamped_index(b: IRBuilder, value: Expr, extent: int) -> Expr:
    """An index that comes from data, clamped to [0, extent): whatever the data, no access leaves the tensor.

    The reference reports an error instead; firmware has nowhere to report it.
    """
    return b.let("index", cast("int32", clamp(value, 0, extent - 1)))


# Shared by broadcasting operators on two tensors.


def broadcast_shape(a: TensorType, b: TensorType) -> tuple[int, ...]:
    """The common shape of two tensors; TypeRuleError if there is none."""
    try:
        return tuple(map(int, np.broadcast_shapes(a.shape, b.shape)))
    except ValueError:
        raise TypeRuleError(f"shapes of {a} and {b} do not broadcast") from None


def broadcast_type(
    a: TensorType, b: TensorType, *, name: str, dtypes: Sequence[str], dtype: str = "", quant: QuantParams | None = None
) -> TensorType:
    """The type rule of two tensors of one of `dtypes` whose shapes broadcast; the result has that type too, or `dtype`."""
    if a.dtype != b.dtype or a.dtype not in dtypes:
        raise TypeRuleError(f"{name} needs two tensors of one type of {', '.join(dtypes)}, not {a} and {b}")
    return TensorType(broadcast_shape(a, b), dtype or a.dtype, quant)


def broadcast_at(b: IRBuilder, data: TensorFn, indices: tuple[Expr, ...]) -> Expr:
    """The element of `data` for element `indices` of the broadcast result."""
    return data.at(b, broadcast_index(data, indices))


# Shared by reductions: axes, shapes and indices.


def reduced_shape(shape: Sequence[int], axes: Sequence[int], *, keepdims: bool) -> tuple[int, ...]:
    """`shape` without the axes, or with extent 1 in their place."""
    if any(not 0 <= a < len(shape) for a in axes):
        raise TypeRuleError(f"axes {axes} of {list(shape)} are not valid")
    return tuple(1 if i in axes else n for i, n in enumerate(shape) if keepdims or i not in axes)


def reduced_index(outer: Sequence[Expr], inner: Sequence[Expr], *, axes: Sequence[int], keepdims: bool) -> tuple[Expr, ...]:
    """The element of the data for element `outer` of the result and positions `inner` along the (sorted) axes."""
    rank = len(outer) if keepdims else len(outer) + len(axes)
    kept, reduced = iter(outer), iter(inner)
    index = []
    for axis in range(rank):
        own = next(kept) if keepdims or axis not in axes else None
        position = next(reduced) if axis in axes else own
        assert position is not None
        index.append(position)
    return tuple(index)
