"""Fused functions as groups, and groups that are cut where that gives their layer a kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aot.errors import internal
from aot.ir.op import T_OP_PATTERN, Op
from aot.relay.analysis import LAYERS
from aot.relay.expr import Call, Expr, Function, map_inner_functions, operands, post_order, with_operands
from aot.relay.transform.fuse_ops import call_group
from aot.target.target import Target
from aot.topi.strategy import Group, OpImplementation, external_impl, implementations


def group_of(func: Function) -> Group:
    """Find anchor and followers of a primitive function.

    The anchor is the first call of the highest pattern kind; the followers are the calls after it.  Where a call in front of the
    anchor belongs to the group too (an injective producer), the group is one for the generic path, and the last call
    is its anchor.
    """
    calls = [e for e in post_order(func.body) if isinstance(e, Call)]
    kinds = [T_OP_PATTERN.get(c.op.name) for c in calls if isinstance(c.op, Op)]
    if len(kinds) != len(calls):
        raise internal("a primitive function holds operator calls only")
    best = kinds.index(max(kinds))
    if best > 0:
        return Group(func, calls[-1], ())
    return Group(func, calls[0], tuple(calls[1:]))


Accepted = dict[tuple[OpImplementation, Group], bool]
"""Whether a kernel takes a group: asked when groups are cut, and again when they are lowered."""


def accepting(group: Group, target: Target, known: Accepted | None = None) -> list[OpImplementation]:
    """The kernels that take a group, best plevel first, the generic path last.  What is in `known` is not asked again."""
    return list(_accepting(group, target, {} if known is None else known))


def _accepting(group: Group, target: Target, known: Accepted) -> Iterator[OpImplementation]:
    external = external_impl(group.func)
    if external is not None:
        yield external
        return
    name = str(getattr(group.anchor.op, "name", "?"))
    for impl in implementations(name, target):
        if (impl, group) not in known:
            known[impl, group] = impl.accepts(group, target)
        if known[impl, group]:
            yield impl


def with_cut_groups(func: Function, target: Target, known: Accepted | None = None) -> Function:
    """The fused main function with those groups cut for which no kernel is made, though there is one for less of them.

    Such a group is a layer (LAYERS) with followers that its kernels cannot take along (say an operand that is a constant); the
    generic path would run all of it, at many times the instructions.  The first part is the layer with as many followers as a
    kernel takes.  The rest is one group, or one for each call where kernels for single calls are better (by plevel).

    `known` keeps which kernels were found to take a group, for who lowers it.
    """
    known = {} if known is None else known
    return _cut_all(map_inner_functions(func, lambda f: _cut_all(f, target, known)), target, known)


def _cut_all(func: Function, target: Target, known: Accepted) -> Function:
    done: dict[int, Expr] = {}
    for expr in post_order(func.body):
        done[id(expr)] = _cut(with_operands(expr, [done[id(o)] for o in operands(expr)]), target, known)
    return Function(func.params, done[id(func.body)], func.attrs)


def _cut(expr: Expr, target: Target, known: Accepted) -> Expr:
    if not isinstance(expr, Call) or not isinstance(expr.op, Function):
        return expr
    group = group_of(expr.op)
    if "Compiler" in expr.op.attrs:
        return expr
    if not group.followers or getattr(group.anchor.op, "name", "") not in LAYERS:
        return expr
    if any(i.anchor != "*" for i in _accepting(group, target, known)):
        return expr
    calls = (group.anchor, *group.followers)
    for n in range(len(calls) - 1, 0, -1):
        if any(i.anchor != "*" and i.cuts for i in _accepting(_alone(calls[:n]), target, {})):
            return _in_parts((calls[:n], *_parts(calls[n:], target)), expr)
    return expr


def _parts(calls: Sequence[Call], target: Target) -> Sequence[Sequence[Call]]:
    """`calls` as one group, or each alone where the worst of those is better than the whole."""
    singles = [calls[i : i + 1] for i in range(len(calls))]
    return singles if min(_plevel(s, target) for s in singles) > _plevel(calls, target) else [calls]


def _plevel(calls: Sequence[Call], target: Target) -> int:
    return max((i.plevel for i in accepting(_alone(calls), target)), default=-1)


def _alone(calls: Sequence[Call]) -> Group:
    """Calls of a group as a separate group; what they read from outside becomes a parameter."""
    func = call_group(calls, {id(o): o for c in calls for o in operands(c)}).op
    assert isinstance(func, Function)
    return group_of(func)


def _in_parts(parts: Sequence[Sequence[Call]], whole: Call) -> Expr:
    """The parts of a group as calls of primitive functions, each of which gives its result to those after it."""
    assert isinstance(whole.op, Function)
    outside: dict[int, Expr] = {id(v): a for v, a in zip(whole.op.params, whole.args, strict=True)}
    for calls in parts:
        outside[id(calls[-1])] = call_group(calls, outside)
    return outside[id(parts[-1][-1])]
