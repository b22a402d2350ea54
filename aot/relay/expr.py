"""The graph IR: a Relay of static data flow.

Nodes are immutable, compared by identity, and always typed: `call` runs the operator's type rule at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aot.ir.op import F_INFER_TYPE, Array, Op
from aot.ir.span import NO_SPAN, Span
from aot.ir.type import QuantParams, TensorType, TupleType, Type


@dataclass(frozen=True, slots=True, eq=False)
class Var:
    """A function's parameter."""

    name: str
    type: TensorType
    span: Span = NO_SPAN


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A value known at compile time."""

    data: Array
    type: TensorType
    span: Span = NO_SPAN


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """An operator, or a fused Function, applied to arguments."""

    op: Op | Function
    args: tuple[Expr, ...]
    attrs: Any
    type: Type
    span: Span = NO_SPAN


@dataclass(frozen=True, slots=True, eq=False)
class Tuple:
    """Several values as one."""

    fields: tuple[Expr, ...]
    type: TupleType
    span: Span = NO_SPAN


@dataclass(frozen=True, slots=True, eq=False)
class TupleGetItem:
    """Field `index` of a tuple."""

    value: Expr
    index: int
    type: TensorType
    span: Span = NO_SPAN


Expr = Var | Constant | Call | Tuple | TupleGetItem


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """Parameters and a body; `attrs["Primitive"]` marks a fused group, which becomes one kernel."""

    params: tuple[Var, ...]
    body: Expr
    attrs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_primitive(self) -> bool:
        return bool(self.attrs.get("Primitive"))


def const(data: Array, *, quant: QuantParams | None = None, dtype: str | None = None, span: Span = NO_SPAN) -> Constant:
    """A constant of numpy data; `dtype` where it is not numpy's own (int4)."""
    return Constant(data, TensorType(tuple(map(int, data.shape)), dtype or str(data.dtype), quant), span)


def call(op: Op | str, args: Sequence[Expr], attrs: Any = None, *, span: Span = NO_SPAN) -> Call:
    """Apply a registered operator; its type rule may raise TypeRuleError."""
    name = op if isinstance(op, str) else op.name
    return Call(Op(name), tuple(args), attrs, F_INFER_TYPE.get(name)([a.type for a in args], attrs), span)


def make_tuple(fields: Sequence[Expr], *, span: Span = NO_SPAN) -> Tuple:
    """A tuple of tensors."""
    types = []
    for f in fields:
        assert isinstance(f.type, TensorType), "tuples do not nest"
        types.append(f.type)
    return Tuple(tuple(fields), TupleType(tuple(types)), span)


def get_item(value: Expr, index: int, *, span: Span = NO_SPAN) -> TupleGetItem:
    """Field `index` of a tuple-typed expression."""
    assert isinstance(value.type, TupleType)
    return TupleGetItem(value, index, value.type.fields[index], span)


def tensor_type(expr: Expr) -> TensorType:
    """The type of an expression that is one tensor."""
    assert isinstance(expr.type, TensorType), f"{expr.span}: a tensor is expected, not a tuple"
    return expr.type


def operands(expr: Expr) -> tuple[Expr, ...]:
    """The expressions that `expr` reads directly."""
    match expr:
        case Call():
            return expr.args
        case Tuple():
            return expr.fields
        case TupleGetItem():
            return (expr.value,)
        case _:
            return ()


def post_order(*roots: Expr) -> list[Expr]:
    """Every node reachable from the roots once, operands before users; without recursion, so depth does not matter."""
    seen: set[int] = set()
    order: list[Expr] = []
    stack: list[tuple[Expr, bool]] = [(r, False) for r in reversed(roots)]
    while stack:
        expr, expanded = stack.pop()
        if expanded:
            order.append(expr)
        elif id(expr) not in seen:
            seen.add(id(expr))
            stack.append((expr, True))
            stack.extend((o, False) for o in reversed(operands(expr)) if id(o) not in seen)
    return _unique(order)


def _unique(order: list[Expr]) -> list[Expr]:
    return list({id(e): e for e in order}.values())


def with_operands(expr: Expr, new: Sequence[Expr]) -> Expr:
    """`expr` over other operands (same node where they are the same); types are inferred anew."""
    if all(a is b for a, b in zip(operands(expr), new, strict=True)):
        return expr
    match expr:
        case Call(op=Op() as op):
            return call(op, new, expr.attrs, span=expr.span)
        case Call():
            return Call(expr.op, tuple(new), expr.attrs, expr.type, expr.span)
        case Tuple():
            return make_tuple(new, span=expr.span)
        case TupleGetItem():
            return get_item(new[0], expr.index, span=expr.span)
        case _:
            raise TypeError(type(expr))


def rewrite(func: Function, rule: Callable[[Expr], Expr]) -> Function:
    """Rebuild `func` bottom-up, giving each node (its operands already rewritten) to `rule`; sharing is kept."""
    done: dict[int, Expr] = {}
    for expr in post_order(func.body):
        done[id(expr)] = rule(with_operands(expr, [done[id(o)] for o in operands(expr)]))
    return Function(func.params, done[id(func.body)], func.attrs)


def users(func: Function) -> dict[int, list[Expr]]:
    """For each node (by id) the nodes that read it, once per use."""
    table: dict[int, list[Expr]] = {}
    for expr in post_order(func.body):
        for o in operands(expr):
            table.setdefault(id(o), []).append(expr)
    return table


def is_op(expr: Expr, name: str) -> bool:
    """Whether `expr` is a call of the operator `name`."""
    return isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.name == name


def constant_array(expr: Expr) -> Array:
    """The value of an expression that must be a constant."""
    assert isinstance(expr, Constant)
    return np.asarray(expr.data)
