"""How often a loop runs, where that follows from constants: a counter with constant start, step and bound."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from aot.ir.op import Array
from aot.ir.type import TensorType
from aot.relay.expr import Constant, Expr, Function, Tuple, Var, While, get_item, inner_functions, make_tuple, post_order
from aot.relay.interpreter import evaluate

MOST_ITERATIONS = 4096
"""Iterations that are tried; a loop of more counts as unknown."""

MOST_ELEMENTS = 64
"""Elements of a value that may be part of the counting; a larger one is data."""


def trip_count(loop: While) -> int | None:
    """Iterations of a loop, None if they depend on data, are more than MOST_ITERATIONS, or do not end.

    The variables that decide (those that the condition reads, and those that these are computed from) must begin as small
    constants; then condition and these variables are computed until the condition fails, by the operators' own meaning.
    """
    deciding = deciding_variables(loop)
    values: list[Array] = []
    for i in deciding:
        value = constant_value(loop.args[i])
        if value is None or value.size > MOST_ELEMENTS:
            return None
        values.append(value)
    condition = _part(loop.cond, deciding, loop.cond.body)
    step = _part(loop.body, deciding, make_tuple([results_of(loop.body)[i] for i in deciding])) if deciding else None
    if not _is_small(condition) or (step is not None and not _is_small(step)):
        return None
    for count in range(MOST_ITERATIONS + 1):
        (holds,) = evaluate(condition, values)
        if not holds.reshape(()):
            return count
        if step is None:
            return None
        values = [np.asarray(v) for v in evaluate(step, values)]
    return None


def deciding_variables(loop: While) -> list[int]:
    """The loop variables that the condition depends on, in any iteration."""
    reads = [_reads(loop.body, r) for r in results_of(loop.body)]
    found = _reads(loop.cond, loop.cond.body)
    while (more := found.union(*(reads[i] for i in found))) != found:
        found = more
    return sorted(found)


def live_variables(loop: While, used: set[int]) -> list[int]:
    """The loop variables that decide, or that those in `used` are computed from."""
    reads = [_reads(loop.body, r) for r in results_of(loop.body)]
    found = set(deciding_variables(loop)) | used
    while (more := found.union(*(reads[i] for i in found))) != found:
        found = more
    return sorted(found)


def results_of(func: Function) -> tuple[Expr, ...]:
    """The results of a function as expressions."""
    match func.body:
        case Tuple(fields=fields):
            return fields
        case body if isinstance(body.type, TensorType):
            return (body,)
        case body:
            return tuple(get_item(body, i, span=body.span) for i in range(len(body.type.fields)))


def constant_value(expr: Expr) -> Array | None:
    """The value of an expression over constants only, None if it depends on more or is large."""
    if isinstance(expr, Constant):
        return np.asarray(expr.data)
    nodes = post_order(expr)
    if any(isinstance(e, Var) for e in nodes) or not isinstance(expr.type, TensorType) or not all(map(_is_scalar_work, nodes)):
        return None
    (value,) = evaluate(Function((), expr), [])
    return np.asarray(value)


def _is_scalar_work(expr: Expr) -> bool:
    types = (expr.type,) if isinstance(expr.type, TensorType) else expr.type.fields
    return not inner_functions(expr) and sum(prod(t.shape) for t in types) <= MOST_ELEMENTS


def _is_small(func: Function) -> bool:
    return all(_is_scalar_work(e) for e in post_order(func.body) if not isinstance(e, Tuple))


def _reads(func: Function, root: Expr) -> set[int]:
    """The parameters of `func` that an expression of its body depends on, by number."""
    numbers = {id(p): i for i, p in enumerate(func.params)}
    return {numbers[id(e)] for e in post_order(root) if id(e) in numbers}


def _part(func: Function, params: Sequence[int], body: Expr) -> Function:
    return Function(tuple(func.params[i] for i in params), body)
