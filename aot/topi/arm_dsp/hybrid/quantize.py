"""Quantisation at run time, symmetric: the range of each batch, and the codes by its factor (cores with DSP and an FPU)."""

from __future__ import annotations

from functools import partial
from math import prod

from aot.ir.type import TensorType
from aot.op.qnn.dynamic_quantize import QUANTIZE, RANGE
from aot.op.te_rule import F_TE, TeContext
from aot.relay.expr import Var, tensor_type
from aot.target.target import Target
from aot.te.tensor import TensorFn, elements_of
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, binop, imm, select
from aot.tir.function import FuncAttrs
from aot.topi.arm_dsp.hybrid.intrin import INFINITE_BITS, LANES, float_range, quantize_symmetric
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl

SIGN = 1 << 31


def accepts(group: Group, target: Target, *, feature: str) -> bool:
    """One call; batches of whole turns, so that no number is one of the reference's rest."""
    anchor = group.anchor
    if group.followers or anchor is not group.result or not target.has("dsp") or not target.has(feature):
        return False
    if not all(isinstance(a, Var) for a in anchor.args) or (anchor.attrs is not None and anchor.attrs.asymmetric):
        return False
    size = prod(tensor_type(anchor.args[0]).shape[1:])
    return size > 0 and size % LANES == 0


def lower_range(group: Group, _target: Target, name: str) -> Lowered:
    anchor = group.anchor
    data = tensor_type(anchor.args[0])
    batches, size = data.shape[0], prod(data.shape[1:])
    b = IRBuilder(name)
    x = b.input("data", (batches, size), "float32", align=4)
    out = b.output("out", (batches, 2), "float32", align=4)
    with b.for_("m", batches) as m:
        ends = b.local("ends", (2,), "uint32")
        b.store(ends, 0, imm(0, "uint32"))
        b.store(ends, 1, imm(SIGN, "uint32"))
        b.block(float_range(), region(x, m * size), ends, imm(size))
        below = b.let("below", binop("^", ends[1], imm(SIGN, "uint32")))
        infinite = imm(INFINITE_BITS, "uint32")
        with b.if_(binop("||", ends[0] > infinite, below > infinite)):
            _range_of_numbers(b, x, out, m=m, size=size)
        with b.else_():
            b.store_as(out, "uint32", m * 2, below)
            b.store_as(out, "uint32", m * 2 + 1, ends[0])
    func = b.finish(FuncAttrs(kernel="arm_dsp.dynamic_range", span=anchor.span))
    return Lowered(func, {}, batches * (size // 8 * 52 + 24) + 10, 340)


def _range_of_numbers(b: IRBuilder, x: Buffer, out: Buffer, *, m: Expr, size: int) -> None:
    """The range of a batch, NaN left out, as no comparison with it holds."""
    zero = imm(0.0, "float32")
    ends = b.local("found", (2,), "float32", init=zero)
    with b.for_("i", size) as i:
        for side, value in enumerate((b.let("below", zero - x[m, i]), b.let("above", x[m, i]))):
            b.store(ends, side, select(value > ends[side], value, ends[side]))
    for side in range(2):
        b.store(out, (m, imm(side)), ends[side])


def lower_quantize(group: Group, _target: Target, name: str) -> Lowered:
    anchor = group.anchor
    data = tensor_type(anchor.args[0])
    batches, size = data.shape[0], prod(data.shape[1:])
    b = IRBuilder(name)
    buffers: dict[int, Buffer] = {}
    for var in group.params:
        shape = (batches, size) if var is anchor.args[0] else (batches, 3)
        buffers[id(var)] = b.input("data" if var is anchor.args[0] else "parameters", shape, "float32", align=4)
    x, parameters = (buffers[id(a)] for a in anchor.args)
    out = b.output("out", (batches, size), "int8")
    tensors: list[TensorFn] = [elements_of(x), elements_of(parameters)]
    rule = F_TE.get(QUANTIZE)(TeContext(b), tensors, anchor.attrs, TensorType((batches, size), "int8"))
    with b.for_("m", batches) as m:
        factor = b.let("factor", parameters[m, 1])
        total = b.local("sum", (1,), "float32", init=imm(0.0, "float32"))
        b.block(quantize_symmetric(), region(x, m * size), region(out, m * size), total, factor, imm(size))
        nothing: Expr = total[0] - total[0]  # NaN unless the sum is finite
        with b.if_(binop("!=", nothing, nothing)), b.for_("i", size) as i:
            b.store(out, (m, i), rule.at(b, (m, i)))
    func = b.finish(FuncAttrs(kernel="arm_dsp.dynamic_quantize", span=anchor.span))
    return Lowered(func, {}, batches * (size // 8 * 66 + 30) + 10, 380)


_ACCEPTS = partial(accepts, feature="vfp")
register_impl(OpImplementation("arm_dsp.dynamic_range", RANGE, partial(accepts, feature="thumb2"), lower_range, plevel=25))
register_impl(OpImplementation("arm_dsp.dynamic_quantize", QUANTIZE, _ACCEPTS, lower_quantize, plevel=25))
