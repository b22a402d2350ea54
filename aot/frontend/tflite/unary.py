"""Converters of operators with one operand: changes of type (QUANTIZE, CAST, ...), activations and elementary functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np
import numpy.typing as npt

from aot.frontend.tflite.convert import EVERY, Converter, Operator, converter, is_plain
from aot.frontend.tflite.retyped import legacy_uint8, widens_halves
from aot.ir.op import Array
from aot.numerics import fixed_point
from aot.numerics.elementary import apply
from aot.op.math import unary as math_ops
from aot.op.math.arithmetic import BinaryAttrs, CompareAttrs, SelectAttrs
from aot.op.qnn import quantize
from aot.op.qnn.lut import Lut16Attrs, LutAttrs, PreluAttrs, Sigmoid16Attrs, Sqrt16Attrs, populate, quantized_sqrt
from aot.relay.expr import Constant, Expr, const, tensor_type
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range


@converter("QUANTIZE", "int8 uint8 int16 int32 float32", "qnn.quantize")
def _quantize(op: Operator) -> Expr:
    """qnn.quantize of float32, qnn.requantize8 of quantised values."""
    data, out = op.type(0, ("float32", *quantize.SOURCES)), op.result_type()
    op.require_dtype(out, quantize.SOURCES if data.dtype in ("int8", "int16") else quantize.CODES, what="a result")
    scale, zp = op.quant(out, what="the result")
    limits, x = int_range(out.dtype), op.operand(0)
    if data.dtype == "float32":
        return op.call("qnn.quantize", [x], quantize.QuantizeAttrs(scale, zp, *limits, out.dtype))
    scale_in, zp_in = op.quant(data, may_be_zero=True)
    multiplier, shift = op.multiplier(data.dtype, (scale_in,), (scale,))
    return op.call("qnn.requantize8", [x], quantize.Requantize8Attrs(zp_in, multiplier, shift, zp, *limits, out.dtype, out.quant))


@converter("DEQUANTIZE", "int4 int8 uint8 int16 float16", "qnn.dequantize cast")
def _dequantize(op: Operator) -> Expr:
    """qnn.dequantize, for float16 a cast; constants (weights stored as float16 or integers, also with per-channel scales) become
    their value, with a note of how they are stored."""
    data, x = op.type(0), op.operand(0)
    if isinstance(x, Constant):
        return replace(_dequantized(op, x), stored=x.type)
    op.require_dtype(data, (*quantize.DEQUANTIZABLE, "float16"))
    op.require_dtype(op.result_type(), ("float32",), what="a result")
    if data.dtype == "float16":
        return op.call("cast", [x], math_ops.CastAttrs("float32"))
    return op.call("qnn.dequantize", [x], quantize.DequantizeAttrs(*op.quant(data, may_be_zero=True)))


def _dequantized(op: Operator, x: Constant) -> Constant:
    """The float32 values of float16 numbers, or of integers with one scale or one per index of an axis."""
    op.require_dtype(x.type, (*quantize.DEQUANTIZABLE, "int4", "float16"))
    op.require_dtype(op.result_type(), ("float32",), what="a result")
    if x.type.dtype == "float16":
        return const(x.data.astype(np.float32), span=op.span)
    quant, shape = x.type.quant, x.type.shape
    if quant is None or not quant.is_per_channel:
        attrs = quantize.DequantizeAttrs(*op.quant(x.type, may_be_zero=True))
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


def nudged(low: float, high: float, bits: int) -> math_ops.FakeQuantAttrs:
    """The range moved so that 0 is one of the numbers; in float32 steps."""
    a, b, top = np.float32(low), np.float32(high), np.float32((1 << bits) - 1)
    scale = (b - a) / top
    zero = np.float32(0) - a / scale
    point = np.float32(np.floor(np.float64(min(max(zero, np.float32(0)), top)) + 0.5))
    return math_ops.FakeQuantAttrs(float((np.float32(0) - point) * scale), float((top - point) * scale), float(scale))


@converter("FAKE_QUANT", "float32", "fake_quant")
def _fake_quant(op: Operator) -> Expr:
    op.require_dtype(op.type(0), {"float32"})
    if op.option("narrow_range"):
        op.refuse("a narrow range is not supported (TFLite rejects it too)")
    low, high, bits = float(op.option("min")), float(op.option("max")), op.option("num_bits")
    attrs = nudged(low, high, bits) if 1 <= bits <= 16 and low <= 0 <= high and low < high else None
    if attrs is None or not np.isfinite([attrs.low, attrs.high]).all() or not attrs.scale >= np.finfo(np.float32).tiny:
        op.refuse(f"{bits} bits from {low} to {high} are not a valid quantisation", code="E1122")
    return op.call("fake_quant", [op.operand(0)], attrs)


@converter("CAST", EVERY, "cast")
def _cast(op: Operator) -> Expr:
    """cast to the declared type of the result; nothing if the operand already has it."""
    data, out, x = op.type(0, math_ops.CASTABLE), op.result_type(0, math_ops.CASTABLE), op.operand(0)
    return x if data.dtype == out.dtype else op.call("cast", [x], math_ops.CastAttrs(out.dtype))


@converter("BITCAST", "int8 uint8 int16 uint16 int32 uint32 int64 float16 float32", "bitcast")
def _bitcast(op: Operator) -> Expr:
    """bitcast to the declared type of the result."""
    data, dtype = op.type(0, math_ops.BITCASTABLE), op.result_type(0, math_ops.BITCASTABLE).dtype
    return op.call("bitcast", [op.operand(0)], math_ops.BitcastAttrs(math_ops.bitcast_shape(data, dtype), dtype))


# DENSIFY: the zeros of a sparse constant are inserted when the constant is read, so there is nothing left to do.
#
# Oracle: `kernels/densify.cc`.


@converter("DENSIFY", "int8 float16 float32", "")
def _densify(op: Operator) -> Constant:
    """The constant itself."""
    op.require_dtype(op.type(0), {"int8", "float16", "float32"})
    value = op.operand(0)
    if not isinstance(value, Constant):
        op.refuse("only constants can be sparse", code="E1204")
    return value


# Activations and elementary functions, on numbers, or by table on quantised values.


Float32 = npt.NDArray[np.float32]
Quant = tuple[float, int]


def all_codes() -> npt.NDArray[np.int64]:
    return np.arange(-128, 128, dtype=np.int64)


@lru_cache(maxsize=64)  # an unrolled network has few different tables
def float_table(transform: Callable[[Float32], Float32], data: tuple[float, int], out: tuple[float, int]) -> tuple[int, ...]:
    """LUTPopulate of `kernels/internal/common.h`: a float32 function between (scale, zero point) of data and of result."""
    (scale_in, zp_in), (scale, zp) = data, out
    real = np.float32(scale_in) * (all_codes() - zp_in).astype(np.float32)
    scaled = transform(real).astype(np.float32) * (np.float32(1) / np.float32(scale))
    if np.isnan(scaled).any():
        raise fixed_point.NotAMultiplierError(f"scales of {scale_in:g} and {scale:g} give results that are not finite")
    # far beyond all quantised values; the reference's conversion is undefined beyond int32
    bounded = np.clip(scaled, -(2.0**30), 2.0**30)
    return tuple(min(max(fixed_point.round_half_away(float(v)) + zp, -128), 127) for v in bounded)


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


def convert_unary(op: Operator, name: str, attrs: math_ops.UnaryAttrs | None = None) -> Expr:
    """The operator `name` on plain numbers."""
    op.require_dtype(op.type(0), math_ops.UNARY[name].dtypes)
    return op.call(name, [op.operand(0)], attrs or math_ops.UnaryAttrs())


def _converter_of(name: str) -> Converter:
    def convert(op: Operator) -> Expr:
        return convert_unary(op, name)

    return convert


def _enter(opcode: str, types: str, through: str, convert: Converter) -> None:
    """Register the converter, extended to quantised uint8 and to float16 if `types` name them."""
    extended = legacy_uint8(convert) if "uint8" in types.split() else convert
    converter(opcode, types, through)(widens_halves(extended) if "float16" in types.split() else extended)


for _opcode, _name, _more in (
    ("NEG", "negative", " float16"),
    ("SIGN", "sign", ""),
    ("SQUARE", "square", ""),
    ("SIN", "sin", " float16"),
    ("COS", "cos", " float16"),
    ("FLOOR", "floor", " float16"),
    ("CEIL", "ceil", ""),
    ("ROUND", "rint", ""),
    ("LOGICAL_NOT", "logical_not", ""),
):
    _types = " ".join(math_ops.UNARY[_name].dtypes) + _more
    _enter(_opcode, _types, f"cast {_name}" if _more else _name, _converter_of(_name))


# Converters of functions of one tensor that exist for quantised values too: by number (float32), by table (8 bits), by
# interpolation (int16).
#
# Oracles, for quantised values: LOGISTIC, TANH, ELU, GELU, EXP, LOG: the table of `LUTPopulate` (LOGISTIC and TANH of
# int16 have their own, see `lut16.py`); RELU ...: `QuantizedReluX`; ABS, SQRT, RSQRT: `elementwise.cc`; HARD_SWISH,
# LEAKY_RELU: `reference_ops`.


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
        return fixed_point.real_multiplier(self.opcode, self.dtype, (self.data[0], factor), (self.out[0],), oracle=self.oracle)

    @property
    def centred(self) -> npt.NDArray[np.int64]:
        """All 256 values of an int8 operand, less its zero point."""
        return all_codes() - self.data[1]


_Quantised = Callable[[Operator, Codes], Expr]


def real_codes(op: Operator, dtypes: tuple[str, ...]) -> Codes:
    """Operand 0 and the result, of one type of `dtypes`; int16 without zero points."""
    data, out = op.type(0, dtypes), op.result_type()
    op.require_dtype(out, (data.dtype,), what="a result")
    codes = Codes(op.opcode, data.dtype, op.quant(data, may_be_zero=True), op.quant(out, what="the result"), op.oracle)
    if data.dtype == "int16" and (codes.data[1] or codes.out[1]):
        op.refuse("int16 with a non-zero zero point is not supported (TFLite rejects it too)", code="E1224")
    return codes


def _function(
    opcode: str, types: str, through: str, plain: str | Callable[[Operator], Expr], *, of: tuple[str, ...] = ("int8", "int16")
) -> Callable[[_Quantised], _Quantised]:
    """Register a function of one tensor: the operator `plain` on numbers, the decorated one on quantised values of types `of`."""

    def register(quantised: _Quantised) -> _Quantised:
        def convert(op: Operator) -> Expr:
            if is_plain(op.type(0)):
                return convert_unary(op, plain) if isinstance(plain, str) else plain(op)
            return quantised(op, real_codes(op, of))

        _enter(opcode, types, through, convert)
        return quantised

    return register


def table_call(op: Operator, table: Array | tuple[int, ...]) -> Expr:
    """qnn.lut of operand 0."""
    return op.call("qnn.lut", [op.operand(0)], LutAttrs(tuple(int(v) for v in table), op.result_type().quant))


def real_call(op: Operator, codes: Codes, function: Callable[[Array], Array]) -> Expr:
    """A real function on quantised values."""
    if codes.dtype == "int8":
        return table_call(op, float_table(function, codes.data, codes.out))
    try:
        table = populate(function, codes.data, codes.out)
    except ValueError as error:
        op.refuse(f"a scale of {codes.data[0]:g} is not supported: {error}", code="E1226")
    return op.call("qnn.lut16", [op.operand(0)], Lut16Attrs(table, op.result_type().quant))


def _tanh(x: Array) -> Array:
    return apply("tanh", x)


def _sigmoid16(op: Operator, codes: Codes, function: str, shifts: tuple[int, ...]) -> Expr:
    """LOGISTIC or TANH of int16: the result has 15 fractional bits."""
    if abs(codes.out[0] * 32768 - 1) > 1e-3:
        op.refuse(f"the result must have scale 1/32768, not {codes.out[0]:g}", code="E1225")
    multiplier, shift = sigmoid_scaling(codes.data[0], shifts)
    if multiplier >= 1 << 16 or shift > 30:
        op.refuse(f"a scale of {codes.data[0]:g} is not supported", code="E1226")
    return op.call("qnn.sigmoid16", [op.operand(0)], Sigmoid16Attrs(function, multiplier, shift, op.result_type().quant))


@_function("LOGISTIC", "int8 uint8 int16 float16 float32", "cast qnn.lut qnn.sigmoid16 sigmoid", "sigmoid")
def _logistic(op: Operator, codes: Codes) -> Expr:
    """1 / (1 + e^-x)."""
    return _sigmoid16(op, codes, "logistic", (0,)) if codes.dtype == "int16" else real_call(op, codes, math_ops.sigmoid)


@_function("TANH", "int8 uint8 int16 float16 float32", "cast qnn.lut qnn.sigmoid16 tanh", "tanh")
def _hyperbolic_tangent(op: Operator, codes: Codes) -> Expr:
    return _sigmoid16(op, codes, "tanh", (0, 1)) if codes.dtype == "int16" else real_call(op, codes, _tanh)


@_function("ELU", "int8 float32", "elu qnn.lut", "elu", of=("int8",))
def _elu(op: Operator, codes: Codes) -> Expr:
    """x, or e^x - 1 below 0."""
    return real_call(op, codes, lambda x: np.where(x < 0, apply("expm1", x), x))


@_function("EXP", "int8 int16 float32", "exp qnn.lut qnn.lut16", "exp")
def _exp(op: Operator, codes: Codes) -> Expr:
    return real_call(op, codes, lambda x: apply("exp", x))


@_function("LOG", "int8 int16 float32", "log qnn.lut qnn.lut16", "log")
def _log(op: Operator, codes: Codes) -> Expr:
    """The natural logarithm; for quantised values that are not positive the smallest result."""
    lowest = np.float32(int_range(codes.dtype)[0] - codes.out[1]) * np.float32(codes.out[0])
    return real_call(op, codes, lambda x: np.where(x <= 0, lowest, apply("log", np.where(x <= 0, np.float32(1), x))))


@_function("SQRT", "int8 int16 float32", "qnn.lut qnn.sqrt16 sqrt", "sqrt")
def _sqrt(op: Operator, codes: Codes) -> Expr:
    """The square root, truncated for quantised values; negative numbers, which the reference reports as errors, count as 0."""
    scale_in, (scale, zp) = codes.data[0], codes.out
    if codes.dtype == "int16":
        return op.call("qnn.sqrt16", [op.operand(0)], Sqrt16Attrs(scale_in, scale, op.result_type().quant))
    return table_call(op, np.clip(fixed_point.wrap_int32(quantized_sqrt(codes.centred, scale_in, scale) + zp), -128, 127))


@_function("RSQRT", "int8 int16 float32", "qnn.lut qnn.lut16 rsqrt", "rsqrt")
def _rsqrt(op: Operator, codes: Codes) -> Expr:
    """1 / sqrt(x); for 0 the largest value.  (The reference reports negative numbers as errors; here they count as 0.)"""
    scale, scale_in = np.float32(codes.out[0]), np.float32(codes.data[0])
    if codes.dtype == "int16":

        def function(x: Array) -> Array:
            positive = np.where(x <= 0, np.float32(1), x)
            return np.where(x <= 0, np.float32(32767) * scale, np.float32(1) / apply("sqrt", positive))

        return real_call(op, codes, function)
    if not scale_in:  # only zeros
        return table_call(op, (127,) * 256)
    real = op.real_multiplier(codes.dtype, (1.0,), (float(np.sqrt(scale_in)), codes.out[0]))
    multiplier, shift = fixed_point.quantize_multiplier(real)

    def inverse(value: int) -> int:
        if value <= 0:
            return 127
        m, s = fixed_point.inverse_sqrt(value)
        root = int(fixed_point.multiply_by_quantized_multiplier(1, m, s + 20))
        return int(fixed_point.requantize(root, multiplier, shift - 20, zero_point=codes.out[1], lo=-128, hi=127))

    return table_call(op, tuple(inverse(int(value)) for value in codes.centred))


def _plain_gelu(op: Operator) -> Expr:
    """GELU by tanh, or by erfc: the operator for a tensor of this size."""
    if op.option("approximate"):
        return convert_unary(op, "gelu_tanh")
    whole = convert_unary(op, "gelu")
    return (
        whole
        if tensor_type(whole).size % math_ops.VECTOR == 0
        else op.call("gelu_uneven", [op.operand(0)], math_ops.UnaryAttrs())
    )


@widens_halves
def _gelu_of_halves(op: Operator) -> Expr:
    return convert_unary(op, "gelu_half_tanh" if op.option("approximate") else "gelu_half")


@converter("GELU", "int8 uint8 int16 float16 float32", "cast gelu gelu_half gelu_uneven qnn.lut qnn.lut16")
@legacy_uint8
def _gelu(op: Operator) -> Expr | Sequence[Expr]:
    """x times the probability that a standard normal variable is less than x."""
    if op.type(0).dtype == "float16":
        return _gelu_of_halves(op)
    if is_plain(op.type(0)):
        return _plain_gelu(op)
    return real_call(op, real_codes(op, ("int8", "int16")), partial(math_ops.gelu, approximate=bool(op.option("approximate"))))


# --- piecewise linear functions


def _clamped(op: Operator, codes: Codes, *, low: float | None, high: float | None) -> Expr:
    """A clip if input and output have the same quantisation, else rescaled quantised values.

    For RELU6, TFLM clamps the operand's quantised values and rescales nothing, whatever the result's quantisation.
    """
    as_it_is = op.opcode == "RELU6" and op.oracle == "tflm"
    scale, zp = codes.data if as_it_is else codes.out
    lo, hi = int_range(codes.dtype)
    if low is not None:
        lo = max(lo, fixed_point.quantize_value(low, scale, zp))
    if high is not None:
        hi = min(hi, fixed_point.quantize_value(high, scale, zp))
    if lo > hi and not as_it_is:
        op.refuse("no value of the result is in the activation's range", code="E1206")
    x = op.operand(0)
    if as_it_is or codes.data == codes.out:
        return op.call("clip", [x], quantize.ClipAttrs(lo, hi))
    multiplier, shift = fixed_point.quantize_multiplier(codes.ratio())
    if codes.dtype == "int8":
        return table_call(op, fixed_point.requantize(codes.centred, multiplier, shift, zero_point=zp, lo=lo, hi=hi))
    return op.call(
        "qnn.requantize8", [x], quantize.Requantize8Attrs(0, multiplier, shift, zp, lo, hi, codes.dtype, op.result_type().quant)
    )


def _plain_relu(op: Operator, *, low: float | None, high: float | None) -> Expr:
    return convert_unary(op, "relu", math_ops.UnaryAttrs(lo=low, hi=high))


_BOUNDS: dict[str, tuple[float | None, float | None]] = {
    "RELU": (0.0, None),
    "RELU6": (0.0, 6.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
    "RELU_0_TO_1": (0.0, 1.0),
}
for _opcode, (_low, _high) in _BOUNDS.items():
    _plain = partial(_plain_relu, low=_low, high=_high)
    _function(_opcode, "int8 uint8 int16 float32", "clip relu", _plain)(partial(_clamped, low=_low, high=_high))


@_function("ABS", "int8 int16 int32 float32", "abs cast qnn.lut", "abs")
def _abs(op: Operator, codes: Codes) -> Expr:
    """The absolute value; int8 by table, int16 as int32 numbers that are rescaled."""
    multiplier, shift = fixed_point.quantize_multiplier(codes.ratio())  # equal scales: 1/2 shifted left once, which is exactly 1
    lo, hi = int_range(codes.dtype)
    if codes.dtype == "int8":
        return table_call(
            op, fixed_point.requantize(np.abs(codes.centred), multiplier, shift, zero_point=codes.out[1], lo=lo, hi=hi)
        )
    size_of = op.call("abs", [op.call("cast", [op.operand(0)], math_ops.CastAttrs("int32"))], math_ops.UnaryAttrs())
    return op.call(
        "qnn.requantize8", [size_of], quantize.Requantize8Attrs(0, multiplier, shift, 0, lo, hi, "int16", op.result_type().quant)
    )


@_function("HARD_SWISH", "int8 uint8 float32", "hard_swish qnn.lut", "hard_swish", of=("int8",))
def _hard_swish(op: Operator, codes: Codes) -> Expr:
    """x * relu6(x + 3) / 6; quantised values in the reference's 16-bit fixed point."""
    fine = codes.data[0] / 128  # exact, as is the reference's product in float32
    out_multiplier, out_exponent = fixed_point.quantize_multiplier(codes.ratio(1 / 128))
    if out_exponent > 0:
        op.refuse("the result's scale is too small for the data's", code="E1226")
    real = op.real_multiplier(codes.dtype, (fine,), (3.0 / 32768.0,))
    relu_multiplier, relu_exponent = fixed_point.quantize_multiplier(real)
    x = codes.centred << 7
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
    return fixed_point.rounding_divide_by_pot(x, exponent) if exponent < 16 else np.where(x < 0, -1, 1)


def _saturated(x: Array) -> Array:
    return np.asarray(np.clip(x, -32768, 32767))


def _high_mul16(a: Array, b: int) -> Array:
    """SaturatingRoundingDoublingHighMul of int16; its division rounds towards zero after the nudge."""
    product = a.astype(np.int64) * b
    nudged = product + np.where(product >= 0, 1 << 14, 1 - (1 << 14))
    return _saturated(np.sign(nudged) * (np.abs(nudged) >> 15))


def _float_prelu(op: Operator) -> Expr:
    """x if x >= 0 (so also -0), else x * alpha."""
    x, slope = op.operands(0, 1)
    op.require_dtype(op.type(0), {"float32"})
    above = op.call("greater_equal", [x, const(np.zeros((), np.float32))], CompareAttrs())
    return op.call("select", [above, x, op.call("multiply", [x, slope], BinaryAttrs())], SelectAttrs())


@_function("PRELU", "int8 uint8 int16 float32", "greater_equal multiply qnn.prelu select", _float_prelu)
def _prelu(op: Operator, codes: Codes) -> Expr:
    alpha = op.type(1, {"int8"}, what="an alpha")
    scale_alpha, alpha_zp = op.quant(alpha, what="alpha", may_be_zero=True)
    slopes = fixed_point.quantize_multiplier(codes.ratio()), fixed_point.quantize_multiplier(codes.ratio(scale_alpha))
    attrs = PreluAttrs(codes.data[1], alpha_zp, codes.out[1], *slopes, *int_range(codes.dtype), op.result_type().quant)
    return op.call("qnn.prelu", op.operands(0, 1), attrs)


def _float_leaky(op: Operator) -> Expr:
    return convert_unary(op, "leaky_relu", math_ops.UnaryAttrs(alpha=float(op.option("alpha"))))


@_function("LEAKY_RELU", "int8 uint8 int16 float32", "leaky_relu qnn.lut qnn.prelu", _float_leaky)
def _leaky(op: Operator, codes: Codes) -> Expr:
    """x, or alpha * x below 0: LeakyReluPrepare and QuantizeLeakyRelu."""
    alpha = float(op.option("alpha"))
    identity = fixed_point.quantize_multiplier(codes.ratio())
    slope = fixed_point.quantize_multiplier(abs(codes.ratio(alpha)))  # alpha without its sign
    lo, hi = int_range(codes.dtype)
    if codes.dtype == "int8":
        x = codes.centred
        below = fixed_point.multiply_by_quantized_multiplier(x, *slope) * int(math.copysign(1, alpha))
        total = np.where(x >= 0, fixed_point.multiply_by_quantized_multiplier(x, *identity), below) + codes.out[1]
        return table_call(op, np.clip(total, lo, hi))
    if alpha < 0:
        op.refuse("a negative slope on int16 is not supported", code="E1122")
    one = const(np.ones((1,) * len(op.type(0).shape), np.int8))
    return op.call("qnn.prelu", [op.operand(0), one], PreluAttrs(0, 0, 0, identity, slope, lo, hi, op.result_type().quant))
