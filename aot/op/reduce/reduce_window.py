"""reduce_window: REDUCE_WINDOW of TFLite: sums, products, minima or maxima of windows in any number of dimensions.

Each window starts from a given value and takes its elements in order; integers wrap.  Window, strides and dilations are
constants.  Oracle: `kernels/stablehlo_reduce_window.cc`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from aot.frontend.view import OperatorView
from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.check import require_dtype
from aot.op.common.move import constant_ints, reshaped, tensors_of
from aot.op.convert import ConvertContext, from_tflite, operand, unsupported
from aot.op.te_rule import F_TE, TeContext
from aot.relay.expr import Expr as RelayExpr
from aot.relay.expr import call
from aot.te.tensor import TensorFn, reduce_axis, tensor_fn
from aot.te.tensor import reduce as te_reduce
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm, select

DTYPES = ("int32", "int64", "float32")
KINDS = ("ADD", "MUL", "MINIMUM", "MAXIMUM")


@dataclass(frozen=True, slots=True)
class ReduceWindowAttrs:
    """What is done, and window, strides and dilations of each dimension."""

    kind: str
    window: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]


def infer_type(types: Sequence[Type], attrs: ReduceWindowAttrs) -> Type:
    """Data and a first value [1] -> the data's type, one element for each place of the window."""
    data, first = tensors_of(types, 2)
    rank = len(data.shape)
    if data.dtype not in DTYPES or first.dtype != data.dtype or first.shape != (1,) or attrs.kind not in KINDS or not rank:
        raise TypeRuleError(f"reduce_window of {data} from {first}")
    numbers = (attrs.window, attrs.strides, attrs.dilations)
    if any(len(n) != rank or min(n) < 1 for n in numbers):
        raise TypeRuleError(f"reduce_window of {data} by {attrs}")
    spans = [(w - 1) * d + 1 for w, d in zip(attrs.window, attrs.dilations, strict=True)]
    if any(n < s for n, s in zip(data.shape, spans, strict=True)):
        raise TypeRuleError(f"no window {attrs.window} fits {data}")
    shape = tuple((n - s) // stride + 1 for n, s, stride in zip(data.shape, spans, attrs.strides, strict=True))
    return TensorType(shape, data.dtype)


_JOIN: dict[str, Callable[[Array, Array], Array]] = {
    "ADD": lambda a, b: a + b,
    "MUL": lambda a, b: a * b,
    "MINIMUM": lambda a, b: np.where(a <= b, a, b),
    "MAXIMUM": lambda a, b: np.where(a >= b, a, b),
}


def evaluate(data: Array, first: Array, *, attrs: ReduceWindowAttrs, out_type: TensorType) -> Array:
    found = np.full(out_type.shape, first[0], data.dtype)
    with np.errstate(all="ignore"):
        for taps in product(*(range(w) for w in attrs.window)):
            places = zip(taps, attrs.dilations, attrs.strides, out_type.shape, strict=True)
            part = data[tuple(slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, s, n in places)]
            found = _JOIN[attrs.kind](found, part)
    return np.asarray(found, data.dtype)


def _joined(kind: str, a: Expr, b: Expr) -> Expr:
    if kind in ("MINIMUM", "MAXIMUM"):
        return select(a <= b if kind == "MINIMUM" else a >= b, a, b)
    return a + b if kind == "ADD" else a * b


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: ReduceWindowAttrs, out_type: TensorType) -> TensorFn:
    data, first = args
    unsigned = {"int32": "uint32", "int64": "uint64"} if attrs.kind in ("ADD", "MUL") else {}
    wide = unsigned.get(data.dtype, data.dtype)

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        def term(*taps: Expr) -> Expr:
            places = zip(i, taps, attrs.strides, attrs.dilations, strict=True)
            return b.let("x", cast(wide, data.at(b, tuple(at * s + t * d for at, t, s, d in places))))

        axes = [reduce_axis(w, name="w") for w in attrs.window]
        start = cast(wide, first.at(b, (imm(0),)))
        found = te_reduce(b, axes, term, combine=lambda x, y: _joined(attrs.kind, x, y), init=start, dtype=wide)
        return cast(data.dtype, found)

    return tensor_fn(out_type.shape, out_type.dtype, rule)


@from_tflite("REDUCE_WINDOW", "int32 int64 float32", "reduce_window")
def convert(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """reduce_window."""
    data, first, span = ctx.input_type(op, 0), ctx.input_type(op, 1), ctx.span(op)
    require_dtype(ctx, op, data, DTYPES)
    kind = op.option("reduce_function")
    if kind not in KINDS:
        unsupported(ctx, op, f"the function {kind} is not supported; only {', '.join(KINDS)}")
    window, strides, dilations = (tuple(constant_ints(ctx, op, i)) for i in (2, 3, 4))
    rank = len(data.shape)
    fits = rank and all(len(n) == rank and min(n) >= 1 for n in (window, strides, dilations))
    if not fits or first.dtype != data.dtype or first.size != 1:
        unsupported(ctx, op, f"windows {window} by {strides} from {first} do not suit {data}", code="E1207")
    if any(n < (w - 1) * d + 1 for n, w, d in zip(data.shape, window, dilations, strict=True)):
        unsupported(ctx, op, f"no window {window} fits {data}", code="E1207")
    args = [operand(ctx, op, 0), reshaped(operand(ctx, op, 1), (1,), span)]
    return call("reduce_window", args, ReduceWindowAttrs(kind, window, strides, dilations), span=span)


register_op(
    "reduce_window",
    2,
    arguments=[("data", "int32, int64, float32", "the operand"), ("first", "[1]", "what each window starts from")],
    attrs_type=ReduceWindowAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="REDUCE_WINDOW; int32, int64, float32",
)
F_TE.set("reduce_window", te_rule)
