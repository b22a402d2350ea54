"""Converters of operators that normalise rows: SOFTMAX, LOG_SOFTMAX, L2_NORMALIZATION, LOCAL_RESPONSE_NORMALIZATION."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from aot.frontend.tflite.convert import (
    ConvertContext,
    from_tflite,
    operand,
    require_dtype,
    require_quant,
    require_rows,
    unsupported,
)
from aot.frontend.tflite.retyped import is_legacy, legacy_uint8, rounded_to_half, widens_halves
from aot.frontend.view import OperatorView
from aot.ir.span import Span
from aot.numerics.fixed_point import quantize_multiplier, real_multiplier, softmax_scaling
from aot.op.math.arithmetic import BinaryAttrs
from aot.op.math.unary import UnaryAttrs
from aot.op.qnn.softmax import (
    OUTPUT_BITS,
    OUTPUT_SCALE,
    OUTPUT_ZERO_POINT,
    L2NormalizeAttrs,
    LogSoftmaxAttrs,
    LrnAttrs,
    Softmax16Attrs,
    SoftmaxAttrs,
)
from aot.op.reduce import ReduceAttrs
from aot.relay.expr import Expr, call, const, tensor_type
from aot.support.dtype import bits, int_range

SOFTMAX_RESULTS = frozenset({"int8", "int16"})
"""Types of the result; the scale is 2^-bits and the zero point the type's lowest value."""

SOFTMAX_DEPTH = 4095
"""Maximum elements of a row; more could overflow the sum's 12 integer bits."""


@from_tflite(
    "SOFTMAX",
    "int8 uint8 int16 float16 float32",
    "cast divide exp qnn.softmax qnn.softmax16 reduce_max subtract sum",
    oracle="LiteRT; of int16 TFLM with `--oracle tflm`",
)
@legacy_uint8
def convert_softmax(ctx: ConvertContext, op: OperatorView) -> Expr | Sequence[Expr]:
    """qnn.softmax with the integers of SoftmaxPrepare, qnn.softmax16, or float32 arithmetic."""
    data, out = ctx.input_type(op, 0), ctx.output_type(op)
    if data.dtype == "int16":
        return convert_softmax16(ctx, op)
    if data.dtype == "float32":
        return convert_float_softmax(ctx, op)
    if data.dtype == "float16":
        return widens_halves(partial(convert_float_softmax, halves=True))(ctx, op)
    require_dtype(ctx, op, data, {"int8"})
    require_dtype(ctx, op, out, SOFTMAX_RESULTS, what="a result")
    scale, _ = require_quant(ctx, op, data)
    out_scale, out_zp = require_quant(ctx, op, out, what="the result")
    codes, lowest = 2 ** bits(out.dtype), int_range(out.dtype)[0]
    if abs(out_scale * codes - 1) > 0.001 or out_zp != lowest:
        unsupported(ctx, op, f"the result must have scale 1/{codes} and zero point {lowest}", code="E1225")
    require_rows(ctx, op, data, most=SOFTMAX_DEPTH)
    real = real_multiplier(op.opcode, data.dtype, (op.option("beta"), scale), oracle=ctx.oracle)
    if not real * (1 << 26) > 1:
        unsupported(ctx, op, f"beta {op.option('beta')} with scale {scale} is not supported", code="E1122")
    attrs = SoftmaxAttrs(*softmax_scaling(real), out.dtype)
    return call("qnn.softmax", [operand(ctx, op, 0)], attrs, span=ctx.span(op))


SOFTMAX16_DEPTH = 1 << 15
"""Maximum elements of a row; more could overflow the sum of their exponentials."""


def convert_softmax16(ctx: ConvertContext, op: OperatorView) -> Expr:
    """qnn.softmax16 with the integers of SoftmaxPrepare (called by the converter of SOFTMAX)."""
    data, out = ctx.input_type(op, 0), ctx.output_type(op)
    require_dtype(ctx, op, out, {"int16"}, what="a result")
    scale, zp = require_quant(ctx, op, data, may_be_zero=True)
    out_scale, out_zp = require_quant(ctx, op, out, what="the result")
    if zp or out_zp or abs(out_scale * 32768 - 1) > 0.001:
        unsupported(ctx, op, "the result must have scale 1/32768, and all zero points must be 0", code="E1225")
    require_rows(ctx, op, data, most=SOFTMAX16_DEPTH)
    beta = float(np.float32(op.option("beta")))
    real = real_multiplier(op.opcode, "int16", (scale, beta), (10.0 / 65535.0,), oracle=ctx.oracle)
    if not (0 < real < 2.0**14 or scale == 0):
        unsupported(ctx, op, f"beta {op.option('beta')} with scale {scale} is not supported", code="E1122")
    attrs = Softmax16Attrs(*quantize_multiplier(real), "float64" if ctx.oracle == "litert" else "float32")
    return call("qnn.softmax16", [operand(ctx, op, 0)], attrs, span=ctx.span(op))


LOG_SOFTMAX_DEPTH = 4095
"""Maximum elements of a row; more could overflow the sum's 12 integer bits."""


def log_scaling(input_scale: float) -> LogSoftmaxAttrs:
    """PreprocessLogSoftmaxScalingExp and CalculateInputRadius for a scale above 2^-26."""
    multiplier, left_shift, diff_min = softmax_scaling(input_scale)
    return LogSoftmaxAttrs(multiplier, left_shift, diff_min, *quantize_multiplier((1 << (31 - left_shift)) / multiplier))


@from_tflite("LOG_SOFTMAX", "int8 uint8 float32", "exp log qnn.log_softmax reduce_max subtract sum")
@legacy_uint8
def convert_log_softmax(ctx: ConvertContext, op: OperatorView) -> Expr:
    """qnn.log_softmax with the integers of LogSoftmaxPrepare, or float32 arithmetic."""
    data, out = ctx.input_type(op, 0), ctx.output_type(op)
    if data.dtype == "float32":
        return convert_float_log_softmax(ctx, op)
    require_dtype(ctx, op, data, {"int8"})
    require_dtype(ctx, op, out, {"int8"}, what="a result")
    scale, _ = require_quant(ctx, op, data)
    if require_quant(ctx, op, out, what="the result") != (OUTPUT_SCALE, OUTPUT_ZERO_POINT):
        unsupported(ctx, op, "the result must have scale 1/16 and its largest value as zero point", code="E1225")
    require_rows(ctx, op, data, most=LOG_SOFTMAX_DEPTH)
    if not scale * (1 << 26) > 1:
        unsupported(ctx, op, f"scale {scale} is not supported", code="E1226")
    return call("qnn.log_softmax", [operand(ctx, op, 0)], log_scaling(scale), span=ctx.span(op))


L2_DEPTH = 1 << 15
"""Maximum elements of a row; more could overflow the sum of their squares."""


@from_tflite("L2_NORMALIZATION", "int8 uint8 float32", "divide qnn.l2_normalize relu sqrt square sum")
def convert_l2_normalization(ctx: ConvertContext, op: OperatorView) -> Expr | Sequence[Expr]:
    """qnn.l2_normalize, or float32 arithmetic."""
    left_shift = OUTPUT_BITS if is_legacy(ctx.input_type(op, 0)) else 0
    return legacy_uint8(partial(_l2_of_codes, left_shift=left_shift))(ctx, op)


def _l2_of_codes(ctx: ConvertContext, op: OperatorView, *, left_shift: int) -> Expr:
    if op.option("fused_activation_function") != "NONE":
        unsupported(ctx, op, "a fused activation is not supported (TFLite rejects it too)")
    data, out = ctx.input_type(op, 0), ctx.output_type(op)
    if data.dtype == "float32":
        return convert_float_l2(ctx, op)
    require_dtype(ctx, op, data, {"int8"})
    require_dtype(ctx, op, out, {"int8"}, what="a result")
    _, zp = require_quant(ctx, op, data, may_be_zero=True)
    if require_quant(ctx, op, out, what="the result") != (2.0**-OUTPUT_BITS, 0):
        unsupported(ctx, op, "the result must have scale 1/128 and zero point 0 (128 for uint8)", code="E1225")
    require_rows(ctx, op, data, most=L2_DEPTH)
    return call("qnn.l2_normalize", [operand(ctx, op, 0)], L2NormalizeAttrs(zp, left_shift), span=ctx.span(op))


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


def _float_rows(ctx: ConvertContext, op: OperatorView) -> Expr:
    """Operand 0, float32 with at least one dimension."""
    data = ctx.input_type(op, 0)
    require_dtype(ctx, op, data, {"float32"})
    if not data.shape:
        unsupported(ctx, op, "a tensor without dimensions has no rows", code="E1207")
    return operand(ctx, op, 0)


def convert_float_log_softmax(ctx: ConvertContext, op: OperatorView) -> Expr:
    """float32; called by the converter of LOG_SOFTMAX."""
    x, span = _float_rows(ctx, op), ctx.span(op)
    centred = _binary("subtract", x, _reduced_row("reduce_max", x, span), span)
    total = _reduced_row("sum", call("exp", [centred], UnaryAttrs(), span=span), span)
    return _binary("subtract", centred, call("log", [total], UnaryAttrs(), span=span), span)


def convert_float_softmax(ctx: ConvertContext, op: OperatorView, *, halves: bool = False) -> Expr:
    """float32; called by the converter of SOFTMAX.  `halves`: the dividends, not the summands, are rounded to float16."""
    x, span = _float_rows(ctx, op), ctx.span(op)
    centred = _binary("subtract", x, _reduced_row("reduce_max", x, span), span)
    if op.option("beta") != 1:
        centred = _binary("multiply", centred, _number(op.option("beta")), span)
    exps = call("exp", [centred], UnaryAttrs(), span=span)
    stored = rounded_to_half(exps, span) if halves else exps
    return _binary("divide", stored, _reduced_row("sum", exps, span), span)


def convert_float_l2(ctx: ConvertContext, op: OperatorView) -> Expr:
    """float32; called by the converter of L2_NORMALIZATION."""
    x, span = _float_rows(ctx, op), ctx.span(op)
    total = _reduced_row("sum", call("square", [x], UnaryAttrs(), span=span), span)
    norm = call("sqrt", [total], UnaryAttrs(), span=span)
    # std::max(norm, epsilon) passes a NaN: a clamp from below
    return _binary("divide", x, call("relu", [norm], UnaryAttrs(lo=EPSILON), span=span), span)


@from_tflite("LOCAL_RESPONSE_NORMALIZATION", "float32", "nn.lrn")
def convert_lrn(ctx: ConvertContext, op: OperatorView) -> Expr:
    """nn.lrn."""
    data = ctx.input_type(op, 0)
    require_dtype(ctx, op, data, {"float32"})
    numbers = [float(op.option(name)) for name in ("bias", "alpha", "beta")]
    if len(data.shape) != 4 or op.option("radius") < 0 or not np.isfinite(numbers).all():
        unsupported(ctx, op, f"radius {op.option('radius')} with {numbers} on {data} is not supported", code="E1122")
    return call("nn.lrn", [operand(ctx, op, 0)], LrnAttrs(op.option("radius"), *numbers), span=ctx.span(op))
