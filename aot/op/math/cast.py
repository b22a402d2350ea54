"""Operators that change the type of elements: cast, bitcast, and fake_quant, which only rounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.numerics.fixed_point import named
from aot.op.common.te_rule import F_TE, TeContext
from aot.op.common.tensors import MOVABLE, tensors_of
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range, is_float, itemsize, numpy_dtype
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, binop, cast, imm, select

# cast: CAST of TFLite between element types.
#
# Integers keep their low bits, a float is truncated towards zero and saturates (NaN gives the upper bound), non-zero is true.
# Conversions from and to float16 go through float32.
# Oracle: `kernels/cast.cc`.


CASTABLE = MOVABLE


@dataclass(frozen=True, slots=True)
class CastAttrs:
    """The result's type."""

    dtype: str


def infer_cast(types: Sequence[Type], attrs: CastAttrs) -> Type:
    """A tensor -> the same shape in another type."""
    (data,) = tensors_of(types, 1)
    if data.dtype not in CASTABLE or attrs.dtype not in CASTABLE:
        raise TypeRuleError(f"cast of {data} to {attrs.dtype} is not valid")
    return data.with_dtype(attrs.dtype)


def _float_limits(dtype: str) -> tuple[float, float]:
    """(low, high): a float is in range after truncation if low <= x < high; both are powers of two."""
    low, high = int_range(dtype)
    return float(low), float(high + 1)


def evaluate_cast(data: Array, *, attrs: CastAttrs, out_type: TensorType) -> Array:
    if "float16" in (attrs.dtype, str(data.dtype)):
        data = data.astype(np.float32)
    if attrs.dtype == "float16":
        with np.errstate(all="ignore"):
            return data.astype(np.float16)
    dtype = numpy_dtype(attrs.dtype)
    if not is_float(str(data.dtype)) or is_float(attrs.dtype) or attrs.dtype == "bool":
        return data.astype(dtype)
    (low, high), (smallest, largest) = _float_limits(attrs.dtype), int_range(attrs.dtype)
    inside = (data > low - 1) & (data < high)
    whole = np.where(inside, np.trunc(data), 0).astype(np.float64)
    result = whole.astype(np.uint64 if low == 0 else np.int64).astype(dtype)
    result = np.where(data <= low, dtype.type(smallest), result)
    return np.where((data >= high) | np.isnan(data), dtype.type(largest), result).astype(dtype)


def te_cast(_ctx: TeContext, args: Sequence[TensorFn], attrs: CastAttrs, out_type: TensorType) -> TensorFn:
    (data,) = args

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        value = data.at(b, i)
        if attrs.dtype == "float16":
            return cast("float16", cast("float32", value))
        value = cast("float32", value) if data.dtype == "float16" else value
        if is_float(attrs.dtype) or not is_float(value.dtype):
            return cast(attrs.dtype, value)
        if attrs.dtype == "bool":
            return binop("!=", value, imm(0.0, value.dtype))
        value = named(b, "value", value)
        (low, high), (smallest, largest) = _float_limits(attrs.dtype), int_range(attrs.dtype)
        inside = select(value < imm(high, value.dtype), cast(attrs.dtype, value), imm(largest, attrs.dtype))
        return select(value <= imm(low, value.dtype), imm(smallest, attrs.dtype), inside)

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "cast",
    1,
    arguments=[("data", "numbers", "the operand")],
    attrs_type=CastAttrs,
    pattern=OpPattern.ELEMWISE,
    infer_type=infer_cast,
    evaluate=evaluate_cast,
    doc="CAST; all plain types and float16",
)
F_TE.set("cast", te_cast)


# bitcast: BITCAST of TFLite: the same bytes as elements of another type, at no cost at run time.
#
# If the sizes differ, the last dimension is split or joined: int16[3] is int8[3, 2].
# Oracle: `bitcast.cc`, which copies the bytes.


BITCASTABLE = tuple(d for d in MOVABLE if d != "bool")
BETWEEN = (*BITCASTABLE, "uint64")
"""Types that the graph's operator accepts; other operators are built with it."""


@dataclass(frozen=True, slots=True)
class BitcastAttrs:
    """Type and dimensions of the result."""

    shape: tuple[int, ...]
    dtype: str


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


def infer_bitcast(types: Sequence[Type], attrs: BitcastAttrs) -> Type:
    """A tensor -> as many bytes of another type."""
    (data,) = types
    if not isinstance(data, TensorType) or data.dtype not in BETWEEN or attrs.dtype not in BETWEEN:
        raise TypeRuleError(f"bitcast of {data} to {attrs.dtype} is not valid")
    if attrs.shape != bitcast_shape(data, attrs.dtype):
        raise TypeRuleError(f"bitcast of {data} to {attrs.dtype}{list(attrs.shape)} is not valid")
    return TensorType(attrs.shape, attrs.dtype)


def evaluate_bitcast(data: Array, *, attrs: BitcastAttrs, out_type: TensorType) -> Array:
    return np.frombuffer(np.ascontiguousarray(data).tobytes(), numpy_dtype(attrs.dtype)).reshape(attrs.shape)


register_op(
    "bitcast",
    1,
    arguments=[("data", "any", "the operand")],
    attrs_type=BitcastAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_bitcast,
    evaluate=evaluate_bitcast,
    doc="BITCAST; no instruction at run time",
    is_view=True,
)


# fake_quant: FAKE_QUANT of TFLite: float32 to the nearest of 2^bits equally spaced numbers, one of them zero.
#
# out = round((clamp(x) - low) * (1 / scale)) * scale + low, halves up, in float32; NaN becomes the lowest number.
# Oracle: `reference_ops::FakeQuant`.


@dataclass(frozen=True, slots=True)
class FakeQuantAttrs:
    """float32 numbers: the lowest and the highest result, and the spacing."""

    low: float
    high: float
    scale: float


def infer_fake_quant(types: Sequence[Type], attrs: FakeQuantAttrs) -> Type:
    """float32 -> float32."""
    (data,) = tensors_of(types, 1)
    if data.dtype != "float32" or not attrs.low <= attrs.high or attrs.scale <= 0:
        raise TypeRuleError(f"fake_quant of {data} by {attrs} is not valid")
    return data


def evaluate_fake_quant(data: Array, *, attrs: FakeQuantAttrs, out_type: TensorType) -> Array:
    low, high, scale = (np.float32(v) for v in (attrs.low, attrs.high, attrs.scale))
    above = np.where(low < data, data, low)
    bounded = np.where(above < high, above, high)
    steps = (bounded - low) * (np.float32(1) / scale)
    return np.asarray(np.floor(steps.astype(np.float64) + 0.5).astype(np.float32) * scale + low, np.float32)


def te_fake_quant(_ctx: TeContext, args: Sequence[TensorFn], attrs: FakeQuantAttrs, out_type: TensorType) -> TensorFn:
    (data,) = args

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        low, high, scale = (imm(float(np.float32(v)), "float32") for v in (attrs.low, attrs.high, attrs.scale))
        inverse = imm(float(np.float32(1) / np.float32(attrs.scale)), "float32")
        x = b.let("x", data.at(b, i))
        above = b.let("above", select(low < x, x, low))
        steps = b.let("steps", (select(above < high, above, high) - low) * inverse)
        whole = b.let("whole", cast("int32", steps))
        nearest = whole + select(steps - cast("float32", whole) < imm(0.5, "float32"), imm(0), imm(1))
        return cast("float32", nearest) * scale + low

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "fake_quant",
    1,
    arguments=[("data", "float32", "numbers")],
    attrs_type=FakeQuantAttrs,
    pattern=OpPattern.ELEMWISE,
    infer_type=infer_fake_quant,
    evaluate=evaluate_fake_quant,
    doc="FAKE_QUANT; float32",
)
F_TE.set("fake_quant", te_fake_quant)
