"""Converters of operators that change the type of elements: QUANTIZE, DEQUANTIZE, CAST and the like."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from aot.frontend.tflite.convert import EVERY, Operator, converter, is_plain
from aot.frontend.tflite.retyped import legacy_uint8, widens_halves
from aot.ir.op import Array
from aot.numerics.elementary import apply
from aot.numerics.fixed_point import (
    NotAMultiplierError,
    inverse_sqrt,
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    quantize_value,
    real_multiplier,
    requantize,
    round_half_away,
    rounding_divide_by_pot,
    wrap_int32,
)
from aot.op.math.arithmetic import BinaryAttrs, CompareAttrs, SelectAttrs
from aot.op.math.cast import BITCASTABLE as BITCAST_DTYPES
from aot.op.math.cast import CASTABLE, BitcastAttrs, CastAttrs, FakeQuantAttrs, bitcast_shape
from aot.op.math.unary import UNARY, VECTOR, UnaryAttrs, gelu, sigmoid
from aot.op.qnn.lut import Lut16Attrs, LutAttrs, PreluAttrs, Sigmoid16Attrs, Sqrt16Attrs, populate, quantized_sqrt
from aot.op.qnn.quantize import CODES, SOURCES, ClipAttrs, DequantizeAttrs, QuantizeAttrs, Requantize8Attrs
from aot.op.qnn.quantize import DEQUANTIZABLE as DEQUANTIZE_DTYPES
from aot.relay.expr import Constant, Expr, const, tensor_type
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range


@converter("QUANTIZE", "int8 uint8 int16 int32 float32", "qnn.quantize")
def convert_quantize(op: Operator) -> Expr:
    """qnn.quantize of float32, qnn.requantize8 of quantised values."""
    data, out = op.type(0, ("float32", *SOURCES)), op.result_type()
    op.require_dtype(out, SOURCES if data.dtype in ("int8", "int16") else CODES, what="a result")
    scale, zp = op.quant(out, what="the result")
    low, high = int_range(out.dtype)
    x = op.operand(0)
    if data.dtype == "float32":
        return op.call("qnn.quantize", [x], QuantizeAttrs(scale, zp, low, high, out.dtype))
    scale_in, zp_in = op.quant(data, may_be_zero=True)
    multiplier, shift = quantize_multiplier(real_multiplier(op.opcode, data.dtype, (scale_in,), (scale,), oracle=op.oracle))
    attrs = Requantize8Attrs(zp_in, multiplier, shift, zp, low, high, out.dtype, out.quant)
    return op.call("qnn.requantize8", [x], attrs)


@converter("DEQUANTIZE", "int4 int8 uint8 int16 float16", "qnn.dequantize cast")
def convert_dequantize(op: Operator) -> Expr:
    """qnn.dequantize, for float16 a cast; constants (weights stored as float16 or integers, also with per-channel scales) become
    their value, with a note of how they are stored."""
    data = op.type(0)
    x = op.operand(0)
    if isinstance(x, Constant):
        return _dequantized(op, x)
    op.require_dtype(data, (*DEQUANTIZE_DTYPES, "float16"))
    op.require_dtype(op.result_type(), ("float32",), what="a result")
    if data.dtype == "float16":
        return op.call("cast", [x], CastAttrs("float32"))
    return op.call("qnn.dequantize", [x], DequantizeAttrs(*op.quant(data, may_be_zero=True)))


def _dequantized(op: Operator, x: Constant) -> Constant:
    """The float32 values of float16 numbers, or of integers with one scale or one per index of an axis."""
    value = _half_value(op, x)
    return replace(value, stored=x.type)


def _half_value(op: Operator, x: Constant) -> Constant:
    op.require_dtype(x.type, (*DEQUANTIZE_DTYPES, "int4", "float16"))
    op.require_dtype(op.result_type(), ("float32",), what="a result")
    if x.type.dtype == "float16":
        return const(x.data.astype(np.float32), span=op.span)
    quant, shape = x.type.quant, x.type.shape
    if quant is None or not quant.is_per_channel:
        attrs = DequantizeAttrs(*op.quant(x.type, may_be_zero=True))
        return const(attrs.evaluate(x.data, out_type=x.type.with_dtype("float32")), span=op.span)
    op.require_dtype(x.type, ("int4", "int8", "uint8"), what="data with per-channel scales")
    axis = quant.axis
    assert axis is not None
    if not 0 <= axis < len(shape) or len(quant.scale) != shape[axis]:
        op.refuse(f"{len(quant.scale)} scales along axis {axis} do not match {list(shape)}", code="E1223")
    along = tuple(-1 if a == axis else 1 for a in range(len(shape)))
    scale = np.asarray(quant.scale, np.float32).reshape(along)
    centred = x.data.astype(np.int32) - np.asarray(quant.zero_point, np.int32).reshape(along)
    return const(scale * centred.astype(np.float32), span=op.span)


def nudged(low: float, high: float, bits: int) -> FakeQuantAttrs:
    """The range moved so that 0 is one of the numbers; in float32 steps."""
    a, b, top = np.float32(low), np.float32(high), np.float32((1 << bits) - 1)
    scale = (b - a) / top
    zero = np.float32(0) - a / scale
    point = np.float32(np.floor(np.float64(min(max(zero, np.float32(0)), top)) + 0.5))
    return FakeQuantAttrs(float((np.float32(0) - point) * scale), float((top - point) * scale), float(scale))


@converter("FAKE_QUANT", "float32", "fake_quant")
def convert_fake_quant(op: Operator) -> Expr:
    """fake_quant."""
    op.require_dtype(op.type(0), {"float32"})
    if op.option("narrow_range"):
        op.refuse("a narrow range is not supported (TFLite rejects it too)")
    low, high, bits = float(op.option("min")), float(op.option("max")), op.option("num_bits")
    attrs = nudged(low, high, bits) if 1 <= bits <= 16 and low <= 0 <= high and low < high else None
    if attrs is None or not np.isfinite([attrs.low, attrs.high]).all() or not attrs.scale >= np.finfo(np.float32).tiny:
        op.refuse(f"{bits} bits from {low} to {high} are not a valid quantisation", code="E1122")
    return op.call("fake_quant", [op.operand(0)], attrs)


@converter("CAST", EVERY, "cast")
def convert_cast(op: Operator) -> Expr:
    """cast to the declared type of the result; nothing if the operand already has it."""
    data, out = op.type(0, CASTABLE), op.result_type(0, CASTABLE)
    x = op.operand(0)
    return x if data.dtype == out.dtype else op.call("cast", [x], CastAttrs(out.dtype))


@converter("BITCAST", "int8 uint8 int16 uint16 int32 uint32 int64 float16 float32", "bitcast")
def convert_bitcast(op: Operator) -> Expr:
    """bitcast to the declared type of the result."""
    data, dtype = op.type(0, BITCAST_DTYPES), op.result_type().dtype
    op.require_dtype(op.result_type(), BITCAST_DTYPES, what="a result")
    return op.call("bitcast", [op.operand(0)], BitcastAttrs(bitcast_shape(data, dtype), dtype))


# DENSIFY: the zeros of a sparse constant are inserted when the constant is read, so there is nothing left to do.
#
# Oracle: `kernels/densify.cc`.


SPARSE_TYPES = ("int8", "float16", "float32")


@converter("DENSIFY", "int8 float16 float32", "")
def convert_densify(op: Operator) -> Constant:
    """The constant itself."""
    op.require_dtype(op.type(0), SPARSE_TYPES)
    value = op.operand(0)
    if not isinstance(value, Constant):
        op.refuse("only constants can be sparse", code="E1204")
    return value


# Activations and elementary functions, on numbers, or by table on quantised values.


Float32 = npt.NDArray[np.float32]


# --- tables ---------------------------------------------------------------------------------------------------------


def all_codes() -> npt.NDArray[np.int64]:
    return np.arange(-128, 128, dtype=np.int64)


@lru_cache(maxsize=64)  # an unrolled network has few different tables
def float_table(transform: Callable[[Float32], Float32], data: tuple[float, int], out: tuple[float, int]) -> tuple[int, ...]:
    """LUTPopulate of `kernels/internal/common.h`: a float32 function between (scale, zero point) of data and of result."""
    (scale_in, zp_in), (scale, zp) = data, out
    real = np.float32(scale_in) * (all_codes() - zp_in).astype(np.float32)
    scaled = transform(real).astype(np.float32) * (np.float32(1) / np.float32(scale))
    if np.isnan(scaled).any():
        raise NotAMultiplierError(f"scales of {scale_in:g} and {scale:g} give results that are not finite")
    bounded = np.clip(
        scaled, -(2.0**30), 2.0**30
    )  # far beyond all quantised values; the reference's conversion is undefined beyond int32
    return tuple(min(max(round_half_away(float(v)) + zp, -128), 127) for v in bounded)


def sigmoid_scaling(scale: float, shifts: tuple[int, ...]) -> tuple[int, int]:
    """TanhPrepare and SigmoidPrepare: (multiplier, shift) of the argument.

    `shifts`: with a scale of 2^(s - 12) for one of these s, the multiplier is exactly 3 * 2^s.
    """
    if scale == 0:  # a constant of zeros
        return 0, 0
    exact = math.log2(np.float32(scale))
    nearest = math.floor(exact + 0.5)
    if abs(exact - nearest) < 1e-3 and nearest + 12 in shifts:
        return 3 << (nearest + 12), 0
    multiplier, shift = float(np.float32(scale)) * 4096.0 * 3.0, 0
    while multiplier <= 32767.0 / 2.0 and shift <= 30:
        shift, multiplier = shift + 1, multiplier * 2.0
    return int(multiplier), shift


def convert_unary(op: Operator, name: str, attrs: UnaryAttrs | None = None) -> Expr:
    """The operator `name` on plain numbers."""
    op.require_dtype(op.type(0), UNARY[name].dtypes)
    return op.call(name, [op.operand(0)], attrs or UnaryAttrs())


def _unary_converter(opcode: str, name: str) -> None:
    halves = opcode in ("NEG", "SIN", "COS", "FLOOR")

    def convert(op: Operator) -> Expr:
        return convert_unary(op, name)

    dtypes, through = (*UNARY[name].dtypes, *["float16"] * halves), f"cast {name}" if halves else name
    converter(opcode, " ".join(dtypes), through)(widens_halves(convert) if halves else convert)


for _opcode, _name in (
    ("NEG", "negative"),
    ("SIGN", "sign"),
    ("SQUARE", "square"),
    ("SIN", "sin"),
    ("COS", "cos"),
    ("FLOOR", "floor"),
    ("CEIL", "ceil"),
    ("ROUND", "rint"),
    ("LOGICAL_NOT", "logical_not"),
):
    _unary_converter(_opcode, _name)


# Converters of functions of one tensor that exist for quantised values too: by number (float32), by table (8 bits), by
# interpolation (int16).
#
# Oracles, for quantised values: LOGISTIC, TANH, ELU, GELU, EXP, LOG: the table of `LUTPopulate` (LOGISTIC and TANH of
# int16 have their own, see `lut16.py`); RELU ...: `QuantizedReluX`; ABS, SQRT, RSQRT: `elementwise.cc`; HARD_SWISH,
# LEAKY_RELU: `reference_ops`.


Real = Callable[[Array], Array]
Quant = tuple[float, int]


@dataclass(frozen=True, slots=True)
class Codes:
    """Operator, element type and parameters of a quantised operand and its result; `oracle`: whose arithmetic it follows."""

    opcode: str
    dtype: str
    data: Quant
    out: Quant
    oracle: str

    def ratio(self, factor: float = 1.0) -> float:
        """The operand's scale times `factor` over the result's."""
        return real_multiplier(self.opcode, self.dtype, (self.data[0], factor), (self.out[0],), oracle=self.oracle)


def real_codes(op: Operator, dtypes: tuple[str, ...] = ("int8", "int16")) -> Codes:
    """Operand 0 and the result, of one type of `dtypes`; int16 without zero points."""
    data, out = op.type(0, dtypes), op.result_type()
    op.require_dtype(out, (data.dtype,), what="a result")
    parameters = op.quant(data, may_be_zero=True), op.quant(out, what="the result")
    codes = Codes(op.opcode, data.dtype, *parameters, op.oracle)
    if data.dtype == "int16" and (codes.data[1] or codes.out[1]):
        op.refuse("int16 with a non-zero zero point is not supported (TFLite rejects it too)", code="E1224")
    return codes


def table_call(op: Operator, table: Array | tuple[int, ...]) -> Expr:
    """qnn.lut of operand 0."""
    attrs = LutAttrs(tuple(int(v) for v in table), op.result_type().quant)
    return op.call("qnn.lut", [op.operand(0)], attrs)


def real_call(op: Operator, function: Real, dtypes: tuple[str, ...] = ("int8", "int16")) -> Expr:
    """A real function on quantised values."""
    codes = real_codes(op, dtypes)
    if codes.dtype == "int8":
        return table_call(op, float_table(function, codes.data, codes.out))
    try:
        table = populate(function, codes.data, codes.out)
    except ValueError as error:
        op.refuse(f"a scale of {codes.data[0]:g} is not supported: {error}", code="E1226")
    return op.call("qnn.lut16", [op.operand(0)], Lut16Attrs(table, op.result_type().quant))


# --- sigmoid and tanh


def _tanh(x: Array) -> Array:
    return apply("tanh", x)


def _convert_sigmoid(op: Operator, *, function: str, shifts: tuple[int, ...]) -> Expr:
    """LOGISTIC or TANH of int16: the result has 15 fractional bits."""
    codes = real_codes(op)
    if abs(codes.out[0] * 32768 - 1) > 1e-3:
        op.refuse(f"the result must have scale 1/32768, not {codes.out[0]:g}", code="E1225")
    multiplier, shift = sigmoid_scaling(codes.data[0], shifts)
    if multiplier >= 1 << 16 or shift > 30:
        op.refuse(f"a scale of {codes.data[0]:g} is not supported", code="E1226")
    attrs = Sigmoid16Attrs(function, multiplier, shift, op.result_type().quant)
    return op.call("qnn.sigmoid16", [op.operand(0)], attrs)


@converter("LOGISTIC", "int8 uint8 int16 float16 float32", "cast qnn.lut qnn.sigmoid16 sigmoid")
@widens_halves
@legacy_uint8
def convert_logistic(op: Operator) -> Expr:
    """1 / (1 + e^-x)."""
    data = op.type(0)
    if is_plain(data):
        return convert_unary(op, "sigmoid")
    if data.dtype == "int16":
        return _convert_sigmoid(op, function="logistic", shifts=(0,))
    return real_call(op, sigmoid, ("int8",))


@converter("TANH", "int8 uint8 int16 float16 float32", "cast qnn.lut qnn.sigmoid16 tanh")
@widens_halves
@legacy_uint8
def convert_tanh(op: Operator) -> Expr:
    """The hyperbolic tangent."""
    data = op.type(0)
    if is_plain(data):
        return convert_unary(op, "tanh")
    if data.dtype == "int16":
        return _convert_sigmoid(op, function="tanh", shifts=(0, 1))
    return real_call(op, _tanh, ("int8",))


# --- other real functions


@converter("ELU", "int8 float32", "elu qnn.lut")
def convert_elu(op: Operator) -> Expr:
    """x, or e^x - 1 below 0."""
    if is_plain(op.type(0)):
        return convert_unary(op, "elu")
    return real_call(op, lambda x: np.where(x < 0, apply("expm1", x), x), ("int8",))


@widens_halves
def _gelu_of_halves(op: Operator) -> Expr:
    return convert_unary(op, "gelu_half_tanh" if op.option("approximate") else "gelu_half")


@converter("GELU", "int8 uint8 int16 float16 float32", "cast gelu gelu_half gelu_uneven qnn.lut qnn.lut16")
@legacy_uint8
def convert_gelu(op: Operator) -> Expr | Sequence[Expr]:
    """x times the probability that a standard normal variable is less than x."""
    approximate = bool(op.option("approximate"))
    if op.type(0).dtype == "float16":
        return _gelu_of_halves(op)
    if is_plain(op.type(0)):
        return convert_unary(op, "gelu_tanh") if approximate else convert_gelu_by_size(op)
    return real_call(op, lambda x: gelu(x, approximate=approximate))


@converter("EXP", "int8 int16 float32", "exp qnn.lut qnn.lut16")
def convert_exp(op: Operator) -> Expr:
    """e^x."""
    if is_plain(op.type(0)):
        return convert_unary(op, "exp")
    return real_call(op, lambda x: apply("exp", x))


@converter("LOG", "int8 int16 float32", "log qnn.lut qnn.lut16")
def convert_log(op: Operator) -> Expr:
    """The natural logarithm; for quantised values that are not positive the smallest result."""
    if is_plain(op.type(0)):
        return convert_unary(op, "log")
    codes = real_codes(op)
    lowest = np.float32(int_range(codes.dtype)[0] - codes.out[1]) * np.float32(codes.out[0])
    return real_call(op, lambda x: np.where(x <= 0, lowest, apply("log", np.where(x <= 0, np.float32(1), x))))


@converter("SQRT", "int8 int16 float32", "qnn.lut qnn.sqrt16 sqrt")
def convert_sqrt(op: Operator) -> Expr:
    """The square root, truncated for quantised values; negative numbers, which the reference reports as errors, count as 0."""
    if is_plain(op.type(0)):
        return convert_unary(op, "sqrt")
    codes = real_codes(op)
    (scale_in, zp_in), (scale, zp) = codes.data, codes.out
    if codes.dtype == "int16":
        attrs = Sqrt16Attrs(scale_in, scale, op.result_type().quant)
        return op.call("qnn.sqrt16", [op.operand(0)], attrs)
    return table_call(op, np.clip(wrap_int32(quantized_sqrt(all_codes() - zp_in, scale_in, scale) + zp), -128, 127))


@converter("RSQRT", "int8 int16 float32", "qnn.lut qnn.lut16 rsqrt")
def convert_rsqrt(op: Operator) -> Expr:
    """1 / sqrt(x); for 0 the largest value.  (The reference reports negative numbers as errors; here they count as 0.)"""
    if is_plain(op.type(0)):
        return convert_unary(op, "rsqrt")
    codes = real_codes(op)
    scale, scale_in = np.float32(codes.out[0]), np.float32(codes.data[0])
    if codes.dtype == "int16":

        def function(x: Array) -> Array:
            positive = np.where(x <= 0, np.float32(1), x)
            return np.where(x <= 0, np.float32(32767) * scale, np.float32(1) / apply("sqrt", positive))

        return real_call(op, function)
    if not scale_in:  # only zeros
        return table_call(op, (127,) * 256)
    real = real_multiplier(op.opcode, codes.dtype, (1.0,), (float(np.sqrt(scale_in)), codes.out[0]), oracle=op.oracle)
    multiplier, shift = quantize_multiplier(real)
    table = []
    for value in all_codes() - codes.data[1]:
        if value <= 0:
            table.append(127)
            continue
        m, s = inverse_sqrt(int(value))
        root = int(multiply_by_quantized_multiplier(1, m, s + 20))
        table.append(int(requantize(root, multiplier, shift - 20, zero_point=codes.out[1], lo=-128, hi=127)))
    return table_call(op, tuple(table))


# --- piecewise linear functions

_BOUNDS: dict[str, tuple[float | None, float | None]] = {
    "RELU": (0.0, None),
    "RELU6": (0.0, 6.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
    "RELU_0_TO_1": (0.0, 1.0),
}


def _register_relu(opcode: str) -> None:
    low, high = _BOUNDS[opcode]

    @converter(opcode, "int8 uint8 int16 float32", "clip relu")
    @legacy_uint8
    def convert(op: Operator) -> Expr:
        """A clip if input and output have the same quantisation, else rescaled quantised values."""
        if is_plain(op.type(0)):
            return convert_unary(op, "relu", UnaryAttrs(lo=low, hi=high))
        if opcode == "RELU6" and op.oracle == "tflm":
            return _relu6_of_tflm(op)
        return _clamped(op, low, high)


def _relu6_of_tflm(op: Operator) -> Expr:
    """TFLM clamps the operand's quantised values and rescales nothing, whatever the result's quantisation."""
    codes = real_codes(op)
    scale, zp = codes.data
    lo, hi = int_range(codes.dtype)
    attrs = ClipAttrs(max(lo, zp), min(hi, quantize_value(6.0, scale, zp)))
    return op.call("clip", [op.operand(0)], attrs)


def _clamped(op: Operator, low: float | None, high: float | None) -> Expr:
    codes = real_codes(op)
    out, (scale, zp) = op.result_type(), codes.out
    lo, hi = int_range(codes.dtype)
    if low is not None:
        lo = max(lo, quantize_value(low, scale, zp))
    if high is not None:
        hi = min(hi, quantize_value(high, scale, zp))
    if lo > hi:
        op.refuse("no value of the result is in the activation's range", code="E1206")
    x = op.operand(0)
    if codes.data == codes.out:
        return op.call("clip", [x], ClipAttrs(lo, hi))
    multiplier, shift = quantize_multiplier(codes.ratio())
    if codes.dtype == "int8":
        return table_call(op, requantize(all_codes() - codes.data[1], multiplier, shift, zero_point=zp, lo=lo, hi=hi))
    attrs = Requantize8Attrs(0, multiplier, shift, zp, lo, hi, codes.dtype, out.quant)
    return op.call("qnn.requantize8", [x], attrs)


for _opcode in _BOUNDS:
    _register_relu(_opcode)


@converter("ABS", "int8 int16 int32 float32", "abs cast qnn.lut")
def convert_abs(op: Operator) -> Expr:
    """The absolute value; int8 by table, int16 as int32 numbers that are rescaled."""
    if is_plain(op.type(0)):
        return convert_unary(op, "abs")
    codes = real_codes(op)
    multiplier, shift = quantize_multiplier(codes.ratio())  # equal scales: 1/2 shifted left once, which is exactly 1
    lo, hi = int_range(codes.dtype)
    if codes.dtype == "int8":
        size = np.abs(all_codes() - codes.data[1])
        return table_call(op, requantize(size, multiplier, shift, zero_point=codes.out[1], lo=lo, hi=hi))
    x = op.operand(0)
    size_of = op.call("abs", [op.call("cast", [x], CastAttrs("int32"))], UnaryAttrs())
    attrs = Requantize8Attrs(0, multiplier, shift, 0, lo, hi, "int16", op.result_type().quant)
    return op.call("qnn.requantize8", [size_of], attrs)


# --- HARD_SWISH


@converter("HARD_SWISH", "int8 uint8 float32", "hard_swish qnn.lut")
@legacy_uint8
def convert_hard_swish(op: Operator) -> Expr:
    """x * relu6(x + 3) / 6; quantised values in the reference's 16-bit fixed point."""
    if is_plain(op.type(0)):
        return convert_unary(op, "hard_swish")
    codes = real_codes(op, ("int8",))
    fine = codes.data[0] / 128  # exact, as is the reference's product in float32
    out_multiplier, out_exponent = quantize_multiplier(codes.ratio(1 / 128))
    if out_exponent > 0:
        op.refuse("the result's scale is too small for the data's", code="E1226")
    relu_multiplier, relu_exponent = quantize_multiplier(
        real_multiplier(op.opcode, codes.dtype, (fine,), (3.0 / 32768.0,), oracle=op.oracle)
    )
    x = (all_codes() - codes.data[1]) << 7
    relu = _saturated(x << (relu_exponent - 1)) if relu_exponent > 0 else x
    relu = _high_mul16(relu, _narrow16(relu_multiplier))
    if relu_exponent > 0:
        relu = _saturated(relu * 2)
    elif relu_exponent < 0:
        relu = _divided16(relu, -relu_exponent)
    relu = (relu + (1 << 15)) >> 1
    product = relu * _high_mul16(x, _narrow16(out_multiplier))
    high = np.sign(product) * (np.abs(product) >> 15)  # C's division rounds towards zero
    return table_call(op, np.clip(_divided16(high, -out_exponent) + codes.out[1], -128, 127))


def _narrow16(multiplier: int) -> int:
    """DownScaleInt32ToInt16Multiplier."""
    return 32767 if multiplier >= (1 << 31) - 1 - (1 << 15) else (multiplier + (1 << 15)) >> 16


def _divided16(x: Array, exponent: int) -> Array:
    """RoundingDivideByPOT of int16, whose remainder mask is -1 from 2^16 on: it then gives 1, or -1 for negative numbers."""
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


def convert_gelu_by_size(op: Operator) -> Expr:
    """GELU by erfc on float32: the operator for a tensor of this size."""
    whole = convert_unary(op, "gelu")
    if tensor_type(whole).size % VECTOR == 0:
        return whole
    return op.call("gelu_uneven", [op.operand(0)], UnaryAttrs())


@converter("PRELU", "int8 uint8 int16 float32", "greater_equal multiply qnn.prelu select")
@legacy_uint8
def convert_prelu(op: Operator) -> Expr:
    """qnn.prelu of quantised values; a select of float32."""
    data, alpha = op.type(0), op.type(1)
    x, slope = op.operands(0, 1)
    if is_plain(data):
        op.require_dtype(data, {"float32"})
        return _float_prelu(x, slope, op)
    codes = real_codes(op)
    op.require_dtype(alpha, {"int8"}, what="an alpha")
    scale_alpha, alpha_zp = op.quant(alpha, what="alpha", may_be_zero=True)
    positive = quantize_multiplier(codes.ratio())
    negative = quantize_multiplier(codes.ratio(scale_alpha))
    lo, hi = int_range(codes.dtype)
    attrs = PreluAttrs(codes.data[1], alpha_zp, codes.out[1], positive, negative, lo, hi, op.result_type().quant)
    return op.call("qnn.prelu", [x, slope], attrs)


def _float_prelu(x: Expr, slope: Expr, op: Operator) -> Expr:
    """x if x >= 0 (so also -0), else x * alpha."""
    zero = const(np.zeros((), np.float32))
    above = op.call("greater_equal", [x, zero], CompareAttrs())
    return op.call("select", [above, x, op.call("multiply", [x, slope], BinaryAttrs())], SelectAttrs())


@converter("LEAKY_RELU", "int8 uint8 int16 float32", "leaky_relu qnn.lut qnn.prelu")
@legacy_uint8
def convert_leaky(op: Operator) -> Expr:
    """x, or alpha * x below 0."""
    alpha = float(op.option("alpha"))
    if is_plain(op.type(0)):
        return convert_unary(op, "leaky_relu", UnaryAttrs(alpha=alpha))
    codes = real_codes(op)
    if codes.dtype == "int8":
        return table_call(op, leaky_codes(all_codes() - codes.data[1], codes, alpha))
    if alpha < 0:
        op.refuse("a negative slope on int16 is not supported", code="E1122")
    positive, negative = leaky_multipliers(codes, alpha)
    lo, hi = int_range("int16")
    attrs = PreluAttrs(0, 0, 0, positive, negative, lo, hi, op.result_type().quant)
    one = const(np.ones((1,) * len(op.type(0).shape), np.int8))
    return op.call("qnn.prelu", [op.operand(0), one], attrs)
