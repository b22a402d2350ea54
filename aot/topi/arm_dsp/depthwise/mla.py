"""Depthwise convolution for cores with Thumb-2 but without DSP instructions (Cortex-M3), with MLA.

`depthwise_lanes`: blocks of six outputs of one channel, from planes, also for windows larger than 3 x 3.  Two pixels share a
32-bit word, so that four MLA do six multiply-accumulates (aot/topi/layer/planes.py).  Here the words of a tap stay in their
registers for the next tap, and SMULL requantises.

`depthwise_line`: windows of one row or one column without padding; up to five outputs of one line of a channel at a time,
straight from the data, without a plane or scratch memory.  While the weight of a tap is in a register, so are as many bytes as
there are outputs; all but the first of them serve the next tap as well, so each tap loads one new byte.  Flash: four bytes per
weight, scaled so that all channels can have the same shift.
"""

from __future__ import annotations

from functools import cache
from math import prod

import numpy as np

from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, cast, imm
from aot.tir.intrin import BlockText, TensorIntrin
from aot.tir.stmt import Region
from aot.topi.intrin.asm_text import Operands, asm, block_of
from aot.topi.layer.fused import FusedLayer, LayerIo, epilogue_each, lowered, match_for, open_flat
from aot.topi.layer.im2col import Axis, axes
from aot.topi.layer.planes import LaneRequant, Machine, Taps, counted, register_lanes
from aot.topi.layer.requant import HighMultiply, plan_high_multiply, plan_requantize, plan_uniform
from aot.topi.strategy import Group, Lowered, register_planned

MOST_SCALE = 14
"""Most bits by which sums are scaled to reach a common shift."""


def _row(taps: Taps, ky: int) -> list[str]:
    """The taps of a row of the window: LDR and MLA."""
    x, y = ["x0", "x1"], ["y0", "y1"]
    sliding = taps.stride == taps.dilation or taps.columns == 1  # the second word of a tap is the first word of the next tap
    text = [f"ldr %[{n}], [%[{n[0]}]]" for n in (x[0], y[0])] if sliding else []
    for kx in range(taps.columns):
        first = 4 * kx * taps.dilation
        second = first + 4 * taps.stride
        if not sliding:
            text += [f"ldr %[{n}], [%[{n[0]}], #{first}]" for n in (x[0], y[0])]
        text += [f"ldrsb %[v], [%[w], #{ky * taps.columns + kx}]"]
        text += [f"ldr %[{n}], [%[{n[0]}], #{second}]" for n in (x[1], y[1])]
        text += [f"mla %[a{i}], %[{n}], %[v], %[a{i}]" for i, n in enumerate((*x, *y))]
        if sliding:
            x, y = x[::-1], y[::-1]
    return text


def _uniform(layer: FusedLayer, target: Target, *, least: int) -> HighMultiply | None:
    """Return one shift for all channels, if exact for sums scaled by `least` bits or more."""
    low, high = layer.acc_low, layer.acc_high
    most = min(30 - int(np.maximum(np.abs(low), np.abs(high) + 1).max()).bit_length(), MOST_SCALE)
    options = (plan_uniform(layer.requant, low, high, target=target, prescale=scale) for scale in range(most, least - 1, -1))
    return next((form for form in options if form is not None), None)


def _requantise(layer: FusedLayer, target: Target) -> LaneRequant:
    """Return one shift for all channels if exact, which also settles the rounding."""
    form = _uniform(layer, target, least=5) or plan_requantize(layer.requant, layer.acc_low, layer.acc_high, target)
    return LaneRequant(form, np.zeros_like(layer.bias))


def _result_cost(requant: LaneRequant) -> int:
    form = requant.form
    return 5 + 3 * form.rounded + form.signed if isinstance(form, HighMultiply) else 25


M3 = Machine(
    "arm_dsp.depthwise_lanes", "arm_dsp.mla", "thumb2", "rr", row=_row, temporaries=("x0", "x1", "y0", "y1", "v"), reach=1000,
    requantise=_requantise, result_cost=_result_cost, group_cost=15,
)  # fmt: skip
register_lanes(M3, lacks="dsp", plevel=25)


MAX_OUTPUTS = 5
"""Most sums, and bytes, in registers, besides a weight and two pointers."""
MAX_OFFSET, MAX_STEP = 4095, 255
"""Largest offset of LDRSB, and of LDRSB with pointer update."""


@dataclass(frozen=True, slots=True)
class Line:
    """`taps` weights, `outputs` results, `step` bytes between neighbours in the data."""

    taps: int
    outputs: int
    step: int

    @property
    def bytes_read(self) -> int:
        return self.taps + self.outputs - 1

    @property
    def far(self) -> bool:
        """Whether offsets do not reach the last byte, so that the pointer advances."""
        return (self.bytes_read - 1) * self.step > MAX_OFFSET

    @property
    def instructions(self) -> int:
        """Instructions of `mla_line`."""
        moves = self.bytes_read if self.far and self.step > MAX_STEP else 0
        return self.taps * (1 + self.outputs) + self.bytes_read + moves


@cache
def mla_line(line: Line) -> TensorIntrin:
    """acc[i] += sum over k < taps of w[k] * x[(i + k) * step], i < outputs; acc int32 in registers, w int32, x int8."""
    b = IRBuilder(f"mla_line_{line.taps}_{line.outputs}_{line.step}")
    w = b.input("w", (line.taps,), "int32", align=4)
    x = b.input("x", ((line.bytes_read - 1) * line.step + 1,), "int8")
    acc = b.output("acc", (line.outputs,), "int32")
    with b.for_("k", line.taps) as k:
        for i in range(line.outputs):
            b.store(acc, i, acc[i] + w[k] * cast("int32", x[(k + i) * line.step]))
    return block_of(b, "arm_dsp", lambda ops: _emit_line(ops, line), requires="thumb2")


def _load(line: Line, n: int) -> list[str]:
    """Return the load of byte n into its register, which is reused by byte n + outputs."""
    register = f"%[x{n % line.outputs}]"
    if not line.far:
        return [f"ldrsb {register}, [%[xp], #{n * line.step}]"]
    if line.step <= MAX_STEP:
        return [f"ldrsb {register}, [%[xp]], #{line.step}"]
    return [f"ldrsb {register}, [%[xp]]", "add %[xp], %[step]"]


def _emit_line(operands: Operands, line: Line) -> BlockText:
    text: list[str] = []
    for n in range(line.outputs - 1):
        text += _load(line, n)
    for k in range(line.taps):
        text += [*_load(line, k + line.outputs - 1), f"ldr %[v], [%[w], #{4 * k}]"]
        text += [f"mla %[a{i}], %[x{(k + i) % line.outputs}], %[v], %[a{i}]" for i in range(line.outputs)]
    temporaries = [*(f"x{i}" for i in range(line.outputs)), "v"]
    ins = {"step": f"{line.step}"} if line.far and line.step > MAX_STEP else {}
    return asm(operands, text, "xp=x *w", ins, kind="+", acc="a", temporaries=temporaries)


MAX_TAPS = 32
PLAIN_SCALE = 2
"""Bits by which sums are scaled without a common shift; from this value on the product needs no rounding."""


@dataclass(frozen=True, slots=True)
class LinePlan:
    """`along` is the axis of the window, `across` the other axis; `outputs` per block."""

    layer: FusedLayer
    requant: HighMultiply
    along: Axis
    across: Axis
    outputs: int

    def line(self, outputs: int) -> Line:
        return Line(self.along.taps, outputs, self.along.data_step)

    @property
    def remainder(self) -> int:
        return self.along.out % self.outputs

    def block_cost(self, outputs: int) -> int:
        requant = self.requant
        each = 4 + 2 * requant.signed + (not requant.params[2].uniform) + 2 * (requant.lo > -128 or requant.hi < 127)
        around = 17 if outputs > 1 else 4
        return self.line(outputs).instructions + outputs * (each + epilogue_each(self.layer)) + around

    @property
    def cost(self) -> int:
        """Instructions of one call (from counts under QEMU)."""
        line = self.along.out // self.outputs * self.block_cost(self.outputs) + 10
        line += self.block_cost(self.remainder) if self.remainder else 0
        return self.layer.out_type.shape[0] * self.layer.channels * (self.across.out * line + 14)


def _plan_line(group: Group, target: Target) -> LinePlan | None:
    """Refuse cores with DSP instructions: they have kernels with fewer instructions."""
    layer = match_for(group, target, "thumb2")
    if (
        layer is None
        or target.has("dsp")
        or layer.data_type.dtype != "int8"
        or 0 in layer.out_type.shape
        or any(layer.attrs.padding)
    ):
        return None
    requant = _uniform(layer, target, least=4)
    requant = requant or plan_high_multiply(layer.requant, layer.acc_low, layer.acc_high, target=target, prescale=PLAIN_SCALE)
    y, x = axes(layer)
    along, across = (y, x) if x.taps == 1 else (x, y)
    if requant is None or across.taps > 1 or along.taps > MAX_TAPS or along.stride > 1 or (along.taps > 1 and along.dilation > 1):
        return None
    plans = [LinePlan(layer, requant, along, across, n) for n in range(1, min(along.out, MAX_OUTPUTS) + 1)]
    return min(plans, key=lambda p: p.cost)


def _lower_line(group: Group, _target: Target, name: str, plan: LinePlan) -> Lowered:
    layer, along, across, requant = plan.layer, plan.along, plan.across, plan.requant
    b = IRBuilder(name)
    io = open_flat(b, group, layer)
    # scaled weights and bias, then the requantisation parameters that vary between channels
    scale, taps = 1 << int(requant.prescale[0]), layer.weight.reshape(along.taps, -1)
    varying = [f.values for f in requant.params if not f.uniform]
    stream = np.stack([*(scale * taps), scale * layer.bias, *varying], axis=1).astype(np.int32)
    params = io.constant("params", stream.reshape(-1), "int32")
    depth, multiplier = layer.data_type.shape[-1], layer.attrs.multiplier
    for image in counted(b, layer.data_type.shape[0], "n"):
        with b.for_("c", depth) as c:
            for m in counted(b, multiplier, "m"):
                data = b.let("data", image * prod(layer.data_type.shape[1:]) + c)
                out = b.let("out", image * prod(layer.out_type.shape[1:]) + (c * multiplier + m))
                words = b.let("words", (c * multiplier + m) * stream.shape[1])
                loads = (params[words + i] for i in range(along.taps, stream.shape[1]))
                bias = b.let("bias", next(loads))
                requant_params = tuple(imm(int(f.values[0])) if f.uniform else b.let(f.name, next(loads)) for f in requant.params)
                for line in counted(b, across.out, "line"):
                    start = data + line * (across.stride * across.data_step), out + line * across.out_step
                    _line(b, plan, io, region(params, words), start=start, bias=bias, numbers=requant_params)
    blocks = [plan.line(n) for n in (plan.outputs, plan.remainder) if n]
    code = 120 + sum(4 * line.instructions + 24 * line.outputs * (1 + len(layer.epilogue)) for line in blocks)
    return lowered(io, layer, "arm_dsp.depthwise_line", plan.cost, code, outputs=plan.outputs)


def _line(
    b: IRBuilder, plan: LinePlan, io: LayerIo, weights: Region, *, start: tuple[Expr, Expr], bias: Expr, numbers: tuple[Expr, ...]
) -> None:
    """Compute a line of one channel; `start`: its first datum and its first result."""

    def block(first: Expr, outputs: int) -> None:
        sums = b.local("acc", (outputs,), "int32")
        for i in range(outputs):
            b.store(sums, i, bias)
        source = region(io.data, b.let("x", start[0] + first * plan.along.data_step))
        b.block(mla_line(plan.line(outputs)), weights, source, sums)
        values = [plan.requant.emit_scaled(b, sums[i], numbers) for i in range(outputs)]
        at = b.let("o", start[1] + first * plan.along.out_step)
        io.store_all([(at + i * plan.along.out_step,) for i in range(outputs)], values)

    for n in counted(b, plan.along.out // plan.outputs, "n"):
        block(n * plan.outputs, plan.outputs)
    if plan.remainder:
        block(imm(plan.along.out - plan.remainder), plan.remainder)


register_planned("arm_dsp.depthwise_line", "nn.depthwise_conv2d", _plan_line, _lower_line, plevel=32)
