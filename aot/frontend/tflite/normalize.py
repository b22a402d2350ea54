"""Converters of operators that normalise rows: SOFTMAX, LOG_SOFTMAX, L2_NORMALIZATION, LOCAL_RESPONSE_NORMALIZATION."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from aot.frontend.tflite.convert import Operator, converter
from aot.frontend.tflite.retyped import is_legacy, legacy_uint8, rounded_to_half, widens_halves
from aot.ir.span import Span
from aot.numerics.fixed_point import quantize_multiplier, softmax_scaling
from aot.op.math.arithmetic import BinaryAttrs
from aot.op.math.unary import UnaryAttrs
from aot.op.qnn import softmax as ops
from aot.op.reduce import ReduceAttrs
from aot.relay.expr import Expr, call, const, tensor_type
from aot.support.dtype import bits, int_range

SOFTMAX_RESULTS = frozenset({"int8", "int16"})
"""Types of the result; the scale is 2^-bits and the zero point the type's lowest value."""

SOFTMAX_DEPTH = 4095
"""Maximum elements of a row; more could overflow the sum's 12 integer bits."""


@converter(
    "SOFTMAX",
    "int8 uint8 int16 float16 float32",
    "cast divide exp qnn.softmax qnn.softmax16 reduce_max subtract sum",
    oracle="LiteRT; of int16 TFLM with `--oracle tflm`",
)
@legacy_uint8
def _softmax(op: Operator) -> Expr | Sequence[Expr]:
    """qnn.softmax with the integers of SoftmaxPrepare, qnn.softmax16, or float32 arithmetic."""
    data, out = op.type(0), op.result_type()
    if data.dtype == "int16":
        return convert_softmax16(op)
    if data.dtype == "float32":
        return convert_float_softmax(op)
    if data.dtype == "float16":
        return widens_halves(partial(convert_float_softmax, halves=True))(op)
    op.require_dtype(data, {"int8"})
    op.require_dtype(out, SOFTMAX_RESULTS, what="a result")
    scale, _ = op.quant(data)
    out_scale, out_zp = op.quant(out, what="the result")
    codes, lowest = 2 ** bits(out.dtype), int_range(out.dtype)[0]
    if abs(out_scale * codes - 1) > 0.001 or out_zp != lowest:
        op.refuse(f"the result must have scale 1/{codes} and zero point {lowest}", code="E1225")
    op.require_rows(data, most=SOFTMAX_DEPTH)
    real = op.real_multiplier(data.dtype, (op.option("beta"), scale))
    if not real * (1 << 26) > 1:
        op.refuse(f"beta {op.option('beta')} with scale {scale} is not supported", code="E1122")
    return op.call("qnn.softmax", [op.operand(0)], ops.SoftmaxAttrs(*softmax_scaling(real), out.dtype))


SOFTMAX16_DEPTH = 1 << 15
"""Maximum elements of a row; more could overflow the sum of their exponentials."""


def convert_softmax16(op: Operator) -> Expr:
    """qnn.softmax16 with the integers of SoftmaxPrepare (called by the converter of SOFTMAX)."""
    data, out = op.type(0), op.result_type(0, {"int16"})
    scale, zp = op.quant(data, may_be_zero=True)
    out_scale, out_zp = op.quant(out, what="the result")
    if zp or out_zp or abs(out_scale * 32768 - 1) > 0.001:
        op.refuse("the result must have scale 1/32768, and all zero points must be 0", code="E1225")
    op.require_rows(data, most=SOFTMAX16_DEPTH)
    beta = float(np.float32(op.option("beta")))
    real = op.real_multiplier("int16", (scale, beta), (10.0 / 65535.0,))
    if not (0 < real < 2.0**14 or scale == 0):
        op.refuse(f"beta {op.option('beta')} with scale {scale} is not supported", code="E1122")
    attrs = ops.Softmax16Attrs(*quantize_multiplier(real), "float64" if op.oracle == "litert" else "float32")
    return op.call("qnn.softmax16", [op.operand(0)], attrs)


LOG_SOFTMAX_DEPTH = 4095
"""Maximum elements of a row; more could overflow the sum's 12 integer bits."""


def log_scaling(input_scale: float) -> ops.LogSoftmaxAttrs:
    """PreprocessLogSoftmaxScalingExp and CalculateInputRadius for a scale above 2^-26."""
    multiplier, left_shift, diff_min = softmax_scaling(input_scale)
    return ops.LogSoftmaxAttrs(multiplier, left_shift, diff_min, *quantize_multiplier((1 << (31 - left_shift)) / multiplier))


@converter("LOG_SOFTMAX", "int8 uint8 float32", "exp log qnn.log_softmax reduce_max subtract sum")
@legacy_uint8
def _log_softmax(op: Operator) -> Expr:
    """qnn.log_softmax with the integers of LogSoftmaxPrepare, or float32 arithmetic."""
    data, out = op.type(0), op.result_type()
    if data.dtype == "float32":
        return convert_float_log_softmax(op)
    op.require_dtype(data, {"int8"})
    op.require_dtype(out, {"int8"}, what="a result")
    scale, _ = op.quant(data)
    if op.quant(out, what="the result") != (ops.OUTPUT_SCALE, ops.OUTPUT_ZERO_POINT):
        op.refuse("the result must have scale 1/16 and its largest value as zero point", code="E1225")
    op.require_rows(data, most=LOG_SOFTMAX_DEPTH)
    if not scale * (1 << 26) > 1:
        op.refuse(f"scale {scale} is not supported", code="E1226")
    return op.call("qnn.log_softmax", [op.operand(0)], log_scaling(scale))


L2_DEPTH = 1 << 15
"""Maximum elements of a row; more could overflow the sum of their squares."""


@converter("L2_NORMALIZATION", "int8 uint8 float32", "divide qnn.l2_normalize relu sqrt square sum")
def _l2_normalization(op: Operator) -> Expr | Sequence[Expr]:
    """qnn.l2_normalize, or float32 arithmetic."""
    left_shift = ops.OUTPUT_BITS if is_legacy(op.type(0)) else 0
    return legacy_uint8(partial(_l2_of_codes, left_shift=left_shift))(op)


def _l2_of_codes(op: Operator, *, left_shift: int) -> Expr:
    if op.option("fused_activation_function") != "NONE":
        op.refuse("a fused activation is not supported (TFLite rejects it too)")
    data, out = op.type(0), op.result_type()
    if data.dtype == "float32":
        return convert_float_l2(op)
    op.require_dtype(data, {"int8"})
    op.require_dtype(out, {"int8"}, what="a result")
    _, zp = op.quant(data, may_be_zero=True)
    if op.quant(out, what="the result") != (2.0**-ops.OUTPUT_BITS, 0):
        op.refuse("the result must have scale 1/128 and zero point 0 (128 for uint8)", code="E1225")
    op.require_rows(data, most=L2_DEPTH)
    return op.call("qnn.l2_normalize", [op.operand(0)], ops.L2NormalizeAttrs(zp, left_shift))


# LOG_SOFTMAX, SOFTMAX and L2_NORMALIZATION on float32 rows (the last axis), from reductions and arithmetic.
#
# log_softmax = (x - max) - log(sum of e^(x - max)); softmax = e^((x - max) * beta) / sum; l2 = x / max(sqrt(sum of x^2), 1e-6).
# Oracles: `reference_ops::LogSoftmax`, `Softmax`, `L2Normalization` in float32, in the same order.


EPSILON = 1e-6
"""The smallest norm that L2_NORMALIZATION divides by."""


def _reduced_row(kind: str, x: Expr, span: Span) -> Expr:
    return call(kind, [x], ReduceAttrs(kind, (len(tensor_type(x).shape) - 1,), True), span=span)


def _binary(name: str, a: Expr, b: Expr, span: Span) -> Expr:
    return call(name, [a, b], BinaryAttrs(), span=span)


def _number(value: float) -> Expr:
    return const(np.asarray(value, np.float32))


def _float_rows(op: Operator) -> Expr:
    """Operand 0, float32 with at least one dimension."""
    data = op.type(0, {"float32"})
    if not data.shape:
        op.refuse("a tensor without dimensions has no rows", code="E1207")
    return op.operand(0)


def convert_float_log_softmax(op: Operator) -> Expr:
    """float32; called by the converter of LOG_SOFTMAX."""
    x, span = _float_rows(op), op.span
    centred = _binary("subtract", x, _reduced_row("reduce_max", x, span), span)
    total = _reduced_row("sum", op.call("exp", [centred], UnaryAttrs()), span)
    return _binary("subtract", centred, op.call("log", [total], UnaryAttrs()), span)


def convert_float_softmax(op: Operator, *, halves: bool = False) -> Expr:
    """float32; called by the converter of SOFTMAX.  `halves`: the dividends, not the summands, are rounded to float16."""
    x, span = _float_rows(op), op.span
    centred = _binary("subtract", x, _reduced_row("reduce_max", x, span), span)
    if op.option("beta") != 1:
        centred = _binary("multiply", centred, _number(op.option("beta")), span)
    exps = op.call("exp", [centred], UnaryAttrs())
    stored = rounded_to_half(exps, span) if halves else exps
    return _binary("divide", stored, _reduced_row("sum", exps, span), span)


def convert_float_l2(op: Operator) -> Expr:
    """float32; called by the converter of L2_NORMALIZATION."""
    x, span = _float_rows(op), op.span
    total = _reduced_row("sum", op.call("square", [x], UnaryAttrs()), span)
    norm = op.call("sqrt", [total], UnaryAttrs())
    # std::max(norm, epsilon) passes a NaN: a clamp from below
    return _binary("divide", x, op.call("relu", [norm], UnaryAttrs(lo=EPSILON)), span)


@converter("LOCAL_RESPONSE_NORMALIZATION", "float32", "nn.lrn")
def _lrn(op: Operator) -> Expr:
    data = op.type(0, {"float32"})
    numbers = [float(op.option(name)) for name in ("bias", "alpha", "beta")]
    if len(data.shape) != 4 or op.option("radius") < 0 or not np.isfinite(numbers).all():
        op.refuse(f"radius {op.option('radius')} with {numbers} on {data} is not supported", code="E1122")
    return op.call("nn.lrn", [op.operand(0)], ops.LrnAttrs(op.option("radius"), *numbers))
