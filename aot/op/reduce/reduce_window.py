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

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.move import tensors_of
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.support.dtype import is_float
from aot.te.tensor import TensorFn, reduce, reduce_axis, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, binop, cast, imm, select

DTYPES = ("bool", "int8", "uint8", "int16", "int32", "int64", "float32")
KINDS = ("ADD", "MUL", "MINIMUM", "MAXIMUM", "ALL", "ANY")


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
        found = reduce(b, axes, term, combine=lambda x, y: _joined(attrs.kind, x, y), init=start, dtype=wide)
        return cast(data.dtype, found)

    return tensor_fn(out_type.shape, out_type.dtype, rule)


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
