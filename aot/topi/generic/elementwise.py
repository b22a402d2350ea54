"""Element-wise groups whose tensors all have the result's shape: one flat loop, a few elements per iteration.

Bytes are loaded one by one.  With an immediate offset that is one instruction each, no more than extracting them from a word.
"""

from __future__ import annotations

from math import prod

from aot.ir.type import TensorType
from aot.op.common.te_rule import TeContext
from aot.op.math.unary import LEFT_OVER, VECTOR, gelu_rule
from aot.relay.expr import Call, post_order, tensor_type
from aot.support.dtype import is_float
from aot.target.target import Target
from aot.te.tensor import TensorFn, elements_of, emit_flat
from aot.tir.builder import IRBuilder
from aot.tir.function import FuncAttrs
from aot.topi.generic.flat import FlatKernel, compose, is_elementwise, register_flat
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl

ANCHORS = ("qnn.add", "qnn.lut", "qnn.quantize", "qnn.dequantize", "qnn.requantize8", "clip")

UNROLL = 4
LONG = 256
"""Fewest elements for which cheap operators are unrolled twice as far."""

CHEAP = frozenset({"qnn.add", "qnn.lut"})

INSTRUCTIONS = {"qnn.add": 3, "qnn.lut": 1, "qnn.quantize": 9, "qnn.dequantize": 4, "qnn.requantize8": 9, "clip": 6}
"""Instructions per element on a core with DSP and FPU, without load and store (counted in disassemblies)."""

SOFTWARE = {"qnn.quantize": 280, "qnn.dequantize": 62}
"""With software floating point (counted in QEMU, like the next)."""

V6M = {"qnn.add": 20, "qnn.lut": 3, "qnn.quantize": 535, "qnn.dequantize": 170, "qnn.requantize8": 5}
"""Instructions per element on Armv6-M."""


def accepts(group: Group, _target: Target) -> bool:
    """Calls of element-wise operators only; every operand has the result's shape."""
    shape = tensor_type(group.result).shape if isinstance(group.result.type, TensorType) else None
    return all(
        isinstance(e.type, TensorType) and e.type.shape == shape and (not isinstance(e, Call) or is_elementwise(e))
        for e in post_order(group.result)
    )


def lower(group: Group, target: Target, name: str) -> Lowered:
    b = IRBuilder(name)
    ctx = TeContext(b)
    result = tensor_type(group.result)
    size = prod(result.shape)
    tensors: dict[int, TensorFn] = {id(v): elements_of(b.input("data", (size,), v.type.dtype)) for v in group.params}
    out = b.output("out", (size,), result.dtype)
    value = compose(ctx, group.result, tensors, size)
    calls = [e for e in post_order(group.result) if isinstance(e, Call)]
    floats = any(is_float(tensor_type(e).dtype) for e in post_order(group.result))
    cheap = len(calls) == 1 and str(calls[0].op) in CHEAP and size >= LONG
    unroll = 2 if floats else 2 * UNROLL if cheap else UNROLL
    emit_flat(b, out, value, unroll=unroll)
    words = [str(c.op).rpartition(".")[2] for c in calls]
    kernel = f"generic.elementwise_{'_'.join(words)}(unroll={unroll})"
    each = sum(_instructions(str(c.op), target) for c in calls) + len(group.params) + 2
    func = b.finish(FuncAttrs(kernel=kernel, span=group.anchor.span))
    return Lowered(func, dict(ctx.constants), size * each + 4 * size // unroll + 12, 4 * each * unroll + 24)


def _instructions(op: str, target: Target) -> int:
    """Instructions per element."""
    instructions = INSTRUCTIONS if target.has("fpu") else INSTRUCTIONS | (V6M if target.has("v6m") else SOFTWARE)
    return instructions.get(op, 12)


for _anchor in ANCHORS:
    register_impl(OpImplementation("generic.elementwise", _anchor, accepts, lower, plevel=12))


@register_flat("gelu_uneven")
def lower_gelu(kernel: FlatKernel) -> None:
    """One loop over vectors of four, and one over the remaining one to three elements."""
    b, (data,), out = kernel.b, kernel.args, kernel.out
    whole = out.size - out.size % VECTOR
    for start, stop, library in ((0, whole, "eigen_"), (whole, out.size, LEFT_OVER)):
        if start < stop:
            with b.for_("i", stop, start=start) as i:
                b.store(out, i, gelu_rule(b.let("x", data[i]), approximate=False, library=library))
