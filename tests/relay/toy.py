"""Small operators, one of each pattern kind, for tests that should not depend on the product's operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aot.ir.op import VARIABLE, OpPattern, TypeRuleError, register_op
from aot.ir.span import NO_SPAN, Span
from aot.ir.type import TensorType, TupleType, Type
from aot.relay.expr import Call, Expr, Function, Var, call


@dataclass(frozen=True, slots=True)
class ScaleAttrs:
    """x * factor + offset, wrapping."""

    factor: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Note:
    """What t.noted carries along; a base for tests."""

    value: Any = None


def _same(types: Sequence[Type], _attrs: Any) -> Type:
    (x,) = types
    return x


def _broadcast(types: Sequence[Type], _attrs: Any) -> Type:
    a, b = types
    try:
        return TensorType(tuple(np.broadcast_shapes(a.shape, b.shape)), a.dtype)
    except ValueError as error:
        raise TypeRuleError(str(error)) from error


def _flat(types: Sequence[Type], _attrs: Any) -> Type:
    return TensorType((types[0].size,), types[0].dtype)


def _row(types: Sequence[Type], _attrs: Any) -> Type:
    return TensorType((*types[0].shape[:-1], 1), types[0].dtype)


def _halves(types: Sequence[Type], _attrs: Any) -> Type:
    if types[0].shape[-1] % 2:
        raise TypeRuleError("an odd last axis has no halves")
    half = TensorType((*types[0].shape[:-1], types[0].shape[-1] // 2), types[0].dtype)
    return TupleType((half, half))


def _concat(types: Sequence[Type], _attrs: Any) -> Type:
    return TensorType((*types[0].shape[:-1], sum(t.shape[-1] for t in types)), types[0].dtype)


register_op(
    "t.scale",
    1,
    arguments=[("x", "any", "the operand")],
    attrs_type=ScaleAttrs,
    pattern=OpPattern.ELEMWISE,
    infer_type=_same,
    evaluate=lambda x, attrs, out_type: (x * attrs.factor + attrs.offset).astype(x.dtype),
    doc="x * factor + offset",
)
register_op(
    "t.neg",
    1,
    arguments=[("x", "any", "the operand")],
    attrs_type=None,
    pattern=OpPattern.ELEMWISE,
    infer_type=_same,
    evaluate=lambda x, attrs, out_type: (-x).astype(x.dtype),
    doc="-x",
)
register_op(
    "t.noted",
    1,
    arguments=[("x", "any", "the operand")],
    attrs_type=Note,
    pattern=OpPattern.ELEMWISE,
    infer_type=_same,
    evaluate=lambda x, attrs, out_type: x.copy(),
    doc="x",
)
register_op(
    "t.add",
    2,
    arguments=[("a", "any", "left"), ("b", "any", "right")],
    attrs_type=None,
    pattern=OpPattern.BROADCAST,
    infer_type=_broadcast,
    evaluate=lambda a, b, attrs, out_type: (a + b).astype(a.dtype),
    doc="a + b, wrapping",
)
register_op(
    "t.flip",
    1,
    arguments=[("x", "any", "the operand")],
    attrs_type=None,
    pattern=OpPattern.INJECTIVE,
    infer_type=_same,
    evaluate=lambda x, attrs, out_type: x[..., ::-1].copy(),
    doc="reverse rows",
)
register_op(
    "t.cat",
    VARIABLE,
    arguments=[("*xs", "any", "the parts")],
    attrs_type=None,
    pattern=OpPattern.INJECTIVE,
    infer_type=_concat,
    evaluate=lambda *xs, attrs, out_type: np.concatenate(xs, axis=-1),
    doc="concatenate along the last axis",
)
register_op(
    "t.rowmax",
    1,
    arguments=[("x", "any", "the operand")],
    attrs_type=None,
    pattern=OpPattern.COMM_REDUCE,
    infer_type=_row,
    evaluate=lambda x, attrs, out_type: x.max(axis=-1, keepdims=True),
    doc="largest of each row",
)
register_op(
    "t.conv",
    1,
    arguments=[("x", "any", "the operand")],
    attrs_type=None,
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    infer_type=_same,
    evaluate=lambda x, attrs, out_type: np.cumsum(x, axis=-1, dtype=x.dtype),
    doc="stands for a convolution",
)
register_op(
    "t.view",
    1,
    arguments=[("x", "any", "the operand")],
    attrs_type=None,
    pattern=OpPattern.INJECTIVE,
    infer_type=_flat,
    evaluate=lambda x, attrs, out_type: x.reshape(-1),
    doc="flatten",
    is_view=True,
)
register_op(
    "t.split",
    1,
    arguments=[("x", "any", "the operand")],
    attrs_type=None,
    pattern=OpPattern.OPAQUE,
    infer_type=_halves,
    evaluate=lambda x, attrs, out_type: tuple(np.split(x, 2, axis=-1)),
    doc="two halves of the last axis",
)


class Net:
    """Builds graphs with spans numbered in order: `net.neg(x)`."""

    def __init__(self) -> None:
        self.count = 0
        self.params: list[Var] = []

    def var(self, *shape: int, name: str = "x", dtype: str = "int8") -> Var:
        n = len(self.params)
        self.params.append(Var(f"{name}{n}", TensorType(shape, dtype), Span(tensor=1000 + n, name=f"{name}{n}")))
        return self.params[-1]

    def op(self, name: str, *args: Expr, attrs: Any = None) -> Call:
        self.count += 1
        full = name if "." in name or name in ("clip", "reshape", "transpose", "concatenate", "mean") else f"t.{name}"
        return call(full, args, attrs, span=Span(self.count, name.upper(), f"y{self.count}", self.count))

    def func(self, body: Expr) -> Function:
        return Function(tuple(self.params), body)

    @property
    def last_span(self) -> Span:
        return Span(self.count, "OP", f"y{self.count}", self.count) if self.count else NO_SPAN
