"""Simplifies branches with constant conditions, loops that end at once, and loop variables that do not vary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from aot.ir.transform import PassContext, function_pass
from aot.ir.type import TensorType
from aot.relay.analysis import constant_value, live_variables, results_of, trip_count
from aot.relay.expr import (
    Constant,
    Expr,
    Function,
    If,
    Tuple,
    TupleGetItem,
    While,
    get_item,
    inlined,
    make_tuple,
    operands,
    post_order,
    rebuild,
)

MOST_COPIES = 1
"""Loops with at most this many iterations are inlined; for one iteration that is never worse, as no loop remains."""


@function_pass(opt_level=1)
def simplify_control_flow(func: Function, _context: PassContext) -> Function:
    """Rewrite branches and loops by these laws, until none applies.

    In and out: any function with the same results.
    1. A branch with a constant condition is the selected function.
    2. A loop with no iteration is its initial values; a loop of MOST_COPIES iterations is its body, inlined.
    3. A loop variable that the body passes on unchanged, and that starts as a constant, is that constant inside.
    4. A loop variable that neither decides, nor is read outside, nor is needed for another one that is, is removed.
    Not done: moving loop-invariant code out of a loop.
    """
    while True:
        new = _sweep(func)
        if new is func:
            return func
        func = new


def _sweep(func: Function) -> Function:
    """One sweep over the nodes, operands first; returns `func` itself if nothing changes."""
    order = post_order(func.body)
    if not any(isinstance(e, If | While) for e in order):
        return func
    used = _used_fields(func, order)

    def simplified(old: Expr, new: Expr) -> Expr:
        match new:
            case If():
                return _branch(new)
            case While():
                return _loop(new, used.get(id(old), set()))
            case TupleGetItem(value=Tuple(fields=fields)):
                return fields[new.index]
        return new

    body = rebuild(func.body, simplified)
    return func if body is func.body else replace(func, body=body)


def _used_fields(func: Function, order: Sequence[Expr]) -> dict[int, set[int]]:
    """Per loop (by id), the variables whose final values are read; all of them if the tuple is used as a whole."""
    used: dict[int, set[int]] = {}
    for expr in order:
        for o in operands(expr):
            if isinstance(o, While):
                whole = set(range(len(o.args)))
                used.setdefault(id(o), set()).update({expr.index} if isinstance(expr, TupleGetItem) else whole)
    if isinstance(func.body, While):
        used[id(func.body)] = set(range(len(func.body.args)))
    return used


def _branch(expr: If) -> Expr:
    """Law 1."""
    value = constant_value(expr.cond)
    if value is None:
        return expr
    return inlined(expr.then_branch if value.reshape(()) else expr.else_branch, expr.args)


def _loop(expr: While, used: set[int]) -> Expr:
    """Laws 2 to 4."""
    count = trip_count(expr)
    if count is not None and count <= MOST_COPIES:
        values: Sequence[Expr] = expr.args
        for _ in range(count):
            body = inlined(expr.body, values)
            values = (body,) if isinstance(body.type, TensorType) else _fields(body)
        return values[0] if isinstance(expr.type, TensorType) else make_tuple(values, span=expr.span)
    return _without_dead(_with_constants(expr), used)


def _with_constants(expr: While) -> While:
    """Law 3; the variable itself stays, and is then dead unless its value is read."""
    results = results_of(expr.body)
    constants = {
        i: a for i, a in enumerate(expr.args) if isinstance(a, Constant) and results[i] is expr.body.params[i]
    }  # fmt: skip
    cond = _bound(expr.cond, constants)
    body = _bound(expr.body, constants, keep=True)
    return expr if cond is expr.cond and body is expr.body else replace(expr, cond=cond, body=body)


def _bound(func: Function, constants: Mapping[int, Constant], *, keep: bool = False) -> Function:
    """`func` with constants for some parameters; with `keep`, results that are parameters are kept."""
    table: dict[int, Expr] = {id(func.params[i]): value for i, value in constants.items()}
    results = results_of(func)
    if not any(id(e) in table for e in _readers(func, results, keep=keep)):
        return func
    new = [r if keep and id(r) in table else rebuild(r, lambda _old, new: new, dict(table)) for r in results]
    return replace(func, body=new[0] if isinstance(func.body.type, TensorType) else make_tuple(new, span=func.body.span))


def _readers(func: Function, results: Sequence[Expr], *, keep: bool) -> list[Expr]:
    """The nodes that results depend on, apart from parameters that are passed on."""
    handed_on = {id(p) for p in func.params} if keep else set()
    return [e for r in results if id(r) not in handed_on for e in post_order(r)]


def _without_dead(expr: While, used: set[int]) -> Expr:
    """Law 4: a tuple of the remaining variables' values; removed variables are represented by their initial values."""
    live = live_variables(expr, used) or [0]
    if len(live) == len(expr.args):
        return expr
    results = results_of(expr.body)
    new = [results[i] for i in live]
    body = Function(tuple(expr.body.params[i] for i in live), new[0] if len(new) == 1 else make_tuple(new), expr.body.attrs)
    cond = Function(tuple(expr.cond.params[i] for i in live), expr.cond.body, expr.cond.attrs)
    smaller = While(tuple(expr.args[i] for i in live), cond, body, body.body.type, expr.span)
    fields: list[Expr] = list(expr.args)
    for k, i in enumerate(live):
        fields[i] = smaller if len(live) == 1 else get_item(smaller, k, span=expr.span)
    return make_tuple(fields, span=expr.span)


def _fields(expr: Expr) -> tuple[Expr, ...]:
    if isinstance(expr, Tuple):
        return expr.fields
    assert not isinstance(expr.type, TensorType)
    return tuple(get_item(expr, i, span=expr.span) for i in range(len(expr.type.fields)))
