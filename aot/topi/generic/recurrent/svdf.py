"""nn.svdf_memory filter by filter, four places at a time."""

from __future__ import annotations

from aot.relay.expr import tensor_type
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm
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
        newest = feature[f] if not zp else cast(out.dtype, cast("int32", feature[f]) + zp)
        b.store(out, base + older, newest)
    return kernel.finish("svdf_memory")


def _move(b: IRBuilder, state: Buffer, out: Buffer, first: Expr, count: int) -> None:
    """Places first ... first + count - 1 from one further; all are read before any is written."""
    values = [b.let("value", state[first + (i + 1)]) for i in range(count)]
    for i, value in enumerate(values):
        b.store(out, first + imm(i), value)


register_impl(OpImplementation("generic.svdf_memory", "nn.svdf_memory", accepts_alone, lower_memory))
