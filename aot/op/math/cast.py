"""Operators that change the type of elements: cast, bitcast, and fake_quant, which only rounds."""

from __future__ import annotations

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError
from aot.ir.type import TensorType, Type
from aot.numerics.fixed_point import named
from aot.op.common.operator import Index, operator
from aot.op.common.tensors import MOVABLE
from aot.support.dtype import int_range, is_float, itemsize, numpy_dtype
from aot.te.tensor import TensorFn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, binop, cast, imm, select

# cast: CAST of TFLite between element types.
#
# Integers keep their low bits, a float is truncated towards zero and saturates (NaN gives the upper bound), non-zero is true.
# Conversions from and to float16 go through float32.
# Oracle: `kernels/cast.cc`.


CASTABLE = MOVABLE


@operator("cast", "CAST; all plain types and float16", [("data", "numbers", "the operand")], OpPattern.ELEMWISE)
class CastAttrs:
    """The result's type."""

    dtype: str

    def infer_type(self, data: TensorType) -> Type:
        """A tensor -> the same shape in another type."""
        if data.dtype not in CASTABLE or self.dtype not in CASTABLE:
            raise TypeRuleError(f"cast of {data} to {self.dtype} is not valid")
        return data.with_dtype(self.dtype)

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        if "float16" in (self.dtype, str(data.dtype)):
            data = data.astype(np.float32)
        if self.dtype == "float16":
            with np.errstate(all="ignore"):
                return data.astype(np.float16)
        dtype = numpy_dtype(self.dtype)
        if not is_float(str(data.dtype)) or is_float(self.dtype) or self.dtype == "bool":
            return data.astype(dtype)
        (low, high), (smallest, largest) = _float_limits(self.dtype), int_range(self.dtype)
        inside = (data > low - 1) & (data < high)
        whole = np.where(inside, np.trunc(data), 0).astype(np.float64)
        result = whole.astype(np.uint64 if low == 0 else np.int64).astype(dtype)
        result = np.where(data <= low, dtype.type(smallest), result)
        return np.where((data >= high) | np.isnan(data), dtype.type(largest), result).astype(dtype)

    def element(self, b: IRBuilder, i: Index, data: TensorFn, *, out_type: TensorType) -> Expr:
        value = data.at(b, i)
        if self.dtype == "float16":
            return cast("float16", cast("float32", value))
        value = cast("float32", value) if data.dtype == "float16" else value
        if is_float(self.dtype) or not is_float(value.dtype):
            return cast(self.dtype, value)
        if self.dtype == "bool":
            return binop("!=", value, imm(0.0, value.dtype))
        value = named(b, "value", value)
        (low, high), (smallest, largest) = _float_limits(self.dtype), int_range(self.dtype)
        inside = select(value < imm(high, value.dtype), cast(self.dtype, value), imm(largest, self.dtype))
        return select(value <= imm(low, value.dtype), imm(smallest, self.dtype), inside)


def _float_limits(dtype: str) -> tuple[float, float]:
    """(low, high): a float is in range after truncation if low <= x < high; both are powers of two."""
    low, high = int_range(dtype)
    return float(low), float(high + 1)


# bitcast: BITCAST of TFLite: the same bytes as elements of another type, at no cost at run time.
#
# If the sizes differ, the last dimension is split or joined: int16[3] is int8[3, 2].
# Oracle: `bitcast.cc`, which copies the bytes.


BITCASTABLE = tuple(d for d in MOVABLE if d != "bool")
BETWEEN = (*BITCASTABLE, "uint64")
"""Types that the graph's operator accepts; other operators are built with it."""


@operator("bitcast", "BITCAST; no instruction at run time", [("data", "any", "the operand")], is_view=True)
class BitcastAttrs:
    """Type and dimensions of the result."""

    shape: tuple[int, ...]
    dtype: str

    def infer_type(self, data: TensorType) -> Type:
        """A tensor -> as many bytes of another type."""
        if data.dtype not in BETWEEN or self.dtype not in BETWEEN:
            raise TypeRuleError(f"bitcast of {data} to {self.dtype} is not valid")
        if self.shape != bitcast_shape(data, self.dtype):
            raise TypeRuleError(f"bitcast of {data} to {self.dtype}{list(self.shape)} is not valid")
        return TensorType(self.shape, self.dtype)

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        return np.frombuffer(np.ascontiguousarray(data).tobytes(), numpy_dtype(self.dtype)).reshape(self.shape)


def bitcast_shape(data: TensorType, dtype: str) -> tuple[int, ...]:
    """The result's shape: larger elements absorb the last dimension, smaller ones add one.  TypeRuleError if they do not fit."""
    before, after = itemsize(data.dtype), itemsize(dtype)
    if before == after:
        return data.shape
    if before > after:
        return (*data.shape, before // after)
    if data.shape[-1:] != (after // before,):
        raise TypeRuleError(f"bitcast of {data} to {dtype} is not valid")
    return data.shape[:-1]


# fake_quant: FAKE_QUANT of TFLite: float32 to the nearest of 2^bits equally spaced numbers, one of them zero.
#
# out = round((clamp(x) - low) * (1 / scale)) * scale + low, halves up, in float32; NaN becomes the lowest number.
# Oracle: `reference_ops::FakeQuant`.
@operator("fake_quant", "FAKE_QUANT; float32", [("data", "float32", "numbers")], OpPattern.ELEMWISE)
class FakeQuantAttrs:
    """float32 numbers: the lowest and the highest result, and the spacing."""

    low: float
    high: float
    scale: float

    def infer_type(self, data: TensorType) -> Type:
        """float32 -> float32."""
        if data.dtype != "float32" or not self.low <= self.high or self.scale <= 0:
            raise TypeRuleError(f"fake_quant of {data} by {self} is not valid")
        return data

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        low, high, scale = (np.float32(v) for v in (self.low, self.high, self.scale))
        above = np.where(low < data, data, low)
        bounded = np.where(above < high, above, high)
        steps = (bounded - low) * (np.float32(1) / scale)
        return np.asarray(np.floor(steps.astype(np.float64) + 0.5).astype(np.float32) * scale + low, np.float32)

    def element(self, b: IRBuilder, i: Index, data: TensorFn, *, out_type: TensorType) -> Expr:
        low, high, scale = (imm(float(np.float32(v)), "float32") for v in (self.low, self.high, self.scale))
        inverse = imm(float(np.float32(1) / np.float32(self.scale)), "float32")
        x = b.let("x", data.at(b, i))
        above = b.let("above", select(low < x, x, low))
        steps = b.let("steps", (select(above < high, above, high) - low) * inverse)
        whole = b.let("whole", cast("int32", steps))
        nearest = whole + select(steps - cast("float32", whole) < imm(0.5, "float32"), imm(0), imm(1))
        return cast("float32", nearest) * scale + low
