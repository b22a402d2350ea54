"""signal.overlap_add: frames added one after the other where the result lies."""

from __future__ import annotations

from aot.relay.expr import tensor_type
from aot.support.dtype import is_float
from aot.target.target import Target
from aot.tir.expr import cast, clamp
from aot.topi.generic.flat import accepts_alone, flat_kernel
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl


def lower(group: Group, _target: Target, name: str) -> Lowered:
    kernel = flat_kernel(group, name)
    b, (data, left), out, step = kernel.b, kernel.args, kernel.out, group.anchor.attrs.step
    rows, frames, size = tensor_type(group.anchor.args[0]).shape
    kept, line = size - step, frames * step + size - step
    with b.for_("row", rows) as row:
        base = b.let("base", row * line)
        with b.for_("i", kept) as i:
            b.store(out, base + i, left[row * kept + i])
        with b.for_("i", line, start=kept) as i:
            b.store(out, base + i, 0.0 if is_float(out.dtype) else 0)
        with b.for_("frame", frames) as frame, b.for_("i", size) as i:
            at = b.let("at", base + frame * step + i)
            value = data[(row * frames + frame) * size + i]
            if is_float(out.dtype):
                b.store(out, at, out[at] + value)
            else:
                b.store(out, at, clamp(cast("int32", out[at]) + cast("int32", value), -32768, 32767))
    return kernel.finish("overlap_add")


register_impl(OpImplementation("generic.overlap_add", "signal.overlap_add", accepts_alone, lower))
