"""Which variables an expression uses."""

from __future__ import annotations

from aot.relay.expr import Expr, Function, Var, post_order


def all_vars(expr: Expr | Function) -> list[Var]:
    """The variables that are used, and a function's own parameters before them; in order of first use, each once."""
    first = list(expr.params) if isinstance(expr, Function) else []
    body = expr.body if isinstance(expr, Function) else expr
    return list({id(v): v for v in (*first, *(e for e in post_order(body) if isinstance(e, Var)))}.values())


def bound_vars(expr: Expr | Function) -> list[Var]:
    """The parameters of a function; an expression binds none."""
    return list(expr.params) if isinstance(expr, Function) else []


def free_vars(expr: Expr | Function) -> list[Var]:
    """The variables that are used and not bound, in order of first use."""
    bound = {id(v) for v in bound_vars(expr)}
    return [v for v in all_vars(expr) if id(v) not in bound]
