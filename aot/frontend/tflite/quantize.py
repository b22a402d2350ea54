"""Converters of operators that change the type of elements: QUANTIZE, DEQUANTIZE, CAST and the like."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from aot.frontend.tflite.convert import EVERY, Operator, converter
from aot.numerics.fixed_point import quantize_multiplier, real_multiplier
from aot.op.math.cast import BITCASTABLE as BITCAST_DTYPES
from aot.op.math.cast import CASTABLE, BitcastAttrs, CastAttrs, FakeQuantAttrs, bitcast_shape
from aot.op.qnn.quantize import CODES, SOURCES, DequantizeAttrs, QuantizeAttrs, Requantize8Attrs, evaluate_dequantize
from aot.op.qnn.quantize import DEQUANTIZABLE as DEQUANTIZE_DTYPES
from aot.relay.expr import Constant, Expr, const
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
        return const(evaluate_dequantize(x.data, attrs=attrs, out_type=x.type.with_dtype("float32")), span=op.span)
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
