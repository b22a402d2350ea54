"""Element-wise operators on one quantised tensor: tables, interpolated int16 tables, PReLU, steps, arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from aot.ir.op import Array, OpPattern, TypeRuleError
from aot.ir.type import QuantParams, TensorType, Type
from aot.numerics.elementary import MATH, apply
from aot.numerics.fixed_point import clamp_array, multiply_by_quantized_multiplier, named, tir_multiply_by_quantized_multiplier
from aot.op.common.operator import Index, operator
from aot.op.common.te_rule import TeContext
from aot.op.common.tensors import Clamped, broadcast_at, broadcast_shape, require
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, binop, cast, clamp, imm, maximum, minimum, select


# qnn.lut: int8 to int8 through a table of 256 values.
#
# The table has the reference's result for each value, so the operator is exact for any function of one element.
# `aot/frontend/tflite/unary.py` has the functions and their oracles.
@operator(
    "qnn.lut",
    "functions of one int8 or uint8 value: LOGISTIC, TANH, RELU ..., ELU, GELU, HARD_SWISH, LEAKY_RELU, ABS, EXP, LOG, RSQRT",
    [("data", "int8", "indices into the table")],
    OpPattern.ELEMWISE,
)
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

    def infer_type(self, data: TensorType) -> Type:
        """int8 -> int8 of the same shape."""
        require(data, "lut", "int8")
        if len(self.table) != 256 or not -128 <= min(self.table) <= max(self.table) <= 127:
            raise TypeRuleError("lut needs a table of 256 int8 values")
        return data.with_dtype("int8", self.quant)

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        table: Array = np.asarray(self.table, np.int8)
        return np.asarray(table[data.astype(np.int64) + 128])

    def te_rule(self, ctx: TeContext, args: Sequence[TensorFn], out_type: TensorType) -> TensorFn:
        return _from_table(ctx, args[0], np.asarray(self.table, np.int8))


# qnn.lut_float: int8 to float32 through a table of 256 values: functions of a DEQUANTIZE whose result stays a float.
@operator(
    "qnn.lut_float",
    "functions of one int8 value whose result is float32: DEQUANTIZE with LOGISTIC, EXP, TANH ... behind it",
    [("data", "int8", "indices into the table")],
    OpPattern.ELEMWISE,
)
class LutFloatAttrs:
    """`table[q + 128]` is the result for value q."""

    table: tuple[float, ...]

    def infer_type(self, data: TensorType) -> Type:
        """int8 -> float32 of the same shape."""
        require(data, "lut_float", "int8")
        if len(self.table) != 256:
            raise TypeRuleError("lut_float needs a table of 256 numbers")
        return data.with_dtype("float32")

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        return np.asarray(np.asarray(self.table, np.float32)[data.astype(np.int64) + 128])

    def te_rule(self, ctx: TeContext, args: Sequence[TensorFn], out_type: TensorType) -> TensorFn:
        return _from_table(ctx, args[0], np.asarray(self.table, np.float32))


def _from_table(ctx: TeContext, data: TensorFn, values: Array) -> TensorFn:
    """The results of int8 data, given for -128, -127, ...; a byte without its sign is the index."""
    table = ctx.constant("table", np.roll(values, 128))
    return TensorFn(data.shape, table.dtype, lambda b, i: table.at(b, (cast("int32", cast("uint8", data.at(b, i))),)))


# qnn.lut16 and qnn.sigmoid16: functions of int16 values as TFLite computes them, by tables with interpolation.
#
# qnn.lut16: 512 intervals of 128 values, a table of 513 values: t[i] + ((t[i+1] - t[i]) * (x & 127) + 64 >> 7), i = 256 + (x >>
# 7).  Oracle: `LUTLookup` and `LUTPopulate` of `kernels/internal/common.h`.  qnn.sigmoid16: LOGISTIC and TANH by one table of the
# sigmoid over [0, 10.6], 256 values of 16 bits.  Oracle: `reference_integer_ops::Logistic` and `Tanh` with the parameters of
# `activations.cc`.

STEPS = 512
Real = Callable[[Array], Array]


@operator("qnn.lut16", "EXP, LOG, RSQRT, GELU on int16", [("data", "int16", "the operand")], OpPattern.ELEMWISE)
class Lut16Attrs:
    """513 values; the result's parameters."""

    table: tuple[int, ...]
    quant: QuantParams | None = None

    def infer_type(self, data: TensorType) -> Type:
        """int16 -> int16 of the same shape."""
        require(data, "a table of int16", "int16")
        if len(self.table) != STEPS + 1:
            raise TypeRuleError("lut16 needs a table of 513 values")
        return data.with_dtype("int16", self.quant)

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        return look_up(data, np.asarray(self.table))

    def te_rule(self, ctx: TeContext, args: Sequence[TensorFn], out_type: TensorType) -> TensorFn:
        table = ctx.constant("table", np.asarray(self.table, np.int16))

        def rule(b: IRBuilder, *i: Expr) -> Expr:
            return cast("int16", tir_look_up(b, cast("int32", args[0].at(b, i)), table))

        return tensor_fn(out_type.shape, out_type.dtype, rule)


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


@operator("qnn.sigmoid16", "LOGISTIC, TANH on int16", [("data", "int16", "the operand")], OpPattern.ELEMWISE)
class Sigmoid16Attrs:
    """(x * multiplier + half) >> shift is the argument in steps of 1/12288 (half as much for tanh); `function`
    logistic or tanh.
    """

    function: str
    multiplier: int
    shift: int
    quant: QuantParams | None = None

    def infer_type(self, data: TensorType) -> Type:
        """int16 -> int16 of the same shape."""
        require(data, "a table of int16", "int16")
        return data.with_dtype("int16", self.quant)

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        half = 1 << (self.shift - 1) if self.shift else 0
        argument = (data.astype(np.int64) * self.multiplier + half) >> self.shift
        bits = 9 if self.function == "logistic" else 8
        size = np.abs(argument)
        index = np.minimum(size >> bits, 254)
        t = sigmoid_table().astype(np.int64)
        inside = (t[index] << bits) + (size & ((1 << bits) - 1)) * (t[index + 1] - t[index])
        value = np.where(size >> bits >= 255, 0x7FFF << 10 if bits == 9 else 0xFFFF << 8, inside)
        if self.function == "logistic":
            return (np.where(argument >= 0, value + 512, (1 << 25) - value + 511) >> 10).astype(np.int16)
        return (np.where(argument >= 0, value - (1 << 23) + 128, (1 << 23) - value + 127) >> 8).astype(np.int16)

    def te_rule(self, ctx: TeContext, args: Sequence[TensorFn], out_type: TensorType) -> TensorFn:
        table = ctx.constant("sigmoid", sigmoid_table())

        def rule(b: IRBuilder, *i: Expr) -> Expr:
            return tir_sigmoid16(b, cast("int32", args[0].at(b, i)), table, self)

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


# qnn.sqrt16: SQRT of int16, in floats: sqrt(scale_in * x) / scale, each step in float32, truncated to an integer.
#
# A table of 513 values, as for other functions of int16, would not give the reference's bits: `SqrtEvalQuantized` of
# `elementwise.cc` computes every root separately.  A root beyond an int32 becomes the lowest number (`aot.numerics.ties`).
# Negative numbers, which the reference reports as errors, count as 0.

TOO_LARGE = 2.0**31


@operator("qnn.sqrt16", "SQRT on int16", [("data", "int16", "the operand")], OpPattern.ELEMWISE)
class Sqrt16Attrs:
    """The scales of data and result, both float32; the result's parameters."""

    scale_in: float
    scale: float
    quant: QuantParams | None = None

    def infer_type(self, data: TensorType) -> Type:
        """int16 -> int16 of the same shape."""
        require(data, "sqrt16", "int16")
        return data.with_dtype("int16", self.quant)

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        return np.clip(quantized_sqrt(data, self.scale_in, self.scale), -32768, 32767).astype(np.int16)

    def element(self, b: IRBuilder, i: Index, data: TensorFn, *, out_type: TensorType) -> Expr:
        x = cast("float32", maximum(cast("int32", data.at(b, i)), 0))
        root = b.let("root", MATH["sqrt"](x * imm(self.scale_in, "float32")) / imm(self.scale, "float32"))
        largest = imm(32767.0, "float32")
        inside = cast("int32", select(root < largest, root, largest))
        return cast("int16", select(root < imm(TOO_LARGE, "float32"), inside, imm(-32768)))


def quantized_sqrt(x: Array, scale_in: float, scale: float) -> Array:
    """int64: the roots of integers x, negative ones as 0, in units of `scale`, as x86 casts them to int32."""
    with np.errstate(over="ignore"):
        root = apply("sqrt", np.float32(scale_in) * np.maximum(x, 0).astype(np.float32)) / np.float32(scale)
    result: Array = np.where(root < TOO_LARGE, np.minimum(root, np.float32(TOO_LARGE / 2)), -TOO_LARGE).astype(np.int64)
    return result


# qnn.prelu: PRELU of TFLite on quantised values, and LEAKY_RELU on int16 values (8-bit ones go through a table).
#
# x = q - zp_in; out = clamp(zp + (x >= 0 ? rescale(x) : rescale'(x * (alpha - zp_alpha)))), double rounding.
# LEAKY_RELU has alpha = 1 and its slope in the second multiplier.  Oracles: `reference_ops::BroadcastPrelu4DSlow`,
# `QuantizeLeakyRelu`.
@operator(
    "qnn.prelu",
    "PRELU on int8, int16, uint8; LEAKY_RELU on int16",
    [("data", "int8, int16", "the operand"), ("alpha", "as data", "the slopes below zero; shapes broadcast")],
    OpPattern.BROADCAST,
)
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

    def infer_type(self, data: TensorType, alpha: TensorType) -> Type:
        """data int8 or int16, alpha int8 that broadcasts to its shape -> the type of data."""
        if alpha.dtype != "int8":
            raise TypeRuleError(f"prelu needs quantised values and an int8 alpha, not {data} and {alpha}")
        if data.dtype not in ("int8", "int16") or broadcast_shape(data, alpha) != data.shape:
            raise TypeRuleError(f"prelu of {data} with alpha {alpha} is not valid")
        return data.with_dtype(data.dtype, self.quant)

    def evaluate(self, data: Array, alpha: Array, *, out_type: TensorType) -> Array:
        x, slope = data.astype(np.int64) - self.input_zp, alpha.astype(np.int64) - self.alpha_zp
        above = multiply_by_quantized_multiplier(x, *self.positive)
        below = multiply_by_quantized_multiplier(x * slope, *self.negative)
        return clamp_array(np.where(x >= 0, above, below) + self.zero_point, self.lo, self.hi, out_type.dtype)

    def element(self, b: IRBuilder, i: Index, data: TensorFn, alpha: TensorFn, *, out_type: TensorType) -> Expr:
        x = named(b, "x", cast("int32", data.at(b, i)) - self.input_zp)
        slope = cast("int32", broadcast_at(b, alpha, i)) - self.alpha_zp
        product = named(b, "product", select(x >= 0, imm(0), x * slope))
        above = tir_multiply_by_quantized_multiplier(b, named(b, "above", select(x >= 0, x, imm(0))), *self.positive)
        below = tir_multiply_by_quantized_multiplier(b, product, *self.negative)
        return cast(out_type.dtype, clamp(above + below + self.zero_point, self.lo, self.hi))


# qnn.steps: float32 to int8 by comparisons: the result of a chain of functions that ends in QUANTIZE.
#
# `relay/transform/fold_to_table.py` finds the steps, so that the result equals the chain's for every float.

Floats = npt.NDArray[np.float32]


@operator(
    "qnn.steps",
    "functions of one float32 value that end in QUANTIZE, such as MISH: EXP, LOG, TANH, LOGISTIC between two tensors",
    [("data", "float32", "the operand")],
    OpPattern.ELEMWISE,
)
class StepsAttrs:
    """codes[i + 1] from starts[i] on, which ascend; codes[0] before; `nan` for NaN; the result's parameters."""

    starts: tuple[float, ...]
    codes: tuple[int, ...]
    nan: int
    quant: QuantParams | None = None

    def infer_type(self, data: TensorType) -> Type:
        """float32 -> int8 of the same shape."""
        require(data, "steps", "float32")
        if len(self.codes) != len(self.starts) + 1 or list(self.starts) != sorted(set(self.starts)):
            raise TypeRuleError("steps needs ascending floats, and one more value than these")
        if not -128 <= min(self.nan, *self.codes) <= max(self.nan, *self.codes) <= 127:
            raise TypeRuleError("steps needs int8 values")
        return data.with_dtype("int8", self.quant)

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        starts = np.asarray(self.starts, np.float32)
        codes = np.asarray(self.codes, np.int8)[np.searchsorted(starts, data, side="right") * ~np.isnan(data)]
        return np.asarray(np.where(np.isnan(data), np.int8(self.nan), codes))

    def te_rule(self, ctx: TeContext, args: Sequence[TensorFn], out_type: TensorType) -> TensorFn:
        if not self.starts:
            return tensor_fn(
                out_type.shape, "int8", lambda b, *i: _or_nan(b.let("x", args[0].at(b, i)), self, imm(self.codes[0]))
            )
        cells = cells_of(np.asarray(self.starts, np.float32))
        spare = (1 << cells.levels) - 1
        starts = ctx.constant("starts", np.asarray([*self.starts, *[self.starts[-1]] * spare], np.float32))
        codes = ctx.constant("codes", np.asarray([*self.codes, *[self.codes[-1]] * spare], np.int8))
        before = ctx.constant("before", cells.before)
        origin, last, factor = (imm(float(v), "float32") for v in (cells.origin, np.float32(self.starts[-1]), cells.factor))

        def rule(b: IRBuilder, *i: Expr) -> Expr:
            x = b.let("x", args[0].at(b, i))
            above = b.let("above", select(x > origin, x, origin))
            inside = b.let("inside", select(above < last, above, last))
            cell = b.let("cell", cast("int32", (inside - origin) * factor))
            step: Expr = b.let("step", cast("int32", before.at(b, (cell,))))
            for level in reversed(range(cells.levels)):
                far = binop(">=", x, starts.at(b, (step + ((1 << level) - 1),)))
                step = b.let("step", step + select(far, imm(1 << level), imm(0)))
            return _or_nan(x, self, codes.at(b, (step,)))

        return tensor_fn(out_type.shape, "int8", rule)


@dataclass(frozen=True, slots=True)
class Cells:
    """Equal parts of the range between first and last step; before[c] steps precede cell c, at most 2^levels - 1 are inside."""

    origin: np.float32
    factor: np.float32
    before: npt.NDArray[np.int16]
    levels: int


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


def _or_nan(x: Expr, attrs: StepsAttrs, code: Expr) -> Expr:
    """The value, or the one for NaN if it is not the first one."""
    if attrs.nan == attrs.codes[0]:
        return cast("int8", code)
    return cast("int8", select(binop("==", x, x), cast("int32", code), imm(attrs.nan)))
