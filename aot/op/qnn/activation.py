"""Converters of functions of one tensor that exist for quantised values too: by number (float32), by table (8 bits), by
interpolation (int16).

Oracles, for quantised values: LOGISTIC, TANH, ELU, GELU, EXP, LOG: the table that `LUTPopulate` makes (LOGISTIC and TANH of
int16 have one of their own, see `lut16.py`); RELU ...: `QuantizedReluX`; ABS, SQRT, RSQRT: `elementwise.cc`; HARD_SWISH,
LEAKY_RELU: `reference_ops`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from aot.frontend.view import OperatorView
from aot.ir.op import Array
from aot.numerics.elementary import apply
from aot.numerics.fixed_point import (
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    quantize_value,
    requantize,
    rounding_divide_by_pot,
    wrap_int32,
)
from aot.numerics.inv_sqrt import inverse_sqrt
from aot.numerics.multipliers import real_multiplier
from aot.op.common.check import require_dtype, require_quant
from aot.op.common.half import widens_halves
from aot.op.common.uint8 import legacy_uint8
from aot.op.convert import ConvertContext, from_tflite, operand, unsupported
from aot.op.math.arithmetic import is_plain
from aot.op.math.cast import CastAttrs
from aot.op.math.clip import ClipAttrs
from aot.op.math.unary import UnaryAttrs, convert_unary, gelu, sigmoid
from aot.op.nn.gelu import convert_gelu_by_size
from aot.op.qnn.lut import LutAttrs, codes, float_table
from aot.op.qnn.lut16 import Lut16Attrs, Sigmoid16Attrs, populate, sigmoid_scaling
from aot.op.qnn.quantize import Requantize8Attrs
from aot.op.qnn.sqrt16 import Sqrt16Attrs, quantized_sqrt
from aot.relay.expr import Expr as RelayExpr
from aot.relay.expr import call
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range

Real = Callable[[Array], Array]
Quant = tuple[float, int]


@dataclass(frozen=True, slots=True)
class Codes:
    """Operator, element type and parameters of a quantised operand and its result; whose arithmetic scales are divided in."""

    opcode: str
    dtype: str
    data: Quant
    out: Quant
    oracle: str

    def ratio(self, factor: float = 1.0) -> float:
        """The operand's scale times `factor` over the result's."""
        return real_multiplier(self.opcode, self.dtype, (self.data[0], factor), (self.out[0],), oracle=self.oracle)


def codes_of(ctx: ConvertContext, op: OperatorView, dtypes: tuple[str, ...] = ("int8", "int16")) -> Codes:
    """Operand 0 and the result, of one type of `dtypes`; int16 without zero points."""
    data, out = ctx.input_type(op, 0), ctx.output_type(op)
    require_dtype(ctx, op, data, dtypes)
    require_dtype(ctx, op, out, (data.dtype,), what="a result")
    parameters = require_quant(ctx, op, data, may_be_zero=True), require_quant(ctx, op, out, what="the result")
    found = Codes(op.opcode, data.dtype, *parameters, ctx.oracle)
    if data.dtype == "int16" and (found.data[1] or found.out[1]):
        unsupported(ctx, op, "int16 with a non-zero zero point is not supported (TFLite rejects it too)", code="E1224")
    return found


def table_call(ctx: ConvertContext, op: OperatorView, table: Array | tuple[int, ...]) -> RelayExpr:
    """qnn.lut of operand 0."""
    attrs = LutAttrs(tuple(int(v) for v in table), ctx.output_type(op).quant)
    return call("qnn.lut", [operand(ctx, op, 0)], attrs, span=ctx.span(op))


def real_call(ctx: ConvertContext, op: OperatorView, function: Real, dtypes: tuple[str, ...] = ("int8", "int16")) -> RelayExpr:
    """A real function on quantised values."""
    found = codes_of(ctx, op, dtypes)
    if found.dtype == "int8":
        return table_call(ctx, op, float_table(function, found.data, found.out))
    try:
        table = populate(function, found.data, found.out)
    except ValueError as error:
        unsupported(ctx, op, f"a scale of {found.data[0]:g} is not supported: {error}", code="E1226")
    return call("qnn.lut16", [operand(ctx, op, 0)], Lut16Attrs(table, ctx.output_type(op).quant), span=ctx.span(op))


# --- sigmoid and tanh


def _tanh(x: Array) -> Array:
    return apply("tanh", x)


def _convert_sigmoid(ctx: ConvertContext, op: OperatorView, *, function: str, shifts: tuple[int, ...]) -> RelayExpr:
    """LOGISTIC or TANH of int16: the result has 15 fractional bits."""
    found = codes_of(ctx, op)
    if abs(found.out[0] * 32768 - 1) > 1e-3:
        unsupported(ctx, op, f"the result must have scale 1/32768, not {found.out[0]:g}", code="E1225")
    multiplier, shift = sigmoid_scaling(found.data[0], shifts)
    if multiplier >= 1 << 16 or shift > 30:
        unsupported(ctx, op, f"a scale of {found.data[0]:g} is not supported", code="E1226")
    attrs = Sigmoid16Attrs(function, multiplier, shift, ctx.output_type(op).quant)
    return call("qnn.sigmoid16", [operand(ctx, op, 0)], attrs, span=ctx.span(op))


@from_tflite("LOGISTIC", "int8 uint8 int16 float16 float32", "cast qnn.lut qnn.sigmoid16 sigmoid")
@widens_halves
@legacy_uint8
def convert_logistic(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """1 / (1 + e^-x)."""
    data = ctx.input_type(op, 0)
    if is_plain(data):
        return convert_unary(ctx, op, "sigmoid")
    if data.dtype == "int16":
        return _convert_sigmoid(ctx, op, function="logistic", shifts=(0,))
    return real_call(ctx, op, sigmoid, ("int8",))


@from_tflite("TANH", "int8 uint8 int16 float16 float32", "cast qnn.lut qnn.sigmoid16 tanh")
@widens_halves
@legacy_uint8
def convert_tanh(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """The hyperbolic tangent."""
    data = ctx.input_type(op, 0)
    if is_plain(data):
        return convert_unary(ctx, op, "tanh")
    if data.dtype == "int16":
        return _convert_sigmoid(ctx, op, function="tanh", shifts=(0, 1))
    return real_call(ctx, op, _tanh, ("int8",))


# --- other real functions


@from_tflite("ELU", "int8 float32", "elu qnn.lut")
def convert_elu(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """x, or e^x - 1 below 0."""
    if is_plain(ctx.input_type(op, 0)):
        return convert_unary(ctx, op, "elu")
    return real_call(ctx, op, lambda x: np.where(x < 0, apply("expm1", x), x), ("int8",))


@widens_halves
def _gelu_of_halves(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    return convert_unary(ctx, op, "gelu_half_tanh" if op.option("approximate") else "gelu_half")


@from_tflite("GELU", "int8 uint8 int16 float16 float32", "cast gelu gelu_half gelu_uneven qnn.lut qnn.lut16")
@legacy_uint8
def convert_gelu(ctx: ConvertContext, op: OperatorView) -> RelayExpr | Sequence[RelayExpr]:
    """x times the normal distribution's probability of less than x."""
    approximate = bool(op.option("approximate"))
    if ctx.input_type(op, 0).dtype == "float16":
        return _gelu_of_halves(ctx, op)
    if is_plain(ctx.input_type(op, 0)):
        return convert_unary(ctx, op, "gelu_tanh") if approximate else convert_gelu_by_size(ctx, op)
    return real_call(ctx, op, lambda x: gelu(x, approximate=approximate))


@from_tflite("EXP", "int8 int16 float32", "exp qnn.lut qnn.lut16")
def convert_exp(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """e^x."""
    if is_plain(ctx.input_type(op, 0)):
        return convert_unary(ctx, op, "exp")
    return real_call(ctx, op, lambda x: apply("exp", x))


@from_tflite("LOG", "int8 int16 float32", "log qnn.lut qnn.lut16")
def convert_log(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """The natural logarithm; of quantised values that are not positive the smallest result."""
    if is_plain(ctx.input_type(op, 0)):
        return convert_unary(ctx, op, "log")
    found = codes_of(ctx, op)
    lowest = np.float32(int_range(found.dtype)[0] - found.out[1]) * np.float32(found.out[0])
    return real_call(ctx, op, lambda x: np.where(x <= 0, lowest, apply("log", np.where(x <= 0, np.float32(1), x))))


@from_tflite("SQRT", "int8 int16 float32", "qnn.lut qnn.sqrt16 sqrt")
def convert_sqrt(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """The square root, truncated for quantised values; that of 0 for negative numbers, which the reference reports as errors."""
    if is_plain(ctx.input_type(op, 0)):
        return convert_unary(ctx, op, "sqrt")
    found = codes_of(ctx, op)
    (scale_in, zp_in), (scale, zp) = found.data, found.out
    if found.dtype == "int16":
        attrs = Sqrt16Attrs(scale_in, scale, ctx.output_type(op).quant)
        return call("qnn.sqrt16", [operand(ctx, op, 0)], attrs, span=ctx.span(op))
    return table_call(ctx, op, np.clip(wrap_int32(quantized_sqrt(codes() - zp_in, scale_in, scale) + zp), -128, 127))


@from_tflite("RSQRT", "int8 int16 float32", "qnn.lut qnn.lut16 rsqrt")
def convert_rsqrt(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """1 / sqrt(x); of 0 the largest value.  (The reference reports negative numbers as errors; here they are as 0.)"""
    if is_plain(ctx.input_type(op, 0)):
        return convert_unary(ctx, op, "rsqrt")
    found = codes_of(ctx, op)
    scale, scale_in = np.float32(found.out[0]), np.float32(found.data[0])
    if found.dtype == "int16":

        def function(x: Array) -> Array:
            positive = np.where(x <= 0, np.float32(1), x)
            return np.where(x <= 0, np.float32(32767) * scale, np.float32(1) / apply("sqrt", positive))

        return real_call(ctx, op, function)
    if not scale_in:  # nothing but zeros
        return table_call(ctx, op, (127,) * 256)
    real = real_multiplier(op.opcode, found.dtype, (1.0,), (float(np.sqrt(scale_in)), found.out[0]), oracle=ctx.oracle)
    multiplier, shift = quantize_multiplier(real)
    table = []
    for value in codes() - found.data[1]:
        if value <= 0:
            table.append(127)
            continue
        m, s = inverse_sqrt(int(value))
        root = int(multiply_by_quantized_multiplier(1, m, s + 20))
        table.append(int(requantize(root, multiplier, shift - 20, zero_point=found.out[1], lo=-128, hi=127)))
    return table_call(ctx, op, tuple(table))


# --- piecewise linear functions

_BOUNDS: dict[str, tuple[float | None, float | None]] = {
    "RELU": (0.0, None),
    "RELU6": (0.0, 6.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
    "RELU_0_TO_1": (0.0, 1.0),
}


def _register_relu(opcode: str) -> None:
    low, high = _BOUNDS[opcode]

    @from_tflite(opcode, "int8 uint8 int16 float32", "clip relu")
    @legacy_uint8
    def convert(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
        """A clip where input and output have one quantisation, else rescaled codes."""
        if is_plain(ctx.input_type(op, 0)):
            return convert_unary(ctx, op, "relu", UnaryAttrs(lo=low, hi=high))
        if opcode == "RELU6" and ctx.oracle == "tflm":
            return _relu6_of_tflm(ctx, op)
        return _clamped(ctx, op, low, high)


def _relu6_of_tflm(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """TFLM clamps the operand's quantised values and rescales nothing, whatever the result's quantisation."""
    found = codes_of(ctx, op)
    scale, zp = found.data
    lo, hi = int_range(found.dtype)
    attrs = ClipAttrs(max(lo, zp), min(hi, quantize_value(6.0, scale, zp)))
    return call("clip", [operand(ctx, op, 0)], attrs, span=ctx.span(op))


def _clamped(ctx: ConvertContext, op: OperatorView, low: float | None, high: float | None) -> RelayExpr:
    found = codes_of(ctx, op)
    out, (scale, zp) = ctx.output_type(op), found.out
    lo, hi = int_range(found.dtype)
    if low is not None:
        lo = max(lo, quantize_value(low, scale, zp))
    if high is not None:
        hi = min(hi, quantize_value(high, scale, zp))
    if lo > hi:
        unsupported(ctx, op, "no value of the result is in the activation's range", code="E1206")
    x, span = operand(ctx, op, 0), ctx.span(op)
    if found.data == found.out:
        return call("clip", [x], ClipAttrs(lo, hi), span=span)
    multiplier, shift = quantize_multiplier(found.ratio())
    if found.dtype == "int8":
        return table_call(ctx, op, requantize(codes() - found.data[1], multiplier, shift, zero_point=zp, lo=lo, hi=hi))
    attrs = Requantize8Attrs(0, multiplier, shift, zp, lo, hi, found.dtype, out.quant)
    return call("qnn.requantize8", [x], attrs, span=span)


for _opcode in _BOUNDS:
    _register_relu(_opcode)


@from_tflite("ABS", "int8 int16 int32 float32", "abs cast qnn.lut")
def convert_abs(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """The absolute value; codes of int8 by table, those of int16 as int32 numbers that are rescaled."""
    if is_plain(ctx.input_type(op, 0)):
        return convert_unary(ctx, op, "abs")
    found = codes_of(ctx, op)
    multiplier, shift = quantize_multiplier(found.ratio())  # equal scales: 1/2 shifted left once, which is exactly 1
    lo, hi = int_range(found.dtype)
    if found.dtype == "int8":
        size = np.abs(codes() - found.data[1])
        return table_call(ctx, op, requantize(size, multiplier, shift, zero_point=found.out[1], lo=lo, hi=hi))
    span, x = ctx.span(op), operand(ctx, op, 0)
    size_of = call("abs", [call("cast", [x], CastAttrs("int32"), span=span)], UnaryAttrs(), span=span)
    attrs = Requantize8Attrs(0, multiplier, shift, 0, lo, hi, "int16", ctx.output_type(op).quant)
    return call("qnn.requantize8", [size_of], attrs, span=span)


# --- HARD_SWISH


@from_tflite("HARD_SWISH", "int8 uint8 float32", "hard_swish qnn.lut")
@legacy_uint8
def convert_hard_swish(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """x * relu6(x + 3) / 6; codes in the reference's 16-bit fixed point."""
    if is_plain(ctx.input_type(op, 0)):
        return convert_unary(ctx, op, "hard_swish")
    found = codes_of(ctx, op, ("int8",))
    fine = found.data[0] / 128  # exact, as is the reference's product in float32
    out_multiplier, out_exponent = quantize_multiplier(found.ratio(1 / 128))
    if out_exponent > 0:
        unsupported(ctx, op, "the result's scale is too small for the data's", code="E1226")
    relu_multiplier, relu_exponent = quantize_multiplier(
        real_multiplier(op.opcode, found.dtype, (fine,), (3.0 / 32768.0,), oracle=ctx.oracle)
    )
    x = (codes() - found.data[1]) << 7
    relu = _saturated(x << (relu_exponent - 1)) if relu_exponent > 0 else x
    relu = _high_mul16(relu, _narrow(relu_multiplier))
    if relu_exponent > 0:
        relu = _saturated(relu * 2)
    elif relu_exponent < 0:
        relu = _divided16(relu, -relu_exponent)
    relu = (relu + (1 << 15)) >> 1
    product = relu * _high_mul16(x, _narrow(out_multiplier))
    high = np.sign(product) * (np.abs(product) >> 15)  # C's division rounds towards zero
    return table_call(ctx, op, np.clip(_divided16(high, -out_exponent) + found.out[1], -128, 127))


def _narrow(multiplier: int) -> int:
    """DownScaleInt32ToInt16Multiplier."""
    return 32767 if multiplier >= (1 << 31) - 1 - (1 << 15) else (multiplier + (1 << 15)) >> 16


def _divided16(x: Array, exponent: int) -> Array:
    """RoundingDivideByPOT of int16, whose mask of the rest is -1 from 2^16 on: it then gives 1, or -1 for negative numbers."""
    return rounding_divide_by_pot(x, exponent) if exponent < 16 else np.where(x < 0, -1, 1)


def _saturated(x: Array) -> Array:
    return np.asarray(np.clip(x, -32768, 32767))


def _high_mul16(a: Array, b: int) -> Array:
    """SaturatingRoundingDoublingHighMul of int16; its division rounds towards zero after the nudge."""
    product = a.astype(np.int64) * b
    nudged = product + np.where(product >= 0, 1 << 14, 1 - (1 << 14))
    return _saturated(np.sign(nudged) * (np.abs(nudged) >> 15))


def leaky_multipliers(found: Codes, alpha: float) -> tuple[tuple[int, int], tuple[int, int]]:
    """(identity, alpha) of LeakyReluPrepare; alpha without its sign."""
    return quantize_multiplier(found.ratio()), quantize_multiplier(abs(found.ratio(alpha)))


def leaky_codes(x: Array, found: Codes, alpha: float) -> Array:
    """QuantizeLeakyRelu of centred quantised values."""
    identity, slope = leaky_multipliers(found, alpha)
    below = multiply_by_quantized_multiplier(x, *slope) * int(math.copysign(1, alpha))
    total = np.where(x >= 0, multiply_by_quantized_multiplier(x, *identity), below) + found.out[1]
    return np.asarray(np.clip(total, *int_range(found.dtype)))
