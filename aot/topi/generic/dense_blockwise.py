"""qnn.dense_blockwise: two weights of a byte at a time."""

from __future__ import annotations

from aot.relay.expr import tensor_type
from aot.target.target import Target
from aot.tir.expr import binop, cast
from aot.topi.generic.flat import accepts_alone, flat_kernel
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl


def lower(group: Group, _target: Target, name: str) -> Lowered:
    kernel = flat_kernel(group, name)
    b, (data, params, weight, scales, *bias), out = kernel.b, kernel.args, kernel.out
    size = group.anchor.attrs.size
    rows, width = tensor_type(group.anchor.args[0]).shape
    outputs, blocks = out.size // rows, width // size
    with b.for_("m", rows) as m:
        zero_point = b.let("zero_point", params[m * 3 + 2])
        offset = b.let("offset", cast("int32", zero_point))
        scale = b.let("scale", params[m * 3])
        with b.for_("o", outputs) as o:
            total, weights = (b.local(n, (1,), "float32", init=0.0) for n in ("total", "weights"))
            with b.for_("block", blocks) as block:
                acc, ones = b.local("acc", (1,), "int32", init=0), b.local("ones", (1,), "int32", init=0)
                first = b.let("first", (m * blocks + block) * size)
                place = b.let("place", (o * blocks + block) * (size // 2))
                with b.for_("k", size // 2) as k:
                    byte = b.let("byte", cast("int32", weight[place + k]))
                    low = b.let("low", binop("^", byte & 15, 8) - 8)
                    high = b.let("high", binop("^", byte >> 4, 8) - 8)
                    products = cast("int32", data[first + k * 2]) * low + cast("int32", data[first + k * 2 + 1]) * high
                    b.store(acc, 0, acc[0] + products)
                    b.store(ones, 0, ones[0] + (low + high))
                factor = b.let("factor", scales[o * blocks + block])
                b.store(total, 0, total[0] + cast("float32", acc[0] + offset * ones[0]) * factor)
                b.store(weights, 0, weights[0] + factor * cast("float32", ones[0]))
            value = (total[0] - zero_point * weights[0]) * scale
            b.store(out, m * outputs + o, value + bias[0][o] if bias else value)
    return kernel.finish("dense_blockwise")


register_impl(OpImplementation("generic.dense_blockwise", "qnn.dense_blockwise", accepts_alone, lower))
