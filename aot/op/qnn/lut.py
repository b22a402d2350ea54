"""Element-wise operators on one quantised tensor: tables, interpolated int16 tables, PReLU, steps, arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import QuantParams, TensorType, Type
from aot.numerics.elementary import MATH, apply
from aot.numerics.fixed_point import clamp_array, multiply_by_quantized_multiplier, named, tir_multiply_by_quantized_multiplier
from aot.op.common.te_rule import F_TE, TeContext
from aot.op.common.tensors import Clamped, broadcast_at, broadcast_shape
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, binop, cast, clamp, imm, maximum, minimum, select

# qnn.lut: int8 to int8 through a table of 256 values.
#
# The table has the reference's result for each value, so the operator is exact for any function of one element.
# `activation.py` has the functions and their oracles.


@dataclass(frozen=True, slots=True)
class LutAttrs:
    """`table[q + 128]` is the result for value q; the result's parameters."""

    table: tuple[int, ...]
    quant: QuantParams | None = None

    @property
    def lo(self) -> int:
        """The smallest result."""
        return min(self.table)

    @property
    def hi(self) -> int:
        """The largest result."""
        return max(self.table)

    def clipped(self, lo: int, hi: int) -> LutAttrs:
        """The same, followed by a clamp to [lo, hi]."""
        return replace(self, table=tuple(min(max(v, lo), hi) for v in self.table))


def infer_lut(types: Sequence[Type], attrs: LutAttrs) -> Type:
    """int8 -> int8 of the same shape."""
    (data,) = types
    if not isinstance(data, TensorType) or data.dtype != "int8":
        raise TypeRuleError(f"lut needs an int8 tensor, not {data}")
    if len(attrs.table) != 256 or not -128 <= min(attrs.table) <= max(attrs.table) <= 127:
        raise TypeRuleError("lut needs a table of 256 int8 values")
    return data.with_dtype("int8", attrs.quant)


def evaluate_lut(data: Array, *, attrs: LutAttrs, out_type: TensorType) -> Array:
    table: Array = np.asarray(attrs.table, np.int8)
    return np.asarray(table[data.astype(np.int64) + 128])


def te_lut(ctx: TeContext, args: Sequence[TensorFn], attrs: LutAttrs, out_type: TensorType) -> TensorFn:
    # ordered by the quantised values' bits, so that a byte is the index
    table = ctx.constant("table", np.roll(np.asarray(attrs.table, np.int8), 128))

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        return table.at(b, (cast("int32", cast("uint8", args[0].at(b, i))),))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "qnn.lut",
    1,
    arguments=[("data", "int8", "indices into the table")],
    attrs_type=LutAttrs,
    pattern=OpPattern.ELEMWISE,
    infer_type=infer_lut,
    evaluate=evaluate_lut,
    doc="functions of one int8 or uint8 value: LOGISTIC, TANH, RELU ..., ELU, GELU, HARD_SWISH, LEAKY_RELU, ABS, EXP, LOG, RSQRT",
)
F_TE.set("qnn.lut", te_lut)


# qnn.lut_float: int8 to float32 through a table of 256 values: functions of a DEQUANTIZE whose result stays a float.


@dataclass(frozen=True, slots=True)
class LutFloatAttrs:
    """`table[q + 128]` is the result for value q."""

    table: tuple[float, ...]


def infer_lut_float(types: Sequence[Type], attrs: LutFloatAttrs) -> Type:
    """int8 -> float32 of the same shape."""
    (data,) = types
    if not isinstance(data, TensorType) or data.dtype != "int8":
        raise TypeRuleError(f"lut_float needs an int8 tensor, not {data}")
    if len(attrs.table) != 256:
        raise TypeRuleError("lut_float needs a table of 256 numbers")
    return data.with_dtype("float32")


def evaluate_lut_float(data: Array, *, attrs: LutFloatAttrs, out_type: TensorType) -> Array:
    return np.asarray(np.asarray(attrs.table, np.float32)[data.astype(np.int64) + 128])


def te_lut_float(ctx: TeContext, args: Sequence[TensorFn], attrs: LutFloatAttrs, out_type: TensorType) -> TensorFn:
    # ordered by the quantised values' bits, so that a byte is the index
    table = ctx.constant("table", np.roll(np.asarray(attrs.table, np.float32), 128))

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        return table.at(b, (cast("int32", cast("uint8", args[0].at(b, i))),))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "qnn.lut_float",
    1,
    arguments=[("data", "int8", "indices into the table")],
    attrs_type=LutFloatAttrs,
    pattern=OpPattern.ELEMWISE,
    infer_type=infer_lut_float,
    evaluate=evaluate_lut_float,
    doc="functions of one int8 value whose result is float32: DEQUANTIZE with LOGISTIC, EXP, TANH ... behind it",
)
F_TE.set("qnn.lut_float", te_lut_float)


# qnn.lut16 and qnn.sigmoid16: functions of int16 values as TFLite computes them, by tables with interpolation.
#
# qnn.lut16: 512 intervals of 128 values, a table of 513 values: t[i] + ((t[i+1] - t[i]) * (x & 127) + 64 >> 7), i = 256 + (x >>
# 7).  Oracle: `LUTLookup` and `LUTPopulate` of `kernels/internal/common.h`.  qnn.sigmoid16: LOGISTIC and TANH by one table of the
# sigmoid over [0, 10.6], 256 values of 16 bits.  Oracle: `reference_integer_ops::Logistic` and `Tanh` with the parameters of
# `activations.cc`.


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
        raise TypeRuleError(f"a table of int16 needs an int16 tensor, not {data}")
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
    """The same for an int32 expression within int16; the result is an int32 expression within int16."""
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

    Each value is corrected by half of the interpolation error in the middle of its interval.  ValueError if a value is not
    finite, for which the reference's conversion is undefined."""
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
    """sigmoid(i / 24) with 16 binary places, plus half of the interpolation error in the middle of the interval."""

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


# qnn.sqrt16: SQRT of int16, in floats: sqrt(scale_in * x) / scale, each step in float32, truncated to an integer.
#
# A table of 513 values, as for other functions of int16, would not give the reference's bits: `SqrtEvalQuantized` of
# `elementwise.cc` computes every root separately.  A root beyond an int32 becomes the lowest number (`aot.numerics.indefinite`).
# Negative numbers, which the reference reports as errors, count as 0.


TOO_LARGE = 2.0**31


@dataclass(frozen=True, slots=True)
class Sqrt16Attrs:
    """The scales of data and result, both float32; the result's parameters."""

    scale_in: float
    scale: float
    quant: QuantParams | None = None


def infer_sqrt16(types: Sequence[Type], attrs: Sqrt16Attrs) -> Type:
    """int16 -> int16 of the same shape."""
    (data,) = types
    if not isinstance(data, TensorType) or data.dtype != "int16":
        raise TypeRuleError(f"sqrt16 needs an int16 tensor, not {data}")
    return data.with_dtype("int16", attrs.quant)


def quantized_sqrt(x: Array, scale_in: float, scale: float) -> Array:
    """int64: the roots of integers x, negative ones as 0, in units of `scale`, as x86 casts them to int32."""
    with np.errstate(over="ignore"):
        root = apply("sqrt", np.float32(scale_in) * np.maximum(x, 0).astype(np.float32)) / np.float32(scale)
    result: Array = np.where(root < TOO_LARGE, np.minimum(root, np.float32(TOO_LARGE / 2)), -TOO_LARGE).astype(np.int64)
    return result


def evaluate_sqrt16(data: Array, *, attrs: Sqrt16Attrs, out_type: TensorType) -> Array:
    return np.clip(quantized_sqrt(data, attrs.scale_in, attrs.scale), -32768, 32767).astype(np.int16)


def te_sqrt16(_ctx: TeContext, args: Sequence[TensorFn], attrs: Sqrt16Attrs, out_type: TensorType) -> TensorFn:
    def rule(b: IRBuilder, *i: Expr) -> Expr:
        x = cast("float32", maximum(cast("int32", args[0].at(b, i)), 0))
        root = b.let("root", MATH["sqrt"](x * imm(attrs.scale_in, "float32")) / imm(attrs.scale, "float32"))
        largest = imm(32767.0, "float32")
        inside = cast("int32", select(root < largest, root, largest))
        return cast("int16", select(root < imm(TOO_LARGE, "float32"), inside, imm(-32768)))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "qnn.sqrt16",
    1,
    arguments=[("data", "int16", "the operand")],
    attrs_type=Sqrt16Attrs,
    pattern=OpPattern.ELEMWISE,
    infer_type=infer_sqrt16,
    evaluate=evaluate_sqrt16,
    doc="SQRT on int16",
)
F_TE.set("qnn.sqrt16", te_sqrt16)


# qnn.prelu: PRELU of TFLite on quantised values, and LEAKY_RELU on int16 values (8-bit ones go through a table).
#
# x = q - zp_in; out = clamp(zp + (x >= 0 ? rescale(x) : rescale'(x * (alpha - zp_alpha)))), double rounding.
# LEAKY_RELU has alpha = 1 and its slope in the second multiplier.  Oracles: `reference_ops::BroadcastPrelu4DSlow`,
# `QuantizeLeakyRelu`.


@dataclass(frozen=True, slots=True)
class PreluAttrs(Clamped):
    """Zero points of data, alpha and result; (multiplier, shift) for x >= 0 and for x < 0; the clamp [lo, hi]."""

    input_zp: int
    alpha_zp: int
    zero_point: int
    positive: tuple[int, int]
    negative: tuple[int, int]
    lo: int
    hi: int
    quant: QuantParams | None = None


def infer_prelu(types: Sequence[Type], attrs: PreluAttrs) -> Type:
    """data int8 or int16, alpha int8 that broadcasts to its shape -> the type of data."""
    data, alpha = types
    if not isinstance(data, TensorType) or not isinstance(alpha, TensorType) or alpha.dtype != "int8":
        raise TypeRuleError(f"prelu needs quantised values and an int8 alpha, not {data} and {alpha}")
    if data.dtype not in ("int8", "int16") or broadcast_shape(data, alpha) != data.shape:
        raise TypeRuleError(f"prelu of {data} with alpha {alpha} is not valid")
    return data.with_dtype(data.dtype, attrs.quant)


def evaluate_prelu(data: Array, alpha: Array, *, attrs: PreluAttrs, out_type: TensorType) -> Array:
    x, slope = data.astype(np.int64) - attrs.input_zp, alpha.astype(np.int64) - attrs.alpha_zp
    above = multiply_by_quantized_multiplier(x, *attrs.positive)
    below = multiply_by_quantized_multiplier(x * slope, *attrs.negative)
    return clamp_array(np.where(x >= 0, above, below) + attrs.zero_point, attrs.lo, attrs.hi, out_type.dtype)


def te_prelu(_ctx: TeContext, args: Sequence[TensorFn], attrs: PreluAttrs, out_type: TensorType) -> TensorFn:
    def rule(b: IRBuilder, *i: Expr) -> Expr:
        x = named(b, "x", cast("int32", args[0].at(b, i)) - attrs.input_zp)
        slope = cast("int32", broadcast_at(b, args[1], i)) - attrs.alpha_zp
        product = named(b, "product", select(x >= 0, imm(0), x * slope))
        above = tir_multiply_by_quantized_multiplier(b, named(b, "above", select(x >= 0, x, imm(0))), *attrs.positive)
        below = tir_multiply_by_quantized_multiplier(b, product, *attrs.negative)
        return cast(out_type.dtype, clamp(above + below + attrs.zero_point, attrs.lo, attrs.hi))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "qnn.prelu",
    2,
    arguments=[("data", "int8, int16", "the operand"), ("alpha", "as data", "the slopes below zero; shapes broadcast")],
    attrs_type=PreluAttrs,
    pattern=OpPattern.BROADCAST,
    infer_type=infer_prelu,
    evaluate=evaluate_prelu,
    doc="PRELU on int8, int16, uint8; LEAKY_RELU on int16",
)
F_TE.set("qnn.prelu", te_prelu)


# qnn.steps: float32 to int8 by comparisons: the result of a chain of functions that ends in QUANTIZE.
#
# `relay/transform/fold_to_steps.py` finds the steps, so that the result equals the chain's for every float.


Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class StepsAttrs:
    """codes[i + 1] from starts[i] on, which ascend; codes[0] before; `nan` for NaN; the result's parameters."""

    starts: tuple[float, ...]
    codes: tuple[int, ...]
    nan: int
    quant: QuantParams | None = None


@dataclass(frozen=True, slots=True)
class Cells:
    """Equal parts of the range between first and last step; before[c] steps precede cell c, at most 2^levels - 1 are inside."""

    origin: np.float32
    factor: np.float32
    before: npt.NDArray[np.int16]
    levels: int


def infer_steps(types: Sequence[Type], attrs: StepsAttrs) -> Type:
    """float32 -> int8 of the same shape."""
    (data,) = types
    if not isinstance(data, TensorType) or data.dtype != "float32":
        raise TypeRuleError(f"steps needs a float32 tensor, not {data}")
    if len(attrs.codes) != len(attrs.starts) + 1 or list(attrs.starts) != sorted(set(attrs.starts)):
        raise TypeRuleError("steps needs ascending floats, and one more value than these")
    if not -128 <= min(attrs.nan, *attrs.codes) <= max(attrs.nan, *attrs.codes) <= 127:
        raise TypeRuleError("steps needs int8 values")
    return data.with_dtype("int8", attrs.quant)


def evaluate_steps(data: Array, *, attrs: StepsAttrs, out_type: TensorType) -> Array:
    starts = np.asarray(attrs.starts, np.float32)
    codes = np.asarray(attrs.codes, np.int8)[np.searchsorted(starts, data, side="right") * ~np.isnan(data)]
    return np.asarray(np.where(np.isnan(data), np.int8(attrs.nan), codes))


def cell_of(x: Floats, origin: np.float32, factor: np.float32) -> npt.NDArray[np.int64]:
    """In float32 steps, as the generated code computes it; monotonic in x."""
    return np.asarray(((x - origin) * factor).astype(np.int64))


def cells_of(starts: Floats) -> Cells:
    """The fewest comparisons that some number of cells allows; doubling the cells must save more than half a comparison."""
    options = []
    origin, last = starts[0], starts[-1]
    for count in (64, 128, 256, 512, 1024):
        with np.errstate(all="ignore"):
            factor = np.float32(count) / (last - origin)
        if not 0 < factor < np.inf:
            return Cells(np.float32(0), np.float32(0), np.zeros(1, np.int16), len(starts).bit_length())
        per_cell = np.bincount(cell_of(starts, origin, factor))
        before = np.concatenate(([0], np.cumsum(per_cell)[:-1])).astype(np.int16)
        levels = int(per_cell.max()).bit_length()
        options.append((levels + (count > 256) / 2 + (count > 512), count, Cells(origin, factor, before, levels)))
    return min(options, key=lambda f: f[:2])[2]


def te_steps(ctx: TeContext, args: Sequence[TensorFn], attrs: StepsAttrs, out_type: TensorType) -> TensorFn:
    if not attrs.starts:
        return tensor_fn(out_type.shape, "int8", lambda b, *i: _or_nan(b.let("x", args[0].at(b, i)), attrs, imm(attrs.codes[0])))
    cells = cells_of(np.asarray(attrs.starts, np.float32))
    spare = (1 << cells.levels) - 1
    starts = ctx.constant("starts", np.asarray([*attrs.starts, *[attrs.starts[-1]] * spare], np.float32))
    codes = ctx.constant("codes", np.asarray([*attrs.codes, *[attrs.codes[-1]] * spare], np.int8))
    before = ctx.constant("before", cells.before)
    origin, last, factor = (imm(float(v), "float32") for v in (cells.origin, np.float32(attrs.starts[-1]), cells.factor))

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        x = b.let("x", args[0].at(b, i))
        above = b.let("above", select(x > origin, x, origin))
        inside = b.let("inside", select(above < last, above, last))
        cell = b.let("cell", cast("int32", (inside - origin) * factor))
        step: Expr = b.let("step", cast("int32", before.at(b, (cell,))))
        for level in reversed(range(cells.levels)):
            far = binop(">=", x, starts.at(b, (step + ((1 << level) - 1),)))
            step = b.let("step", step + select(far, imm(1 << level), imm(0)))
        return _or_nan(x, attrs, codes.at(b, (step,)))

    return tensor_fn(out_type.shape, "int8", rule)


def _or_nan(x: Expr, attrs: StepsAttrs, code: Expr) -> Expr:
    """The value, or the one for NaN if it is not the first one."""
    if attrs.nan == attrs.codes[0]:
        return cast("int8", code)
    return cast("int8", select(binop("==", x, x), cast("int32", code), imm(attrs.nan)))


register_op(
    "qnn.steps",
    1,
    arguments=[("data", "float32", "the operand")],
    attrs_type=StepsAttrs,
    pattern=OpPattern.ELEMWISE,
    infer_type=infer_steps,
    evaluate=evaluate_steps,
    doc="functions of one float32 value that end in QUANTIZE, such as MISH: EXP, LOG, TANH, LOGISTIC between two tensors",
)
F_TE.set("qnn.steps", te_steps)
