"""reduce_window: REDUCE_WINDOW and STABLEHLO_REDUCE_WINDOW of TFLite: windows in any number of dimensions, each made one element.

A window starts from a given value and takes its elements in order: sums and products, of which those of integers wrap, minima,
maxima, "and" (ALL) and "or" (ANY), which are 0 or 1 in the type of the data.  Window, strides and dilations are constants.
STABLEHLO_REDUCE_WINDOW first puts the given value, a constant there, between the elements and around them, or cuts some off, and
says by a subgraph of one operator what is done; the reference looks at its name alone.
Oracle: `kernels/stablehlo_reduce_window.cc`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod

import numpy as np

from aot.frontend.view import OperatorView
from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.check import require_dtype
from aot.op.common.move import constant_ints, reshaped, tensors_of
from aot.op.convert import ConvertContext, from_tflite, operand, unsupported
from aot.op.te_rule import F_TE, TeContext
from aot.op.tensor.dilate import LARGEST, dilated, padded_or_cut
from aot.relay.expr import Expr as RelayExpr
from aot.relay.expr import call, tensor_type
from aot.support.dataclass import dataclass
from aot.support.dtype import is_float
from aot.te.tensor import TensorFn, reduce_axis, tensor_fn
from aot.te.tensor import reduce as te_reduce
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, binop, cast, imm, select

DTYPES = ("bool", "int8", "uint8", "int16", "int32", "int64", "float32")
KINDS = ("ADD", "MUL", "MINIMUM", "MAXIMUM", "ALL", "ANY")
BODIES = {
    **{name: "ADD" for name in ("ADD", "STABLEHLO_ADD")},
    **{name: "MUL" for name in ("MUL", "STABLEHLO_MULTIPLY")},
    **{name: "MAXIMUM" for name in ("MAXIMUM", "STABLEHLO_MAXIMUM")},
    **{name: "MINIMUM" for name in ("MINIMUM", "STABLEHLO_MINIMUM")},
    **{name: "ALL" for name in ("LOGICAL_AND", "STABLEHLO_AND")},
    "LOGICAL_OR": "ANY",
}
"""The operator of STABLEHLO_REDUCE_WINDOW's subgraph -> what is done."""
MOST_DIMS = 6


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
    return TensorType(shape, data.dtype, data.quant)


_JOIN: dict[str, Callable[[Array, Array], Array]] = {
    "ADD": lambda a, b: a + b,
    "MUL": lambda a, b: a * b,
    "MINIMUM": lambda a, b: np.where(a <= b, a, b),
    "MAXIMUM": lambda a, b: np.where(a >= b, a, b),
    "ALL": lambda a, b: np.logical_and(a != 0, b != 0).astype(a.dtype),
    "ANY": lambda a, b: np.logical_or(a != 0, b != 0).astype(a.dtype),
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
    if kind in ("ALL", "ANY"):
        return cast(a.dtype, binop("&&" if kind == "ALL" else "||", _truth(a), _truth(b)))
    return a + b if kind == "ADD" else a * b


def _truth(x: Expr) -> Expr:
    return x if x.dtype == "bool" else binop("!=", x, imm(0, x.dtype))


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: ReduceWindowAttrs, out_type: TensorType) -> TensorFn:
    data, first = args
    wide = data.dtype
    if attrs.kind in ("ADD", "MUL") and not is_float(wide):
        wide = "uint64" if wide == "int64" else "uint32"

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        def term(*taps: Expr) -> Expr:
            places = zip(i, taps, attrs.strides, attrs.dilations, strict=True)
            return b.let("x", cast(wide, data.at(b, tuple(at * s + t * d for at, t, s, d in places))))

        axes = [reduce_axis(w, name="w") for w in attrs.window]
        start = cast(wide, first.at(b, (imm(0),)))
        found = te_reduce(b, axes, term, combine=lambda x, y: _joined(attrs.kind, x, y), init=start, dtype=wide)
        return cast(data.dtype, found)

    return tensor_fn(out_type.shape, out_type.dtype, rule)


@from_tflite("REDUCE_WINDOW", "bool int8 uint8 int16 int32 int64 float32", "reduce_window")
def convert(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """reduce_window."""
    _check(ctx, op, op.option("reduce_function"))
    window, strides, dilations = (tuple(constant_ints(ctx, op, i)) for i in (2, 3, 4))
    return _windows(ctx, op, operand(ctx, op, 0), ReduceWindowAttrs(op.option("reduce_function"), window, strides, dilations))


@from_tflite(
    "STABLEHLO_REDUCE_WINDOW", "bool int8 uint8 int16 int32 int64 float32", "nn.pad reduce_window strided_slice"
)  # fmt: skip
def convert_stablehlo(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """Dilate, pad or cut, then reduce_window."""
    data = ctx.input_type(op, 0)
    body = ctx.operators_of(int(op.option("body_subgraph_index")))
    kind = BODIES.get(body[0], body[0]) if len(body) == 1 else f"of {len(body)} operators"
    _check(ctx, op, kind)
    names = ("window_dimensions", "window_strides", "window_dilations", "base_dilations", "padding")
    window, strides, dilations, base, padding = (tuple(int(n) for n in op.option(name)) for name in names)
    rank, low, high = len(data.shape), padding[::2], padding[1::2]
    if len(base) != rank or len(padding) != 2 * rank or min(base) < 1 or rank > MOST_DIMS:
        unsupported(ctx, op, f"dilations {base} and paddings {padding} do not suit {data}", code="E1207")
    whole = [(n - 1) * d + 1 for n, d in zip(data.shape, base, strict=True)]
    rest = [n + a + z for n, a, z in zip(whole, low, high, strict=True)]
    if min(rest) < 1 or any(n + min(a, 0) + min(z, 0) < 1 for n, a, z in zip(whole, low, high, strict=True)):
        unsupported(ctx, op, f"paddings {padding} of {whole} leave nothing", code="E1207")
    if prod(whole) > LARGEST or prod(rest) > LARGEST:
        unsupported(ctx, op, f"dilations {base} and paddings {padding} of {data}", code="E1122")
    expr = operand(ctx, op, 0)
    if any(padding) or max(base) > 1:
        first = ctx.constant(op, 1).ravel()[0]
        value = float(first) if is_float(data.dtype) else int(first)
        expr = dilated(ctx, op, expr, dilations=base, value=value)
        expr = padded_or_cut(ctx, op, expr, low=low, high=high, value=value)
    return _windows(ctx, op, expr, ReduceWindowAttrs(kind, window, strides, dilations))


def _check(ctx: ConvertContext, op: OperatorView, kind: str) -> None:
    """Refuse types and functions that are not known."""
    data, first = ctx.input_type(op, 0), ctx.input_type(op, 1)
    require_dtype(ctx, op, data, DTYPES)
    if kind not in KINDS:
        unsupported(ctx, op, f"the function {kind} is not supported; only {', '.join(KINDS)}")
    if data.dtype == "bool" and kind == "ADD":
        unsupported(ctx, op, "sums of truth values: the reference counts them in the bytes of a bool; take ANY instead")
    if first.dtype != data.dtype or first.size != 1 or not data.shape:
        unsupported(ctx, op, f"windows of {data} cannot start from {first}", code="E1207")


def _windows(ctx: ConvertContext, op: OperatorView, expr: RelayExpr, attrs: ReduceWindowAttrs) -> RelayExpr:
    data, span = tensor_type(expr), ctx.span(op)
    numbers = (attrs.window, attrs.strides, attrs.dilations)
    if any(len(n) != len(data.shape) or min(n) < 1 for n in numbers):
        unsupported(ctx, op, f"windows {attrs.window} by {attrs.strides}, dilated {attrs.dilations}, of {data}", code="E1207")
    if any(n < (w - 1) * d + 1 for n, w, d in zip(data.shape, attrs.window, attrs.dilations, strict=True)):
        unsupported(ctx, op, f"no window {attrs.window} fits {data}", code="E1207")
    return call("reduce_window", [expr, reshaped(operand(ctx, op, 1), (1,), span)], attrs, span=span)


register_op(
    "reduce_window",
    2,
    arguments=[("data", "numbers, bool", "the operand"), ("first", "[1]", "what each window starts from")],
    attrs_type=ReduceWindowAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="REDUCE_WINDOW, STABLEHLO_REDUCE_WINDOW",
)
F_TE.set("reduce_window", te_rule)
