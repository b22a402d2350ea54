"""LOG_SOFTMAX, SOFTMAX and L2_NORMALIZATION on float32 rows (the last axis), from reductions and arithmetic.

log_softmax = (x - max) - log(sum of e^(x - max)); softmax = e^((x - max) * beta) / sum; l2 = x / max(sqrt(sum of x^2), 1e-6).
Oracles: `reference_ops::LogSoftmax`, `Softmax`, `L2Normalization` in float32, in the same order.
"""

from __future__ import annotations

import numpy as np

from aot.frontend.view import OperatorView
from aot.ir.span import Span
from aot.op.common.check import require_dtype
from aot.op.common.half import rounded_to_half
from aot.op.convert import ConvertContext, operand, unsupported
from aot.op.math.arithmetic import BinaryAttrs
from aot.op.math.unary import UnaryAttrs
from aot.op.reduce.reduce import ReduceAttrs
from aot.relay.expr import Expr, call, const, tensor_type

EPSILON = 1e-6
"""The smallest norm that L2_NORMALIZATION divides by."""


def _reduced(kind: str, x: Expr, span: Span) -> Expr:
    return call(kind, [x], ReduceAttrs(kind, (len(tensor_type(x).shape) - 1,), True), span=span)


def _binary(name: str, a: Expr, b: Expr, span: Span) -> Expr:
    return call(name, [a, b], BinaryAttrs(), span=span)


def _number(value: float) -> Expr:
    return const(np.asarray(value, np.float32))


def _rows(ctx: ConvertContext, op: OperatorView) -> Expr:
    """Operand 0, float32 with at least one dimension."""
    data = ctx.input_type(op, 0)
    require_dtype(ctx, op, data, {"float32"})
    if not data.shape:
        unsupported(ctx, op, "a tensor without dimensions has no rows", code="E1207")
    return operand(ctx, op, 0)


def convert_log_softmax(ctx: ConvertContext, op: OperatorView) -> Expr:
    """float32; called by the converter of LOG_SOFTMAX."""
    x, span = _rows(ctx, op), ctx.span(op)
    centred = _binary("subtract", x, _reduced("reduce_max", x, span), span)
    total = _reduced("sum", call("exp", [centred], UnaryAttrs(), span=span), span)
    return _binary("subtract", centred, call("log", [total], UnaryAttrs(), span=span), span)


def convert_softmax(ctx: ConvertContext, op: OperatorView, *, halves: bool = False) -> Expr:
    """float32; called by the converter of SOFTMAX.  `halves`: what is divided by the sum, not what is added, is float16 first."""
    x, span = _rows(ctx, op), ctx.span(op)
    centred = _binary("subtract", x, _reduced("reduce_max", x, span), span)
    if op.option("beta") != 1:
        centred = _binary("multiply", centred, _number(op.option("beta")), span)
    exps = call("exp", [centred], UnaryAttrs(), span=span)
    stored = rounded_to_half(exps, span) if halves else exps
    return _binary("divide", stored, _reduced("sum", exps, span), span)


def convert_l2(ctx: ConvertContext, op: OperatorView) -> Expr:
    """float32; called by the converter of L2_NORMALIZATION."""
    x, span = _rows(ctx, op), ctx.span(op)
    total = _reduced("sum", call("square", [x], UnaryAttrs(), span=span), span)
    norm = call("sqrt", [total], UnaryAttrs(), span=span)
    # std::max(norm, epsilon), which a norm that is NaN passes: a clamp from below
    return _binary("divide", x, call("relu", [norm], UnaryAttrs(lo=EPSILON), span=span), span)
