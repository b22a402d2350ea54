"""The te compiler: from a fused relay function to a PrimFunc with its packed constants."""

from __future__ import annotations

from aot.errors import Problem, UnsupportedError
from aot.ir.op import T_OP_PATTERN, Op
from aot.op.impl import Group, Lowered, select_impl
from aot.relay.expr import Call, Function, post_order
from aot.target.target import Target


def group_of(func: Function) -> Group:
    """Find anchor and followers of a primitive function.

    The anchor is the first call of the highest pattern kind; the followers are the calls after it.  Where a call in front of the
    anchor belongs to the group too (an injective producer), the group is one for the generic path, and the last call is its anchor.
    """
    calls = [e for e in post_order(func.body) if isinstance(e, Call)]
    kinds = [T_OP_PATTERN.get(c.op.name) for c in calls if isinstance(c.op, Op)]
    if len(kinds) != len(calls):
        raise TypeError("a primitive function holds operator calls only")
    best = kinds.index(max(kinds))
    if best > 0:
        return Group(func, calls[-1], ())
    return Group(func, calls[0], tuple(calls[1:]))


def lower_group(func: Function, target: Target, name: str) -> Lowered:
    """Choose a kernel for the group and build it (E1209 where no kernel takes it)."""
    group = group_of(func)
    impl = select_impl(group, target)
    if impl is None:
        what = str(getattr(group.anchor.op, "name", "?"))
        raise UnsupportedError(Problem("E1209", f"no kernel for {what} on {target.name}", str(group.anchor.span)))
    return impl.lower(group, target, name)
