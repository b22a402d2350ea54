"""Hybrid layers, float32 data quantised to bytes at run time, for cores with DSP instructions and an FPU.

`dense_hybrid`: fully connected, blocks of one row x four channels.  Sums of bytes as in weights.py, with one byte per weight
in flash, then converted to float32.  Scratch: two bytes per input of one row.

`dynamic_range` finds the range of each batch, `dynamic_quantize` the quantised values from its factor (symmetric quantisation).

The range is found with integer compares: floats other than NaN compare like integers if their signs agree.  The largest is the
largest signed integer from 0 on, the smallest is the largest unsigned integer from -0 on.

Quantised values: the reference adds 0.5 to the magnitude in float32 and truncates.  That differs from rounding halves away from
zero for one number only, 0.5 - 2^-25, for which the sum rounds to 1.  A VMLA with EPSILON, a little over 2^-25, moves that number
to 0.5, and no other number up to 127.5 across a half, because there p * EPSILON is below half of the last place of p.  Then VCVT
truncates to 16 bits with one fraction bit, and the halving is done as in `quantize_8`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from math import prod

import numpy as np

from aot.ir.op import Array, Op
from aot.ir.type import TensorType
from aot.op.common.te_rule import F_TE, TeContext
from aot.op.qnn.hybrid import HYBRID as HYBRID_OUTPUT
from aot.op.qnn.hybrid import QUANTIZE, RANGE
from aot.relay.expr import Call, Constant, is_call, tensor_type
from aot.relay.expr import Var as RelayVar
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.te.tensor import TensorFn, elements_of
from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, Var, binop, cast, imm, maximum, minimum, select
from aot.tir.function import FuncAttrs
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.tir.stmt import Region
from aot.topi.arm_dsp.elementwise import rounded_codes
from aot.topi.arm_dsp.weights import (
    BYTES,
    MAX_WEIGHT,
    PRESCALE,
    TAPS,
    W8,
    QuadPlan,
    arrange,
    bias_words,
    dot_w8,
    plan_quads,
    run_quads,
)
from aot.topi.intrin.asm_text import AsmBlock, Repeat, block_of
from aot.topi.layer.fused import describe
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl, register_planned

LANES = 8
"""Elements per iteration of the loops."""

LARGEST_CODE = 127
INFINITE_BITS = 0x7F800000
EPSILON = 2.0**-25 * (1 + 2.0**-22)

_FLOATS = tuple(f"s{i}" for i in range(4))


@cache
def float_range() -> TensorIntrin:
    """ends[0] = max(ends[0], x[i] as int32), ends[1] = max(ends[1], x[i] as uint32) for `count` numbers, a multiple of LANES.

    Operands: x float32[count]; ends uint32[2] in registers; count.
    """
    count = Var("count")
    b = IRBuilder("float_range")
    x = b.input("x", (UNKNOWN_EXTENT,), "float32", align=4)
    ends = b.output("ends", (2,), "uint32")
    with b.for_("i", count) as i:
        signed, unsigned = b.let("signed", x.load("int32", i)), b.let("unsigned", x.load("uint32", i))
        b.store(ends, 0, cast("uint32", maximum(cast("int32", ends[0]), signed)))
        b.store(ends, 1, maximum(ends[1], unsigned))
    return block_of(b, "arm_dsp", _emit_range, count, requires="thumb2")


def _emit_range(operands: Mapping[str, COperand]) -> BlockText:
    registers = ("r4", "r5", "r6", "r8")
    text: list[str | Repeat] = ["1:"]
    for _ in range(LANES // len(registers)):
        text.append(f"ldmia %[x]!, {{{', '.join(registers)}}}")
        for r in registers:
            text += [f"cmp {r}, %[high]", "it gt", f"movgt %[high], {r}", f"cmp {r}, %[low]", "it hi", f"movhi %[low], {r}"]
    high, low = operands["ends"].scalars
    return AsmBlock(
        [f"const void *aot_x = {operands['x'].pointer};", f"int32_t aot_n = {operands['count'].value};"],
        [*text, f"subs %[n], %[n], #{LANES}", "bne 1b"],
        outs=['[x] "+r"(aot_x)', '[n] "+r"(aot_n)', f'[high] "+r"({high})', f'[low] "+r"({low})'],
        clobbers=registers,
    ).emit()


@cache
def quantize_symmetric() -> TensorIntrin:
    """out[i] = the quantised value of x[i] * factor within +-127, for `count` numbers, a multiple of LANES; 0 for NaN.

    Operands: x float32[count], out int8[count], sum float32[1] in a register, factor, count.  Products of neighbours are added to
    `sum`, which becomes infinite or NaN if one of the numbers is.
    """
    factor, count = Var("factor", "float32"), Var("count")
    b = IRBuilder("quantize_symmetric")
    x = b.input("x", (UNKNOWN_EXTENT,), "float32", align=4)
    out = b.output("out", (UNKNOWN_EXTENT,), "int8")
    total = b.output("sum", (1,), "float32")
    far, zero = imm(1000.0, "float32"), imm(0.0, "float32")
    with b.for_("i", count // 2) as i:
        pair = []
        for p in range(2):
            value = b.let("value", x[2 * i + p] * factor)
            value = b.let("value", value + value * imm(EPSILON, "float32"))
            pair.append(value)
            number = select(binop("==", value, value), value, zero)
            bounded = b.let("bounded", select(value >= far, far, select(value <= zero - far, zero - far, number)))
            halves = b.let("halves", cast("int32", bounded * imm(2.0, "float32")))
            code = (halves + select(halves < 0, imm(0), imm(1))) >> 1
            b.store(out, 2 * i + p, cast("int8", maximum(imm(-LARGEST_CODE), minimum(code, imm(LARGEST_CODE)))))
        b.store(total, 0, total[0] + pair[0] * pair[1])
    return block_of(b, "arm_dsp", _emit_quantize, factor, count, requires="vfp")


def _emit_quantize(operands: Mapping[str, COperand]) -> BlockText:
    offset = 1 + 2 * LARGEST_CODE  # from 0: 0 to 254, then 1 more except for 255, so that the lowest byte is -127
    step = [
        "vldmia %[x]!, {s0-s3}",
        *[f"vmul.f32 {s}, {s}, %[factor]" for s in _FLOATS],
        *[f"vmla.f32 {s}, {s}, %[epsilon]" for s in _FLOATS],
        "vmla.f32 %[sum], s0, s1",
        "vmla.f32 %[sum], s2, s3",
        *rounded_codes(),
        "uqadd8 %[a], %[a], %[ones]",
        "eor %[a], %[a], #0x80808080",
        "str %[a], [%[out]], #4",
    ]
    return AsmBlock(
        [
            f"const void *aot_x = {operands['x'].pointer};",
            f"void *aot_out = {operands['out'].pointer};",
            f"const float aot_factor = {operands['factor'].value};",
            f"const float aot_epsilon = {float(EPSILON).hex()}f;",
            f"int32_t aot_n = {operands['count'].value};",
            "uint32_t aot_a, aot_b, aot_c, aot_d;",
        ],
        ["1:", Repeat(LANES // 4, step), f"subs %[n], %[n], #{LANES}", "bne 1b"],
        outs=[
            *(f'[{n}] "+r"(aot_{n})' for n in ("x", "out", "n")),
            *(f'[{t}] "=&r"(aot_{t})' for t in "abcd"),
            f'[sum] "+t"({operands["sum"].scalars[0]})',
        ],
        ins=[
            '[factor] "t"(aot_factor)',
            '[epsilon] "t"(aot_epsilon)',
            '[one] "r"(0x00010001u)',
            '[ones] "r"(0x01010101u)',
            f'[offset] "r"({offset | offset << 16:#x}u)',
        ],
        clobbers=_FLOATS,
    ).emit()


CHANNELS = 4
SUM_LIMIT = 1 << (31 - PRESCALE)
"""Limit of sums, as accumulators are scaled by 256."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """`weight` int [O, K]; `scales` float32 [1] or [O]; `bias` float32 [O] or None; `parameters`: scale, factor, zero point."""

    anchor: Call
    output: Call
    data: RelayVar
    parameters: RelayVar
    weight: Array
    scales: Array
    bias: Array | None

    @property
    def rows(self) -> int:
        return prod(self.data.type.shape[:-1])

    @property
    def channels(self) -> int:
        return len(self.weight)


def _plan(group: Group, target: Target) -> _Plan | None:
    """Accept data of bytes (symmetric quantisation), sums below 2^23, and nothing after the layer's own output."""
    anchor, (output, *others) = group.anchor, (group.followers or (None,))
    if output is None or others or not is_call(output, HYBRID_OUTPUT) or not isinstance(anchor.op, Op) or not target.has("dsp"):
        return None
    data, weight = anchor.args
    _, parameters, scales, *bias = output.args
    constants = [c for c in (weight, scales, *bias) if isinstance(c, Constant)]
    if len(constants) < 2 + len(bias) or not isinstance(data, RelayVar) or not isinstance(parameters, RelayVar):
        return None
    if data.type.dtype != "int8" or anchor.attrs.input_zp or anchor.attrs.weight_zp or tensor_type(anchor).dtype != "int32":
        return None
    matrix = constants[0].data.astype(np.int64)
    if int(np.abs(matrix).max()) > MAX_WEIGHT or int(np.abs(matrix).sum(axis=1).max()) * 128 >= SUM_LIMIT:
        return None
    return _Plan(
        anchor, output, data, parameters, matrix, constants[1].data.reshape(-1), constants[2].data.reshape(-1) if bias else None
    )


def _lower(group: Group, _target: Target, name: str, plan: _Plan) -> Lowered:
    kernel = _Kernel(IRBuilder(name), group, plan)
    kernel.emit()
    attrs = FuncAttrs(
        kernel=describe("arm_dsp.dense_hybrid", channels=CHANNELS, unroll=kernel.quads.unroll),
        span=plan.anchor.span,
        macs=plan.rows * plan.weight.size,
    )
    return Lowered(kernel.b.finish(attrs), {"params": kernel.stream()}, kernel.instructions(), kernel.code())


class _Kernel:
    """Emits the loops: rows, packing, blocks of channels."""

    def __init__(self, b: IRBuilder, group: Group, plan: _Plan) -> None:
        self.b, self.plan, depth = b, plan, plan.weight.shape[1]
        self.quads: QuadPlan = plan_quads(run_quads(depth), cost=14, common=False)
        self._weights = arrange(plan.weight, 1, self.quads)
        start = bias_words(np.zeros(plan.channels, np.int64), self._weights)
        floats = [a for a in (plan.scales if plan.scales.size > 1 else None, plan.bias) if a is not None]
        self._numbers = [start.astype(np.int32), *(a.astype(np.float32).view(np.int32) for a in floats)]
        buffers = {
            id(var): b.input("data" if var is plan.data else "parameters", (prod(var.type.shape),), var.type.dtype)
            for var in group.params
        }
        self._data, self._parameters = buffers[id(plan.data)], buffers[id(plan.parameters)]
        self._out = b.output("out", (plan.rows * plan.channels,), "float32")
        self._params = b.const("params", (self.stream().size,), "int32", align=4)
        self._words = b.scratch("words", (TAPS * self.quads.quads,), "int16", align=4)

    def stream(self) -> Array:
        """Return per block of n channels: start values, scales if they vary, biases if there are any, weights [quads][n]."""
        parts: list[Array] = []
        for first in range(0, self.plan.channels, CHANNELS):
            block = slice(first, first + CHANNELS)
            parts += [a[block] for a in self._numbers]
            parts.append(BYTES.block(self._weights[block]))
        return np.concatenate(parts)

    def emit(self) -> None:
        b, depth = self.b, self.plan.weight.shape[1]
        whole, remainder = divmod(self.plan.channels, CHANNELS)
        with b.for_("m", self.plan.rows) as m:
            W8.pack_run(b, (self._data, m * depth), depth, words=region(self._words), total=self.quads.quads)
            scale = b.let("scale", self._parameters[m * 3])
            if whole:
                with b.for_("n", whole) as n:
                    self._block(m, n, CHANNELS, scale)
            if remainder:
                self._block(m, imm(whole), remainder, scale)

    def _block(self, m: Expr, n: Expr, count: int, scale: Expr) -> None:
        b, numbers = self.b, len(self._numbers)
        start = b.let("start", n * (CHANNELS * (numbers + self.quads.quads)))
        acc = b.local("acc", (count,), "int32")
        for j in range(count):
            b.store(acc, j, self._params[start + j])
        weights = Region(self._params, (start + count * numbers) * 2, "int16")
        b.block(dot_w8(count, self.quads.unroll, self.quads.rest), weights, self._words, acc, imm(self.quads.quads))
        for j in range(count):
            b.store(self._out, m * self.plan.channels + n * CHANNELS + j, self._value(start, acc, j=j, count=count, scale=scale))

    def _value(self, start: Expr, acc: Buffer, *, j: int, count: int, scale: Expr) -> Expr:
        """Return the output's value as the operator defines it, with numbers from the stream."""
        floats = iter(range(1, len(self._numbers)))

        def number() -> TensorFn:
            at = start + (next(floats) * count + j)
            return TensorFn((2,), "float32", lambda _b, _i: self._params.load("float32", at))

        shape, scales = (self.plan.rows, self.plan.channels), self.plan.scales
        weight_scale = (
            TensorFn((1,), "float32", lambda _b, _i: imm(float(scales[0]), "float32")) if scales.size == 1 else number()
        )
        args = [
            TensorFn(shape, "int32", lambda _b, _i: acc[j] >> PRESCALE),
            TensorFn((self.plan.rows, 3), "float32", lambda _b, _i: scale),
            weight_scale,
            *([number()] if self.plan.bias is not None else []),
        ]
        output = self.plan.output
        value = F_TE.get(HYBRID_OUTPUT)(TeContext(self.b), args, output.attrs, TensorType(shape, "float32"))
        return value.at(self.b, (imm(0), imm(j)))

    def instructions(self) -> int:
        plan = self.plan
        each = 10 + len(self._numbers) + 4 * sum(v is not None for v in (plan.output.attrs.lo, plan.output.attrs.hi))
        blocks = [CHANNELS] * (plan.channels // CHANNELS) + [plan.channels % CHANNELS] * (plan.channels % CHANNELS > 0)
        total = sum(self.quads.instructions(2 + 3 * n) + n * each + 12 for n in blocks)
        return plan.rows * (total + W8.run_instructions(plan.weight.shape[1]) + 10) + 12

    def code(self) -> int:
        """Return the bytes of code."""
        kinds = {CHANNELS} if self.plan.channels >= CHANNELS else set()
        kinds |= {self.plan.channels % CHANNELS} - {0}
        return 140 + sum(self.quads.code(2 + 3 * n) + 60 + 56 * n for n in kinds)


# A layer with followers would have float32 results, four bytes each, between them.
register_planned("arm_dsp.dense_hybrid", "nn.dense", _plan, _lower, plevel=30, cuts=False)


SIGN = 1 << 31


def _accepts(group: Group, target: Target, *, feature: str) -> bool:
    """Accept one call with batches of whole iterations, as the reference handles a remainder differently."""
    anchor = group.anchor
    if group.followers or anchor is not group.result or not target.has("dsp") or not target.has(feature):
        return False
    if not all(isinstance(a, RelayVar) for a in anchor.args) or (anchor.attrs is not None and anchor.attrs.asymmetric):
        return False
    size = prod(tensor_type(anchor.args[0]).shape[1:])
    return size > 0 and size % LANES == 0


def lower_range(group: Group, _target: Target, name: str) -> Lowered:
    """Lower dynamic_range: per batch one block of integer compares, or float compares if there is a NaN."""
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
    """Emit the range of a batch; NaN is left out, as every comparison with it is false."""
    zero = imm(0.0, "float32")
    ends = b.local("found", (2,), "float32", init=zero)
    with b.for_("i", size) as i:
        for side, value in enumerate((b.let("below", zero - x[m, i]), b.let("above", x[m, i]))):
            b.store(ends, side, select(value > ends[side], value, ends[side]))
    for side in range(2):
        b.store(out, (m, imm(side)), ends[side])


def lower_quantize(group: Group, _target: Target, name: str) -> Lowered:
    """Lower dynamic_quantize: per batch one block; batches with infinity or NaN are done again by the operator's rule."""
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


_ACCEPTS = partial(_accepts, feature="vfp")
register_impl(OpImplementation("arm_dsp.dynamic_range", RANGE, partial(_accepts, feature="thumb2"), lower_range, plevel=25))
register_impl(OpImplementation("arm_dsp.dynamic_quantize", QUANTIZE, _ACCEPTS, lower_quantize, plevel=25))
