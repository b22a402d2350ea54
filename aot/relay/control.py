"""Branches and loops, made with checks: `if_then_else` and `while_loop`."""

from __future__ import annotations

from collections.abc import Sequence

from aot.errors import Problem, UsageError
from aot.ir.span import NO_SPAN, Span
from aot.relay.expr import Expr, Function, If, While, result_types
from aot.relay.verify import is_condition, same_type
from aot.support.caller import call_place


def if_then_else(
    cond: Expr, args: Sequence[Expr], then_branch: Function, else_branch: Function, *, span: Span = NO_SPAN
) -> If:  # fmt: skip
    """`then_branch(args)` where `cond`, one bool, holds, else `else_branch(args)`; UsageError E1160 if types do not fit."""
    if not is_condition(cond.type):
        raise _misfit(f"the condition of a branch is one bool, not {cond.type}", span)
    for word, branch in (("then", then_branch), ("else", else_branch)):
        _check_parameters(f"the {word} branch", branch, args, span)
    if not same_type(then_branch.body.type, else_branch.body.type):
        raise _misfit(f"one branch yields {then_branch.body.type}, the other {else_branch.body.type}", span)
    return If(cond, tuple(args), then_branch, else_branch, then_branch.body.type, span)


def while_loop(args: Sequence[Expr], cond: Function, body: Function, *, span: Span = NO_SPAN) -> While:
    """The loop variables, first `args`, after as many runs of `body` as `cond` allows; UsageError E1160 if types misfit."""
    if not args:
        raise _misfit("a loop without variables never ends, or never begins", span)
    _check_parameters("the condition", cond, args, span)
    _check_parameters("the body", body, args, span)
    if not is_condition(cond.body.type):
        raise _misfit(f"the condition of a loop yields one bool, not {cond.body.type}", span)
    results = result_types(body)
    if len(results) != len(args):
        raise _misfit(f"the body yields {len(results)} results for {len(args)} loop variables", span)
    for i, (result, arg) in enumerate(zip(results, args, strict=True)):
        if not same_type(result, arg.type):
            raise _misfit(f"loop variable {i} is {arg.type} before the loop and {result} after an iteration", span)
    return While(tuple(args), cond, body, body.body.type, span)


def _check_parameters(what: str, func: Function, args: Sequence[Expr], span: Span) -> None:
    if len(func.params) != len(args):
        raise _misfit(f"{what} has {len(func.params)} parameters for {len(args)} operands", span)
    for i, (param, arg) in enumerate(zip(func.params, args, strict=True)):
        if not same_type(param.type, arg.type):
            raise _misfit(f"operand {i} is {arg.type}, {what} takes {param.type}", span)


def _misfit(message: str, span: Span) -> UsageError:
    return UsageError(Problem("E1160", message, str(span) if span != NO_SPAN else call_place()))
