"""qnn.lut16 and qnn.sigmoid16: functions of int16 values as TFLite computes them, by tables with interpolation.

qnn.lut16: 512 intervals of 128 codes, a table of 513 values: t[i] + ((t[i+1] - t[i]) * (x & 127) + 64 >> 7), i = 256 + (x >> 7).
Oracle: `LUTLookup` and `LUTPopulate` of `kernels/internal/common.h`.
qnn.sigmoid16: LOGISTIC and TANH by one table of the sigmoid over [0, 10.6], 256 values of 16 bits.
Oracle: `reference_integer_ops::Logistic` and `Tanh` with the parameters of `activations.cc`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import QuantParams, TensorType, Type
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm, minimum, select

STEPS = 512
Real = Callable[[Array], Array]


@dataclass(frozen=True, slots=True)
class Lut16Attrs:
    """513 values; the result's parameters."""

    table: tuple[int, ...]
    quant: QuantParams | None = None


@dataclass(frozen=True, slots=True)
class Sigmoid16Attrs:
    """(x * multiplier + half) >> shift is the argument in steps of 1/12288 (half as much for tanh); `function`
    logistic or tanh.
    """

    function: str
    multiplier: int
    shift: int
    quant: QuantParams | None = None


def _infer(types: Sequence[Type], attrs: Lut16Attrs | Sigmoid16Attrs) -> Type:
    """int16 -> int16 of the same shape."""
    (data,) = types
    if not isinstance(data, TensorType) or data.dtype != "int16":
        raise TypeRuleError(f"a table of int16 takes an int16 tensor, not {data}")
    if isinstance(attrs, Lut16Attrs) and len(attrs.table) != STEPS + 1:
        raise TypeRuleError("lut16 needs a table of 513 values")
    return data.with_dtype("int16", attrs.quant)


def look_up(x: Array, table: Array) -> Array:
    """LUTLookup on int64 arrays; the slope and the result wrap to int16 as the reference's variables do."""
    wide, t = x.astype(np.int64), np.asarray(table, np.int64)
    index = 256 + (wide >> 7)
    slope = (t[index + 1] - t[index]).astype(np.int16).astype(np.int64)
    return np.asarray((t[index] + ((slope * (wide & 127) + 64) >> 7)).astype(np.int16))


def tir_look_up(b: IRBuilder, x: Expr, table: TensorFn) -> Expr:
    """The same of an int32 expression within int16; an int32 expression within int16."""
    x = b.let("x", x)
    index = b.let("index", (x >> 7) + STEPS // 2)
    base = b.let("base", cast("int32", table.at(b, (index,))))
    slope = cast("int32", cast("int16", cast("int32", table.at(b, (index + 1,))) - base))
    return cast("int32", cast("int16", base + ((slope * (x & 127) + 64) >> 7)))


def evaluate_lut16(data: Array, *, attrs: Lut16Attrs, out_type: TensorType) -> Array:
    return look_up(data, np.asarray(attrs.table))


def te_lut16(ctx: TeContext, args: Sequence[TensorFn], attrs: Lut16Attrs, out_type: TensorType) -> TensorFn:
    table = ctx.constant("table", np.asarray(attrs.table, np.int16))

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        return cast("int16", tir_look_up(b, cast("int32", args[0].at(b, i)), table))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


def _round(x: Array) -> Array:
    """C's round(): halves away from zero, in the type of x."""
    wide = x.astype(np.float64)
    return np.asarray(np.sign(wide) * np.floor(np.abs(wide) + 0.5)).astype(x.dtype)


def populate(
    function: Real, data: tuple[float, int], out: tuple[float, int], kind: type[np.floating] = np.float32
) -> tuple[int, ...]:
    """LUTPopulateInt16: the table of a real function between (scale, zero point) of data and of result, computed in `kind`.

    Each value is corrected by half of the error that interpolation has in the middle of its interval.  ValueError where
    a value is not finite, for which the reference's conversion is undefined.
    """
    (scale_in, zp_in), (scale, zp) = data, out
    low, high = (kind(scale_in) * kind(limit - zp_in) for limit in (-32768, 32767))
    out_low, out_high = (kind(scale) * kind(limit - zp) for limit in (-32768, 32767))
    step = kind((high - low) / kind(STEPS))
    inverse = kind(kind(65536) / kind(out_high - out_low))
    grid = np.asarray(low + np.arange(STEPS + 1).astype(kind) * step, kind)
    value = np.asarray(function(grid), kind) * inverse
    middle = np.asarray(function(np.asarray(grid[:-1] + kind(step / kind(2)), kind)), kind) * inverse
    if not (np.isfinite(value).all() and np.isfinite(middle).all()):
        raise ValueError("the function leaves the range of its type")
    sample = _round(value[:-1])
    error = _round((value[1:] + sample) / kind(2)) - _round(middle)
    inner = np.clip(sample - _round(error / kind(2)), -32768, 32767)
    last = np.clip(_round(np.asarray(function(np.asarray([high], kind)), kind) * inverse), -32768, 32767)
    return tuple(int(v) for v in (*inner, *last))


# --- sigmoid and tanh


def sigmoid_table() -> Array:
    """sigmoid(i / 24) with 16 binary places, plus half of what interpolation is too small by in the middle of the interval."""

    def sigmoid(x: float) -> float:
        return 65536 / (1 + math.exp(-x / 24))

    values = [sigmoid(i) + (sigmoid(i + 0.5) - (sigmoid(i) + sigmoid(i + 1)) / 2) / 2 for i in range(255)]
    return np.array([*(round(v) for v in values), 65535], np.uint16)


def evaluate_sigmoid16(data: Array, *, attrs: Sigmoid16Attrs, out_type: TensorType) -> Array:
    half = 1 << (attrs.shift - 1) if attrs.shift else 0
    argument = (data.astype(np.int64) * attrs.multiplier + half) >> attrs.shift
    bits = 9 if attrs.function == "logistic" else 8
    size = np.abs(argument)
    index = np.minimum(size >> bits, 254)
    t = sigmoid_table().astype(np.int64)
    inside = (t[index] << bits) + (size & ((1 << bits) - 1)) * (t[index + 1] - t[index])
    value = np.where(size >> bits >= 255, 0x7FFF << 10 if bits == 9 else 0xFFFF << 8, inside)
    if attrs.function == "logistic":
        return (np.where(argument >= 0, value + 512, (1 << 25) - value + 511) >> 10).astype(np.int16)
    return (np.where(argument >= 0, value - (1 << 23) + 128, (1 << 23) - value + 127) >> 8).astype(np.int16)


def te_sigmoid16(ctx: TeContext, args: Sequence[TensorFn], attrs: Sigmoid16Attrs, out_type: TensorType) -> TensorFn:
    table = ctx.constant("sigmoid", sigmoid_table())

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        return tir_sigmoid16(b, cast("int32", args[0].at(b, i)), table, attrs)

    return tensor_fn(out_type.shape, out_type.dtype, rule)


def tir_sigmoid16(b: IRBuilder, x: Expr, table: TensorFn, attrs: Sigmoid16Attrs) -> Expr:
    """The function of an int32 expression within int16, int16; `table` is `sigmoid_table`."""
    half = 1 << (attrs.shift - 1) if attrs.shift else 0
    bits = 9 if attrs.function == "logistic" else 8
    largest = 0x7FFF << 10 if bits == 9 else 0xFFFF << 8
    argument = b.let("argument", (x * attrs.multiplier + half) >> attrs.shift)
    size = b.let("size", select(argument < 0, imm(0) - argument, argument))
    index = b.let("index", minimum(size >> bits, 254))
    left = b.let("left", cast("int32", table.at(b, (index,))))
    slope = cast("int32", table.at(b, (index + 1,))) - left
    inside = left * (1 << bits) + (size & ((1 << bits) - 1)) * slope
    value = b.let("value", select((size >> bits) >= 255, imm(largest), inside))
    if bits == 9:
        return cast("int16", select(argument >= 0, value + 512, imm((1 << 25) + 511) - value) >> 10)
    return cast("int16", select(argument >= 0, value - (1 << 23) + 128, imm((1 << 23) + 127) - value) >> 8)


register_op(
    "qnn.lut16",
    1,
    arguments=[("data", "int16", "the operand")],
    attrs_type=Lut16Attrs,
    pattern=OpPattern.ELEMWISE,
    infer_type=_infer,
    evaluate=evaluate_lut16,
    doc="EXP, LOG, RSQRT, GELU on int16",
)
register_op(
    "qnn.sigmoid16",
    1,
    arguments=[("data", "int16", "the operand")],
    attrs_type=Sigmoid16Attrs,
    pattern=OpPattern.ELEMWISE,
    infer_type=_infer,
    evaluate=evaluate_sigmoid16,
    doc="LOGISTIC, TANH on int16",
)
F_TE.set("qnn.lut16", te_lut16)
F_TE.set("qnn.sigmoid16", te_sigmoid16)
