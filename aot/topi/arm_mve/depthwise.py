"""Depthwise convolution for MVE: sums over adjacent bytes, eight channels and a band of lines at a time.

VMLADAV sums products of 16 adjacent bytes, but the taps of a depthwise output are `channels` bytes apart.  So the data of the
band are first split by channel, with scatter stores at two instructions per eight bytes; the taps of an output are then adjacent,
and one load and one VMLADAV give up to four outputs.  Scratch memory: the taps of the band's lines for eight channels.

Outputs follow each other `along` one axis of the image; the other axis is `across`.  For a line of outputs, a channel's scratch
memory holds, position by position along the line, the KA taps across it: the taps of an output are KA * KL adjacent bytes, and
the taps of the next output begin KA * stride bytes later.

A convolution of one-channel data is computed as a depthwise one with many outputs for that channel.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial, reduce
from math import prod

import numpy as np

from aot.ir.op import Array
from aot.op.nn.conv import DepthwiseConv2DAttrs
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, cast, imm, logical_and, minimum
from aot.tir.function import FuncAttrs
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.arm_mve.elementwise import Results
from aot.topi.arm_mve.vectors import NEAR, VECTOR, RequantForm, VectorRequant, fill, fill_instructions, plan_vectors, splat
from aot.topi.intrin.asm_text import Operands, Repeat, add_immediate, asm, block_of, count_instructions, executed
from aot.topi.layer.fused import FusedLayer, LayerIo, describe, match_layer, open_flat, supports_epilogue
from aot.topi.layer.im2col import Axis, axes
from aot.topi.strategy import Group, Lowered, register_planned

MOST_WEIGHTS = 4
"""Vectors of weights kept in registers; one fewer if there are more vectors, as one register is then reloaded for the others."""
MOST_VECTORS = 8
"""Most vectors of taps per output."""
MOST_OFFSET = 1 << 15
"""Offsets of scatter stores are 16 bits."""
LANES = 8
"""Channels that are split at a time, and outputs that are stored at a time."""


@dataclass(frozen=True, slots=True)
class Lines:
    """`band` lines of outputs at a time; `across` and `along` as above; `multiplier`: output channels per data channel."""

    across: Axis
    along: Axis
    swapped: bool
    band: int
    form: RequantForm
    multiplier: int = 1

    @property
    def taps(self) -> int:
        return self.across.taps * self.along.taps

    @property
    def shift(self) -> int:
        """Bytes from an output's taps to the next output's."""
        return self.across.taps * self.along.stride

    @property
    def line(self) -> int:
        """Bytes of a line of one channel."""
        return self.across.taps * ((self.along.out - 1) * self.along.stride + self.along.taps)

    @property
    def pitch(self) -> int:
        """Bytes of one channel."""
        return self.band * self.line

    @property
    def vectors(self) -> int:
        """Vectors of taps per output."""
        return -(-self.taps // VECTOR)

    @property
    def resident(self) -> int:
        """Vectors of a single output's weights that stay in registers."""
        return self.vectors if self.vectors <= MOST_WEIGHTS else MOST_WEIGHTS - 1

    @property
    def shared(self) -> int:
        """Outputs whose taps are in one loaded vector; each has its own vector of shifted weights."""
        if self.vectors > 1:
            return 1
        return min(MOST_WEIGHTS, (VECTOR - self.taps) // self.shift + 1, self.along.out)

    @property
    def weights(self) -> int:
        """Bytes of a channel's weights, with zeros on both sides."""
        lead = (self.shared - 1) * self.shift
        return -(-(lead + VECTOR * self.vectors) // 4) * 4

    @property
    def record(self) -> int:
        """Bytes of a channel in the stream: weights, bias, multiplier, shift; if needed, left shift and ties multiplier."""
        return self.weights + 12 + 4 * (self.form.left + (self.form.ties == 3))

    @property
    def fits(self) -> bool:
        if self.along.dilation != 1 or self.vectors > MOST_VECTORS or self.shift > 120:
            return False
        return LANES * self.along.out_step < MOST_OFFSET and (LANES - 1) * self.pitch + self.line < MOST_OFFSET


_TOGETHER = 3
"""Taps across whose data are split in one loop."""


@dataclass(frozen=True, slots=True)
class Part:
    """A split: `taps` taps across, read `tap_step` bytes apart, at `count` positions `step` bytes apart, for `lanes` channels.

    In the result, taps are one byte apart, positions `across` bytes, channels `pitch` bytes.
    """

    taps: int
    tap_step: int
    count: int
    step: int
    lanes: int
    across: int
    pitch: int


@cache
def split_channels(part: Part) -> TensorIntrin:
    """to[l * pitch + i * across + r] = data[r * tap_step + i * step + l] for l < lanes, i < count, r < taps.

    Operands: data and to (int8), which do not overlap.
    """
    b = IRBuilder(f"take_apart_{part.taps}x{part.count}x{part.lanes}")
    data = b.input("data", (UNKNOWN_EXTENT,), "int8")
    to = b.output("to", (UNKNOWN_EXTENT,), "int8")
    with b.for_("r", part.taps) as r, b.for_("i", part.count) as i, b.for_("l", part.lanes) as lane:
        b.store(to, lane * part.pitch + i * part.across + r, data[r * part.tap_step + i * part.step + lane])
    clobbers = ["r0", "r2", "r3", "r5", "r6", "r8", "lr", "q0", "q1", "q2"]
    emit = partial(asm, text=split_text(part), pointers="s@r1=data >d@r4=to", kind="+", clobbers=clobbers)
    return block_of(b, "arm_mve", emit)


def split_text(part: Part) -> list[str | Repeat]:
    """The assembly; r1 to r3 read, r4 to r6 write; q2 offsets of the channels, q1 offsets within a position."""
    lines: list[str | Repeat] = ["mov r0, #0", "vidup.u16 q2, r0, #1", f"movw r0, #{part.pitch}", "vmul.i16 q2, q2, r0"]
    lines += [f"mov r0, #{part.lanes}", "vctp.16 r0"] if part.lanes < LANES else []
    lines.append(f"mov r8, #{part.across}")
    for first in range(0, part.taps, _TOGETHER):
        count = min(_TOGETHER, part.taps - first)
        last = first + count == part.taps
        lines += _taps(part, count, last=last)
    return lines


def _taps(part: Part, taps: int, *, last: bool) -> list[str | Repeat]:
    """`taps` taps of all positions; unless they are the `last`, the pointers end at the next taps."""
    lines: list[str | Repeat] = ["vmov q1, q2"]
    for r in range(1, taps):
        lines += [*far("r0", f"r{1 + r}", f"r{r}", part.tap_step), f"add r{4 + r}, r{3 + r}, #1"]
    near = part.step <= NEAR
    masked = part.lanes < LANES
    step: list[str | Repeat] = []
    for r in range(taps):
        place = f"[r{1 + r}], #{part.step}" if near and part.step else f"[r{1 + r}]"
        step += ["vpstt", f"vldrbt.u16 q0, {place}"] if masked else [f"vldrb.u16 q0, {place}"]
        step.append(f"vstrb{'t' * masked}.16 q0, [r{4 + r}, q1]")
        step += [] if near else far("r0", f"r{1 + r}", f"r{1 + r}", part.step)
    step.append("vadd.i16 q1, q1, r8")
    unroll = min(4, part.count)
    iterations, remainder = divmod(part.count, unroll)
    if iterations > 1:
        lines += [f"movw lr, #{iterations}", "dls lr, lr", "1:", Repeat(unroll, step), "le lr, 1b", Repeat(remainder, step)]
    else:
        lines.append(Repeat(part.count, step))
    if not last:
        lines += far("r0", "r1", f"r{taps}", part.tap_step - part.count * part.step)
        lines.append(f"add r4, r{3 + taps}, #1")
    return lines


def far(spare: str, register: str, base: str, value: int) -> list[str]:
    """register = base + value, for any constant."""
    if abs(value) < 4096:
        return [f"{'addw' if value >= 0 else 'subw'} {register}, {base}, #{abs(value)}"]
    load = [f"movw {spare}, #{abs(value) & 0xFFFF}"] + ([f"movt {spare}, #{abs(value) >> 16}"] if abs(value) > 0xFFFF else [])
    return [*load, f"{'add' if value >= 0 else 'sub'} {register}, {base}, {spare}"]


def split_instructions(part: Part) -> int:
    """Instructions that one block executes."""
    return int(executed(split_text(part), {"1": part.count // min(4, part.count)})) + 2


@cache
def convolve(lines: Lines, channels: int) -> TensorIntrin:
    """`band` lines of outputs for `channels` channels: the sum of the taps, requantised.

    Operands: taps int8, as stored by `split_channels`; params int8 (aligned to 4 bytes), one record per channel; out int8, the
    first output of the first channel.
    """
    b = IRBuilder(f"convolve_{lines.across.taps}x{lines.along.taps}_s{lines.along.stride}")
    taps = b.input("taps", (UNKNOWN_EXTENT,), "int8")
    params = b.input("params", (UNKNOWN_EXTENT,), "int8", align=4)
    out = b.output("out", (UNKNOWN_EXTENT,), "int8")
    lead = (lines.shared - 1) * lines.shift
    with b.for_("c", channels) as c, b.for_("y", lines.band) as y, b.for_("i", lines.along.out) as i:
        acc = b.local("acc", (1,), "int32", init=0)
        start = b.let("start", c * lines.pitch + y * lines.line + i * lines.shift)
        weights = b.let("weights", c * lines.record + lead)
        with b.for_("k", lines.taps) as k:
            product = cast("int32", taps[start + k]) * cast("int32", params.load("int8", weights + k))
            b.store(acc, 0, acc[0] + product)
        numbers_at = b.let("requant_at", (c * lines.record + lines.weights) // 4)
        shift: Expr = params.load("int32", numbers_at + 2)
        shift = shift + params.load("int32", numbers_at + 3) if lines.form.left else shift
        result = lines.form.meaning(b, acc[0], (params.load("int32", numbers_at), params.load("int32", numbers_at + 1), shift))
        b.store(out, c * lines.multiplier + y * lines.across.out_step + i * lines.along.out_step, result)
    return block_of(b, "arm_mve", lambda ops: _emit_convolve(ops, lines, channels))


def _emit_convolve(operands: Operands, lines: Lines, channels: int) -> BlockText:
    loop, start = channels > 1, operands["params"].pointer
    ends = {"e": COperand(f"(const uint8_t *){start} + {channels * lines.record}")}
    clobbers = ["r0", "r2", "r3", "r4", "r5", "r6", "r7", "r9", "r10", "r11", "lr", *(f"q{i}" for i in range(8))]
    pointers = "*end:m=e " * loop + "x@r1=taps p@r8=params >o@r12=out"
    return asm({**operands, **ends}, convolve_text(lines, loop=loop), pointers, kind="+", clobbers=clobbers)


_ORDER = [0, 4, 1, 5, 2, 6, 3, 7]
"""The output in each 16-bit lane after VQMOVNB and VQMOVNT have joined two vectors of four."""


def convolve_text(lines: Lines, *, loop: bool) -> list[str | Repeat]:
    """The assembly; q0 data, q1 to q4 weights, q5 offsets of eight outputs, q6 and q7 accumulators.

    r1 taps, r3 outputs, r5 bias, r7 multiplier, r9 shift, r8 stream, r10 lines, r11 zero point, r12 the channel's outputs.
    """
    remainder = lines.along.out % LANES
    text: list[str | Repeat] = ["mov r0, #0", "vidup.u16 q5, r0, #1", "vshr.u16 q6, q5, #1", "vmov.i16 q7, #1"]
    text += ["vand q5, q5, q7", "vshl.i16 q5, q5, #2", "vadd.i16 q5, q5, q6"]
    text += [f"movw r0, #{lines.along.out_step}", "vmul.i16 q5, q5, r0"]
    zero_point = lines.form.zero_point
    if zero_point:
        text.append(f"mvn r11, #{-1 - zero_point}" if zero_point < 0 else f"mov r11, #{zero_point}")
    if remainder:
        mask = sum(3 << (2 * lane) for lane, output in enumerate(_ORDER) if output < remainder)
        text += [f"movw r0, #{mask}", "vmsr p0, r0"]
    many = lines.band > 1
    body: list[str | Repeat] = [*_load_channel(lines), "mov r3, r12", *([f"movw r10, #{lines.band}", "3:"] * many)]
    body += [*_line(lines), *(["subs r10, r10, #1", "bne.w 3b"] * many)]
    if not loop:
        return [*text, *body]
    return [*text, "1:", *body, "ldr r0, %[end]", f"add r12, r12, #{lines.multiplier}", "cmp r8, r0", "bne.w 1b"]


def _load_channel(lines: Lines) -> list[str]:
    loads = []
    if lines.vectors > 1:
        loads = [f"vldrb.u8 q{1 + v}, [r8, #{VECTOR * v}]" for v in range(lines.resident)]
    else:
        loads = [f"vldrb.u8 q{1 + n}, [r8, #{(lines.shared - 1 - n) * lines.shift}]" for n in range(lines.shared)]
    at = lines.weights
    return [*loads, f"ldrd r5, r7, [r8, #{at}]", f"ldr r9, [r8, #{at + 8}]", *add_immediate("r8", lines.record)]


def _line(lines: Lines) -> list[str | Repeat]:
    """A line of one channel; the pointers end at the next line."""
    whole, remainder = divmod(lines.along.out, LANES)
    moved = LANES * lines.along.out_step
    text: list[str | Repeat] = []
    eight = [*_eight(lines, LANES), *far("r0", "r3", "r3", moved)]
    if whole > 1:
        text += [f"movw lr, #{whole}", "dls lr, lr", "2:", *eight, "le lr, 2b"]
    elif whole:
        text += eight
    text += _eight(lines, remainder) if remainder else []
    left = lines.line - lines.along.out * lines.shift
    text += far("r0", "r1", "r1", left) if left else []
    return [*text, *far("r0", "r3", "r3", lines.across.out_step - whole * moved)]


def _eight(lines: Lines, count: int) -> list[str]:
    """Up to eight outputs."""
    text: list[str] = []
    for first in range(0, count, 4):
        outputs = min(4, count - first)
        text += _sums(lines, first, outputs, total=count)
        q = f"q{6 + first // 4}"
        text += [f"vmov {q}[2], {q}[0], r0, r4"] + ([f"vmov {q}[3], {q}[1], r2, r6"] if outputs > 1 else [])
    return text + _results(lines, count)


def _sums(lines: Lines, before: int, outputs: int, *, total: int) -> list[str]:
    """Sums of the outputs from `before` on in r0, r2, r4, r6; one load serves up to `shared` of the `total` outputs stored
    together.
    """
    text: list[str] = []
    for j in range(outputs):
        acc, number = f"r{2 * j}", before + j
        if lines.vectors > 1:
            text += [f"vldrb.u8 q0, [r1], #{lines.shift}", f"vmladav.s8 {acc}, q0, q1"]
            for v in range(1, lines.vectors):
                weights = [] if v < lines.resident else [f"vldrb.u8 q4, [r8, #{VECTOR * v - lines.record}]"]
                text += [f"vldrb.u8 q0, [r1, #{VECTOR * v - lines.shift}]", *weights]
                text.append(f"vmladava.s8 {acc}, q0, q{4 if weights else 1 + v}")
            continue
        place = number % lines.shared
        if place == 0:
            text.append(f"vldrb.u8 q0, [r1], #{min(lines.shared, total - number) * lines.shift}")
        text.append(f"vmladav.s8 {acc}, q0, q{1 + place}")
    return text


def _results(lines: Lines, count: int) -> list[str]:
    """Requantise q6 and q7 and store them."""
    form = lines.form
    vectors = ["q6", "q7"][: 1 + (count > 4)]
    text = [f"vadd.i32 {q}, {q}, r5" for q in vectors]
    if form.left:
        text += [f"ldr r0, [r8, #{-8 if form.ties == 3 else -4}]", *(f"vshl.s32 {q}, r0" for q in vectors)]
    text += [f"{form.multiply} {q}, {q}, r7" for q in vectors]
    text += ["ldr r0, [r8, #-4]"] if form.ties == 3 else []
    for q in vectors if form.ties else ():
        text += [f"vshr.s32 q0, {q}, #31", f"vmla.s32 {q}, q0, r0" if form.ties == 3 else f"vadd.i32 {q}, {q}, q0"]
    text += [f"vrshl.s32 {q}, r9" for q in vectors] + ["vqmovnb.s32 q6, q6"] + ["vqmovnt.s32 q6, q7"] * (count > 4)
    text += ["vqadd.s16 q6, q6, r11"] * bool(form.zero_point) + ["vqmovnb.s16 q6, q6"]
    for bound, op, usual in ((form.lo, "vmax", -128), (form.hi, "vmin", 127)):
        if bound != usual:
            text += [*splat("q0", bound, 8), f"{op}.s8 q6, q6, q0"]
    return text + (["vstrb.16 q6, [r3, q5]"] if count == LANES else ["vpst", "vstrbt.16 q6, [r3, q5]"])


def convolve_instructions(lines: Lines, channels: int) -> int:
    """Instructions that one block executes."""
    trips = {"1": channels, "2": lines.along.out // LANES, "3": lines.band}
    return int(executed(convolve_text(lines, loop=channels > 1), trips)) + 6


@dataclass(frozen=True, slots=True)
class _Plan:
    layer: FusedLayer
    requant: VectorRequant
    lines: Lines

    @property
    def groups(self) -> list[int]:
        """Data channels of each group."""
        whole, remainder = divmod(self.layer.data_type.shape[3], LANES)
        return [LANES] * whole + [remainder] * bool(remainder)

    def part(self, taps: int, lanes: int) -> Part:
        across, along = self.lines.across, self.lines.along
        return Part(taps, across.dilation * across.data_step, along.copied, along.data_step, lanes, across.taps, self.lines.pitch)

    def cost(self) -> int:
        """Instructions per call (from counts under QEMU)."""
        lines, layer = self.lines, self.layer
        total = 40.0
        bands = -(-lines.across.out // lines.band)
        computed = [min(i * lines.band, lines.across.out - lines.band) + y for i in range(bands) for y in range(lines.band)]
        for lanes in self.groups:
            total += 12 + bands * (lines.multiplier * (convolve_instructions(lines, lanes) + 6) + 10)
            for line in computed:
                inside = len(lines.across.inside(line))
                if inside == lines.across.taps:
                    total += split_instructions(self.part(lines.across.taps, lanes)) + 12
                else:
                    each = split_instructions(self.part(1, lanes)) + 16
                    total += 12 + lines.across.taps * each
        whole = fill_instructions(max(self.groups) * lines.pitch) if any(layer.attrs.padding) else 0
        return int(layer.data_type.shape[0] * total) + whole


def _as_depthwise(layer: FusedLayer | None) -> FusedLayer | None:
    """The layer itself, or a convolution of one-channel data as a depthwise layer."""
    if layer is None or layer.weight.ndim == 3:
        return layer
    if layer.weight.ndim != 4 or layer.data_type.shape[3] != 1:
        return None
    a = layer.attrs
    attrs = DepthwiseConv2DAttrs(a.strides, a.padding, a.dilation, a.input_zp, a.pad_value, layer.channels)
    return replace(layer, weight=layer.weight[..., 0].transpose(1, 2, 0), attrs=attrs)


SCRATCH = 6144
"""Most bytes for the taps of a band with more than one line."""


def _plan(group: Group, target: Target) -> _Plan | None:
    layer = _as_depthwise(match_layer(group))
    if layer is None or not target.has("mve") or not supports_epilogue(layer) or layer.out_type.dtype != "int8":
        return None
    requant = plan_vectors(layer.requant, layer.acc_low, layer.acc_high)
    if requant is None:
        return None
    y, x = axes(layer)
    plans = []
    for across, along, swapped in ((y, x, False), (x, y, True)):
        if along.copied == 0 or along.dilation != 1:
            continue
        line = Lines(across, along, swapped, 1, requant.form, layer.attrs.multiplier)
        lanes = min(LANES, layer.data_type.shape[3])
        band = max(1, min(across.out, SCRATCH // (lanes * line.line)))
        band = -(-across.out // -(-across.out // band))
        lines = next((n for n in (replace(line, band=band), line) if n.fits), None)
        if lines is not None:
            plans.append(_Plan(layer, requant, lines))
    return min(plans, key=_Plan.cost, default=None)


def _lower(group: Group, target: Target, name: str, plan: _Plan) -> Lowered:
    layer, lines = plan.layer, plan.lines
    b = IRBuilder(name)
    io = open_flat(b, group, layer)
    params = io.constant("params", _stream(plan), "int8", align=8)
    size = min(LANES, layer.data_type.shape[3]) * lines.pitch
    taps = b.scratch("taps", (size + VECTOR * lines.vectors,), "int8", align=8)
    padded = any(layer.attrs.padding)
    if padded:
        b.block(fill(), taps, imm(layer.attrs.pad_value), imm(size))
    kernel = _Groups(b, io, plan, params=params, taps=taps)
    whole, remainder = divmod(layer.data_type.shape[3], LANES)
    with b.for_("i", layer.data_type.shape[0]) as image:
        if whole:
            with b.for_("g", whole) as g:
                kernel.group(image, g, LANES)
        if remainder:
            kernel.group(image, imm(whole), remainder)
    results = Results(b, io, layer, target=target, size=prod(layer.out_type.shape), over=True)
    results.finish(imm(0))
    results.end()
    epilogue = results.instructions + results.instructions_at_end
    described = describe("arm_mve.depthwise", band=lines.band, swapped=int(lines.swapped))
    func = b.finish(FuncAttrs(kernel=described, span=layer.span, macs=layer.macs))
    block = count_instructions(convolve_text(lines, loop=True))
    block += count_instructions(split_text(plan.part(lines.across.taps, LANES)))
    code = 200 + 4 * block * (bool(whole) + bool(remainder)) + 150 * padded
    return Lowered(func, io.constants, instructions=plan.cost() + epilogue, code=code + results.code)


def _stream(plan: _Plan) -> Array:
    """One record per channel, as int8; in a group, the first outputs of all data channels come first, then the second ones."""
    layer, lines, requant = plan.layer, plan.lines, plan.requant
    weight = layer.weight if lines.swapped else layer.weight.transpose(1, 0, 2)  # along, across, channel
    out = np.zeros((layer.channels, lines.record), np.int8)
    lead = (lines.shared - 1) * lines.shift
    out[:, lead : lead + lines.taps] = weight.reshape(lines.taps, -1).T
    numbers = [layer.bias, requant.multiplier, requant.right]
    numbers += [requant.left] if requant.form.left else []
    numbers += [(requant.right < 0).astype(np.int64)] if requant.form.ties == 3 else []
    out[:, lines.weights :] = np.stack(numbers, axis=1).astype("<i4").view(np.int8)
    order: list[int] = []
    for group, lanes in enumerate(plan.groups):
        first = group * LANES * lines.multiplier
        order += [first + lane * lines.multiplier + m for m in range(lines.multiplier) for lane in range(lanes)]
    return out[order].reshape(-1)


class _Groups:
    """Emits the loops over a group of channels: bands, lines of a band, taps across."""

    def __init__(self, b: IRBuilder, io: LayerIo, plan: _Plan, *, params: Buffer, taps: Buffer) -> None:
        self._b, self._io, self._plan, self._params, self._taps = b, io, plan, params, taps
        self._padding, across = None, plan.lines.across
        if across.taps_inside < across.taps * across.out:  # some taps across are outside of the image
            self._padding = b.scratch("padding", (LANES,), "int8", align=8)
            b.block(fill(), self._padding, imm(plan.layer.attrs.pad_value), imm(LANES))

    def group(self, image: Expr, number: Expr, lanes: int) -> None:
        """Compute the `lanes` channels from number LANES * number on."""
        b, plan, lines = self._b, self._plan, self._plan.lines
        layer, across = plan.layer, lines.across
        data = b.let("data_at", image * prod(layer.data_type.shape[1:]) + number * LANES)
        out = b.let("out_at", image * prod(layer.out_type.shape[1:]) + number * (LANES * lines.multiplier))
        with b.for_("band", -(-across.out // lines.band)) as band:
            first = band * lines.band
            if across.out % lines.band:
                first = b.let("first", minimum(first, across.out - lines.band))
            with b.for_("y", lines.band) as y:
                self._line(data, first + y, y * lines.line, lanes)
            with b.for_("m", lines.multiplier) as m:
                records = region(self._params, number * (LANES * lines.multiplier * lines.record) + m * (lanes * lines.record))
                to = region(self._io.out, out + first * across.out_step + m)
                b.block(convolve(lines, lanes), region(self._taps), records, to)

    def _line(self, data: Expr, number: Expr, at: Expr, lanes: int) -> None:
        """Store the taps of output line `number` to byte `at` of each channel."""
        b, plan, lines = self._b, self._plan, self._plan.lines
        across = lines.across
        top, reach = b.let("top", number * across.stride - across.before), (across.taps - 1) * across.dilation
        tests = [top >= 0] * bool(across.before) + [top < across.size - reach] * bool(across.after)
        if not tests or self._padding is None:
            self._split(data, top, at, plan.part(across.taps, lanes))
            return
        with b.if_(reduce(logical_and, tests)):
            self._split(data, top, at, plan.part(across.taps, lanes))
        with b.else_(), b.for_("r", across.taps) as r:
            line = b.let("line", top + r * across.dilation)
            place = b.let("place", at + r)
            with b.if_(logical_and(line >= 0, line < across.size)):
                self._split(data, line, place, plan.part(1, lanes))
            with b.else_():  # padding in place of a line, one vector for all positions
                to = region(self._taps, place + lines.along.before * across.taps)
                b.block(split_channels(replace(plan.part(1, lanes), step=0)), region(self._padding), to)

    def _split(self, data: Expr, line: Expr, at: Expr, part: Part) -> None:
        lines = self._plan.lines
        source = region(self._io.data, data + line * lines.across.data_step)
        self._b.block(split_channels(part), source, region(self._taps, at + lines.along.before * lines.across.taps))


register_planned("arm_mve.depthwise", "nn.depthwise_conv2d", _plan, _lower, plevel=41)
register_planned("arm_mve.conv2d_one", "nn.conv2d", _plan, _lower, plevel=44)
