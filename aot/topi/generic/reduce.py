"""reduce_max and reduce_min of integers, written as tensor expressions with a schedule.

If the last dimension is kept, four of its elements are reduced side by side, so that memory is read in order.  If it is reduced,
each iteration reads several of its values.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from aot import te
from aot.relay.expr import Var, tensor_type
from aot.support.dtype import bits, is_int
from aot.target.target import Target
from aot.te.lowering import lower_function
from aot.tir.expr import Expr
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl

MAX_UNROLL = 8


def accepts(group: Group, _target: Target) -> bool:
    """A non-empty reduction of integers, alone in its group."""
    if group.followers or len(group.params) != 1 or not isinstance(group.anchor.args[0], Var):
        return False
    data = group.params[0].type
    return is_int(data.dtype) and all(data.shape) and bool(group.anchor.attrs.axes)


def lower(group: Group, _target: Target, name: str) -> Lowered:
    """Lower with one accumulator of at least 32 bits for each result in progress."""
    data, out, attrs = group.params[0].type, tensor_type(group.anchor), group.anchor.attrs
    reducer = te.max if attrs.kind == "reduce_max" else te.min
    wide = data.dtype if bits(data.dtype) >= 32 else "int32"
    x = te.placeholder(data.shape, data.dtype, "data")
    axes = {a: te.reduce_axis((0, data.shape[a]), f"r{a}") for a in attrs.axes}

    def rule(*indices: Expr) -> te.Reduce:
        kept = iter(indices)
        index: list[Any] = []
        for a in range(len(data.shape)):
            own = next(kept) if attrs.keepdims or a not in axes else None
            index.append(axes.get(a, own))
        return reducer(x[tuple(index)].astype(wide), axis=list(axes.values()))

    best = te.compute(out.shape, rule, "best")
    result = te.compute(out.shape, lambda *i: best[i].astype(out.dtype), "out")
    s = te.create_schedule(result.op)
    _arrange(s, best, result, last=axes.get(len(data.shape) - 1))
    func = lower_function(s, [x, result], name)
    described = replace(func.attrs, kernel="generic.reduce", span=group.anchor.span, args=())
    return Lowered(replace(func, attrs=described))


def _arrange(s: te.Schedule, best: te.Tensor, result: te.Tensor, *, last: te.IterVar | None) -> None:
    """Schedule the loops; `last` is the reduction over the last dimension, if that is reduced."""
    stage, out = s[best].set_scope("local"), s[result]
    if not out.op.axis:
        _unroll_some(stage, stage.op.reduce_axis[-1])
        return
    inner = out.op.axis[-1]
    if last is not None:
        stage.compute_at(out, inner)
        _unroll_some(stage, last)
        return
    outer, four = out.split(inner, _part(inner.extent or 1, 4))
    stage.compute_at(out, outer)
    stage.reorder(*stage.op.reduce_axis, stage.op.axis[-1])
    stage.unroll(stage.op.axis[-1])
    out.unroll(four)


def _unroll_some(stage: te.Stage, axis: te.IterVar) -> None:
    _, inner = stage.split(axis, _part(axis.extent or 1, MAX_UNROLL))
    stage.unroll(inner)


def _part(extent: int, most: int) -> int:
    """The largest divisor that is at most `most`."""
    return max(d for d in range(1, most + 1) if extent % d == 0)


for _operator in ("reduce_max", "reduce_min"):
    register_impl(OpImplementation("generic.reduce", _operator, accepts, lower))
