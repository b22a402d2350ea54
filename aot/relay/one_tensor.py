"""Chains of element-wise calls that depend on one tensor, each element on one element of it."""

from __future__ import annotations

import numpy as np

from aot.ir.op import T_OP_PATTERN, Array, Op, OpPattern
from aot.ir.type import TensorType
from aot.relay.expr import Call, Constant, Expr, call, const, tensor_type
from aot.relay.interpreter import call_op

BY_CHANNEL = frozenset({"qnn.requantize", "nn.bias_add"})
"""Element-wise operators whose attributes or operands may hold a number for each channel."""

COSTLY = frozenset({"elu", "exp", "log", "sigmoid", "tanh"})
"""Functions of floats that take far longer than a look at a table."""

LEAST_ELEMENTS = 1024


def source_of(expr: Expr, known: dict[int, Expr], dtype: str) -> Expr | None:
    """The tensor of that type whose elements an element-wise call depends on, each of its own on one; None of other nodes.

    `known` has that of the nodes before it.
    """
    if not isinstance(expr, Call) or not isinstance(expr.op, Op) or not isinstance(expr.type, TensorType):
        return None
    name = expr.op.name
    if name in BY_CHANNEL or T_OP_PATTERN.get(name) > OpPattern.BROADCAST:
        return None
    found: list[Expr] = []
    for arg in expr.args:
        if isinstance(arg, Constant) and arg.data.size == 1:
            continue
        if not isinstance(arg.type, TensorType) or arg.type.shape != expr.type.shape or isinstance(arg, Constant):
            return None
        found.append(known.get(id(arg), arg))
    same = found and all(x is found[0] for x in found)
    return found[0] if same and tensor_type(found[0]).dtype == dtype else None


def chain_to(expr: Expr, x: Expr) -> list[Call]:
    """The calls between x and the expression, which is the last of them, each after those that it reads."""
    order: list[Call] = []
    seen = {id(x)}

    def visit(e: Expr) -> None:
        if id(e) in seen or not isinstance(e, Call):
            return
        seen.add(id(e))
        for arg in e.args:
            visit(arg)
        order.append(e)

    visit(expr)
    return order


def is_costly(expr: Expr, x: Expr) -> bool:
    """Whether a table pays for the expression of x, which may take one or two kilobytes: such a function, of many elements."""
    functions = [c.op.name for c in chain_to(expr, x) if isinstance(c.op, Op)]
    return tensor_type(expr).size >= LEAST_ELEMENTS and not COSTLY.isdisjoint(functions)


def on_values(expr: Call, args: list[Array]) -> Array:
    """What a call of a chain makes of vectors in the place of its tensors; the scalars among its operands stay."""
    new: list[Expr] = []
    for old, data in zip(expr.args, args, strict=True):
        type_ = tensor_type(old)
        new.append(const(data, dtype=type_.dtype, quant=type_.quant))
    assert isinstance(expr.op, Op)
    alone = call(expr.op, new, expr.attrs, span=expr.span)
    with np.errstate(all="ignore"):
        return np.asarray(call_op(alone, [a.data for a in alone.args if isinstance(a, Constant)]))


def scalar_of(expr: Constant) -> Array:
    return np.asarray(expr.data).reshape(())


def results(expr: Expr, x: Expr, data: Array) -> Array:
    """The expression for these elements of x, a vector."""
    values: dict[int, Array] = {id(x): data}
    for step in chain_to(expr, x):
        values[id(step)] = on_values(step, [scalar_of(a) if isinstance(a, Constant) else values[id(a)] for a in step.args])
    return values[id(expr)]
