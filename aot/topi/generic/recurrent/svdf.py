"""nn.svdf_memory filter by filter, four places at a time; or the newest values alone, where the state need not be moved.

All filters lie one behind the other, so the whole state moves by one place: the newest value of a filter comes to where the
oldest of the next one was.
"""

from __future__ import annotations

from dataclasses import replace

from aot.relay.expr import tensor_type
from aot.support.dtype import itemsize
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm
from aot.tir.function import FuncAttrs, PrimFunc, Shift
from aot.topi.generic.flat import accepts_alone, flat_kernel
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl

UNROLL = 4


def lower_memory(group: Group, _target: Target, name: str) -> Lowered:
    kernel = flat_kernel(group, name)
    b, (state, feature), out = kernel.b, kernel.args, kernel.out
    filters, zp = tensor_type(group.anchor.args[1]).size, group.anchor.attrs.state_zp
    older = out.size // filters - 1
    with b.for_("f", filters) as f:
        base = b.let("base", f * (older + 1))
        whole = older - older % UNROLL
        if whole:
            with b.for_("m", whole, step=UNROLL) as m:
                _move(b, state, out, base + m, UNROLL)
        _move(b, state, out, base + whole, older - whole)
        b.store(out, base + older, _newest(feature, f, zp))
    lowered = kernel.finish("svdf_memory")
    if lowered.func.inputs != (state, feature):
        return lowered
    shift = Shift(itemsize(out.dtype), feature.nbytes, _rest(group, feature, out, zp))
    return replace(lowered, func=replace(lowered.func, attrs=replace(lowered.func.attrs, shift=shift)))


def _rest(group: Group, feature: Buffer, out: Buffer, zp: int) -> PrimFunc:
    """The newest value of each filter to its last place."""
    depth = out.size // feature.size
    b = IRBuilder("svdf_newest")
    data, result = b.input("data", feature.shape, feature.dtype), b.output("out", out.shape, out.dtype)
    with b.for_("f", feature.size) as f:
        b.store(result, f * depth + (depth - 1), _newest(data, f, zp))
    return b.finish(FuncAttrs("generic.svdf_newest", group.anchor.span))


def _newest(feature: Buffer, f: Expr, zp: int) -> Expr:
    return cast(feature.dtype, cast("int32", feature[f]) + zp) if zp else feature[f]


def _move(b: IRBuilder, state: Buffer, out: Buffer, first: Expr, count: int) -> None:
    """Places first ... first + count - 1 from one further; all are read before any is written."""
    values = [b.let("value", state[first + (i + 1)]) for i in range(count)]
    for i, value in enumerate(values):
        b.store(out, first + imm(i), value)


register_impl(OpImplementation("generic.svdf_memory", "nn.svdf_memory", accepts_alone, lower_memory))
