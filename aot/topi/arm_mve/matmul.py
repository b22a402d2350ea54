"""Convolutions and fully connected layers for MVE: eight sums in core registers, from vectors of 16 bytes.

VMLADAVA multiplies 16 pairs of bytes and adds them to one core register; eight accumulators use all even ones.  Weights stay one
byte each.

Convolutions compute two output pixels by four channels at a time: each vector of data or weights is loaded once and used four
times or twice, so 6 loads and 8 VMLADAVA do 128 multiply-accumulates.  `arm_mve.conv2d` reads the data of pointwise layers in
place and packs the windows of others; scratch memory: two windows.  `arm_mve.conv2d_direct` reads the rows of a window in place
if the window is inside the image, and packs only the windows that cross its border.

`arm_mve.dense`, for one row of data or two, computes eight channels at a time: one load of data serves all of them, so 9 loads
and 8 VMLADAVA do 128 multiply-accumulates.  No scratch memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache, partial, reduce
from math import prod

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, Var, cast, imm, logical_and, maximum, minimum
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.tir.stmt import Region
from aot.topi.arm_mve import vectors
from aot.topi.arm_mve.elementwise import Results
from aot.topi.arm_mve.vectors import NEAR, VECTOR, RequantForm, VectorRequant, plan_vectors
from aot.topi.intrin.asm_text import AsmBlock, Operands, Repeat, asm, block_of, count_instructions, executed
from aot.topi.layer.fused import FusedLayer, LayerIo, lowered, match_for, open_io
from aot.topi.layer.im2col import Origin, WindowRuns, axes, first_pixel, is_rows, match_rows, window_at
from aot.topi.strategy import Group, Lowered, register_planned

CHANNELS, PIXELS = 4, 2

# ---- windows and their weights ----


@dataclass(frozen=True, slots=True)
class Window:
    """The bytes that an output reads: `rows` runs of `length` bytes; each is cut into vectors, and the last vector may be
    partial.
    """

    rows: int
    length: int

    @property
    def whole(self) -> int:
        """Full vectors per row."""
        return self.length // VECTOR

    @property
    def remainder(self) -> int:
        """Bytes of a row after the full vectors."""
        return self.length % VECTOR

    @property
    def size(self) -> int:
        return self.rows * self.length

    @property
    def pieces(self) -> list[int]:
        """Bytes of each vector of a row."""
        return [VECTOR] * self.whole + [self.remainder] * bool(self.remainder)


def channel_numbers(form: RequantForm, params: Buffer, start: Expr, j: int, *, count: int) -> tuple[Expr, Expr, Expr]:
    """Bias, multiplier and shift of channel j of `count`, whose numbers begin at byte `start` of `params` (word-aligned)."""
    words = [params.load("int32", start // 4 + (i * count + j)) for i in range(2)]
    shift: Expr = cast("int32", params.load("int8", start + (8 * count + j)))
    if form.left:
        shift = shift + cast("int32", params.load("int8", start + (9 * count + j)))
    return words[0], words[1], shift


def pack(weights: Array, window: Window, numbers: Callable[[int], Array], *, channels: int) -> Array:
    """The stream as int8.  Per block of `channels`: for each vector of the window, one channel's weights after the other's.

    `weights` are [O, K] with K in the order of the window.  The block's `numbers` (given its first channel) follow its weights.
    """
    count = weights.shape[0]
    padded = np.pad(weights, ((0, -count % channels), (0, 0))).astype(np.int8)
    parts: list[Array] = []
    for first in range(0, count, channels):
        block = padded[first : first + channels].reshape(channels, window.rows, window.length)
        for row in range(window.rows):
            at = 0
            for size in window.pieces:
                parts.append(np.ascontiguousarray(block[:, row, at : at + size]).reshape(-1))
                at += size
        parts.append(numbers(first))
    return np.concatenate(parts)


# ---- the assembly: eight sums, of one or two windows ----

_ACCUMULATORS = ("r0", "r2", "r4", "r6", "r8", "r10", "r12", "lr")
"""VMLADAV accepts even registers only; those of one window's channels come first, then those of the other's."""
MOST_UNROLLED = 12
"""Most vectors of a contiguous window without a loop over them."""
UNROLL = 8
"""Vectors per iteration of the loop over them."""


@dataclass(frozen=True, slots=True)
class Tile:
    """Everything that the instructions depend on: the window, the channels of the layer, its requantisation; this one is two
    windows by four channels.

    `apart`: the rows of the window are not contiguous; their distance in bytes is an operand.
    """

    window: Window
    channels: int
    form: RequantForm
    apart: bool = False

    @property
    def name(self) -> str:
        w, f = self.window, self.form
        return f"matmul_{w.rows}x{w.length}_c{self.channels}_{f.rounding}_{f.ties}{'_left' * f.left}{'_apart' * self.apart}"

    @property
    def pixels(self) -> int:
        return PIXELS

    @property
    def group(self) -> int:
        """Channels of a block."""
        return len(_ACCUMULATORS) // self.pixels

    @property
    def blocks(self) -> int:
        return -(-self.channels // self.group)

    @property
    def odd(self) -> bool:
        """Whether the last block has fewer channels."""
        return self.channels % self.group > 0

    @property
    def block_bytes(self) -> int:
        """Bytes of a block in the stream (a multiple of four)."""
        return self.group * (self.window.size + self.form.field_bytes)

    @property
    def vectors(self) -> int:
        return self.window.rows * len(self.window.pieces)

    @property
    def fixed(self) -> bool:
        """Whether the pointers to the windows do not advance, because offsets reach all vectors."""
        return self.window.rows == 1 and VECTOR * (self.vectors - 1) <= NEAR

    @property
    def looped(self) -> bool:
        """Whether there is a loop over vectors; the first vector is outside of it."""
        return not self.apart and self.vectors > MOST_UNROLLED

    @property
    def iterations(self) -> int:
        return (self.window.whole - 1) // UNROLL

    def text(self) -> list[str | Repeat]:
        """The assembly; r1 stream, r3 and r5 windows, r7 result, r11 remaining channels, r9 and (for one window) r5 numbers."""
        out: list[str | Repeat] = [*self.form.setup, *([] if self.odd else self.mask)]
        if self.blocks == 1:
            return [*out, *self.block()]
        out += [f"movw r11, #{self.channels}", "1:", *self.block()]
        return [*out, f"subs r11, r11, #{self.group}", *([] if self.fixed else self.reload), "bgt.w 1b"]

    @property
    def mask(self) -> list[str]:
        """Set the predicate to the bytes of a partial last vector."""
        return [f"mov r0, #{self.window.remainder}", "vctp.8 r0"] if self.window.remainder else []

    def block(self) -> list[str | Repeat]:
        """The code for a block of channels."""
        lines: list[str | Repeat] = [*(self.mask if self.odd else []), *(self.loop() if self.looped else self.straight())]
        return [*lines, *self.results()]

    def straight(self) -> list[str]:
        """The whole window without a loop."""
        lines: list[str] = []
        for row in range(self.window.rows):
            lines += ["add r3, r3, r9", "add r5, r5, r9"] if row and self.apart else []
            for v, size in enumerate(self.window.pieces):
                lines += self.vector(size, VECTOR * v if self.fixed else None, first=row + v == 0)
        return lines

    def loop(self) -> list[str | Repeat]:
        """The first vector, a loop over most of the others, then the remaining ones."""
        more = (self.window.whole - 1) % UNROLL
        end, setup = self.loop_end()
        again = self.vector(VECTOR, None)
        lines: list[str | Repeat] = [*self.vector(VECTOR, None, first=True), *setup, "2:", Repeat(UNROLL, again)]
        lines += [f"cmp r3, {end}", "bne.w 2b", Repeat(more, again)]
        return lines + (self.vector(self.window.remainder, None) if self.window.remainder else [])

    @property
    def instructions(self) -> int:
        """Instructions that one block executes."""
        twice = 2 * bool(self.odd and self.window.remainder and self.pixels > 1)
        total = executed(self.text(), {"1": self.blocks, "2": self.iterations})
        return int(total) + 3 - (self.blocks > 1) + twice

    @property
    def code(self) -> int:
        """Bytes of code."""
        return 4 * count_instructions(self.text())

    # what one window does in another way

    @property
    def reload(self) -> list[str]:
        """Move the pointers back to the windows."""
        return ["ldr r3, %[x0]", "ldr r5, %[x1]"]

    def loop_end(self) -> tuple[str, list[str]]:
        """The register of the pointer's last value in the loop, and how it gets there."""
        return "r9", add_to("r9", "r3", VECTOR * UNROLL * self.iterations)

    def vector(self, size: int, offset: int | None, *, first: bool = False) -> list[str]:
        """Multiply up to 16 bytes of the windows by all channels; read at `offset`, or at the pointers, which then advance."""
        op = "vmladav.s8" if first else "vmladava.s8"
        place = [f"[{r}], #{size}" if offset is None else f"[{r}, #{offset}]" if offset else f"[{r}]" for r in ("r3", "r5")]
        weights = [f"vldrb.u8 q{q}, [r1], #{size}" for q in (2, 3, 2, 3)]
        a = _ACCUMULATORS
        if size < VECTOR:
            lines = ["vpstt", f"vldrbt.u8 q0, {place[0]}", f"vldrbt.u8 q1, {place[1]}", weights[0], f"{op} {a[0]}, q0, q2"]
        else:
            lines = [f"vldrb.u8 q0, {place[0]}", weights[0], f"{op} {a[0]}, q0, q2", f"vldrb.u8 q1, {place[1]}"]
        lines += [f"{op} {a[4]}, q1, q2", weights[1]]
        for j, q in ((1, 3), (2, 2), (3, 3)):
            lines += [f"{op} {a[j]}, q0, q{q}", f"{op} {a[4 + j]}, q1, q{q}"]
            lines += [weights[j + 1]] if j < 3 else []
        return lines

    def results(self) -> list[str]:
        """Requantise the sums and store them as results of the two windows."""
        lines: list[str] = []
        for p in range(PIXELS):
            a, b, c, d = _ACCUMULATORS[CHANNELS * p : CHANNELS * (p + 1)]
            lines += [f"vmov q{p}[2], q{p}[0], {a}, {c}", f"vmov q{p}[3], q{p}[1], {b}, {d}"]
        lines += [*self.form.requantise("r1", "q0", "q1"), *self.form.narrow, "vshr.u32 q1, q0, #16"]
        near = self.channels <= NEAR
        second = f"[r7, #{self.channels}]" if near else "[r2]"
        lines += [] if near else add_to("r2", "r7", self.channels)
        if not self.odd:
            return [*lines, f"vstrb.32 q1, {second}", "vstrb.32 q0, [r7], #4"]
        left = ["vctp.32 r11"] if self.blocks > 1 else [f"mov r0, #{self.channels}", "vctp.32 r0"]
        return [*lines, *left, "vpstt", f"vstrbt.32 q1, {second}", "vstrbt.32 q0, [r7], #4"]


def add_to(register: str, base: str, value: int) -> list[str]:
    """register = base + value; two instructions if the value is large."""
    if value < 4096:
        return [f"addw {register}, {base}, #{value}"]
    return [f"addw {register}, {base}, #{value & 4095}", f"add {register}, {register}, #{value & ~4095}"]


@dataclass(frozen=True, slots=True)
class Row(Tile):
    """One window, which is a row, by eight channels; `uniform`: multiplier and (negative) shift if all channels share them."""

    uniform: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        return f"dense_{self.window.length}_c{self.channels}_{self.form.rounding}_{self.form.ties}"

    @property
    def pixels(self) -> int:
        return 1

    @property
    def block_bytes(self) -> int:
        return self.group * (self.window.size + (4 if self.uniform else self.form.field_bytes))

    @property
    def reload(self) -> list[str]:
        return ["ldr r3, %[x]"]

    def loop_end(self) -> tuple[str, list[str]]:
        return "r5", ["ldr r5, %[end]"]

    def vector(self, size: int, offset: int | None, *, first: bool = False) -> list[str]:
        op = "vmladav.s8" if first else "vmladava.s8"
        place = f"[r3], #{size}" if offset is None else f"[r3, #{offset}]"
        lines = [f"vldrb.u8 q0, {place}"] if size == VECTOR else ["vpst", f"vldrbt.u8 q0, {place}"]
        lines.append(f"vldrb.u8 q1, [r1], #{size}")
        for j, acc in enumerate(_ACCUMULATORS):
            lines += [f"vldrb.u8 q{1 + (j + 1) % 2}, [r1], #{size}"] if j < len(_ACCUMULATORS) - 1 else []
            lines.append(f"{op} {acc}, q0, q{1 + j % 2}")
        return lines

    def results(self) -> list[str]:
        form, a = self.form, _ACCUMULATORS
        lines = ["ldr r5, %[m]"] if self.uniform and self.looped else []
        for i in range(2):
            lines += [f"vmov q{i}[2], q{i}[0], {a[i]}, {a[4 + i]}", f"vmov q{i}[3], q{i}[1], {a[2 + i]}, {a[6 + i]}"]
        if self.uniform:
            lines += ["vldrw.u32 q2, [r1], #16", "vldrw.u32 q3, [r1], #16", "vadd.i32 q0, q0, q2", "vadd.i32 q1, q1, q3"]
            lines += [f"{form.multiply} {q}, {q}, r5" for q in ("q0", "q1")]
            lines += form.shift(("q0", "q1"), "q2", "r9")
        else:
            lines += [*form.requantise("r1", "q0"), *form.requantise("r1", "q1")]
        lines += form.narrow
        if not self.odd:
            return [*lines, "vstrb.16 q0, [r7], #8"]
        left = ["vctp.16 r11"] if self.blocks > 1 else [f"mov r0, #{self.channels}", "vctp.16 r0"]
        return [*lines, *left, "vpst", "vstrbt.16 q0, [r7], #8"]


# ---- conv2d: two windows by four channels ----


@dataclass(frozen=True, slots=True)
class _Plan:
    """`tile` multiplies windows that are packed or contiguous; `direct` multiplies those inside the image in place."""

    layer: FusedLayer
    requant: VectorRequant
    tile: Tile | None
    direct: Tile | None


MOST_ROWS = 40
"""Most vectors of a window with several rows, which has no loops."""


def _plan(group: Group, target: Target, *, direct: bool) -> _Plan | None:
    layer = match_for(group, target, "mve")
    if layer is None or prod(layer.out_type.shape[:-1]) < PIXELS:
        return None
    requant = plan_vectors(layer.requant, layer.acc_low, layer.acc_high)
    if requant is None or (direct and is_rows(layer)):
        return None
    runs = WindowRuns(layer)
    packed = Tile(Window(1, runs.count * runs.length), layer.channels, requant.form)
    if not direct:
        return _Plan(layer, requant, packed, None)
    tile = Tile(Window(runs.rows, runs.length), layer.channels, requant.form, apart=True)
    if runs.columns > 1 or tile.vectors > MOST_ROWS:
        return None
    if not any(layer.attrs.padding):
        return _Plan(layer, requant, None, tile)
    return _Plan(layer, requant, packed, tile) if runs.length % VECTOR == 0 else None


def _lower(group: Group, target: Target, name: str, plan: _Plan) -> Lowered:
    layer = plan.layer
    rows = prod(layer.out_type.shape[:-1])
    tile = plan.direct or plan.tile
    assert tile is not None
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(prod(layer.data_type.shape),), out_shape=(rows * layer.channels,))
    weights = layer.weight.reshape(layer.channels, -1)
    stream = pack(weights, tile.window, lambda c: plan.requant.pack(layer.bias, range(c, c + CHANNELS)), channels=CHANNELS)
    params = region(io.constant("params", stream, "int8", align=8))
    kernel = _Pairs(b, io, plan, Results(b, io, layer, target=target, size=PIXELS * layer.channels), params)
    kernel.pairs(rows)
    kind = "_direct" * (plan.direct is not None)
    return lowered(io, layer, f"arm_mve.conv2d{kind}", kernel.instructions(rows), kernel.code(), vectors=tile.vectors)


class _Pairs:
    """Emits the loop over pairs of output pixels."""

    def __init__(self, b: IRBuilder, io: LayerIo, plan: _Plan, results: Results, params: Region) -> None:
        self._b, self._io, self._plan, self._params, self._results = b, io, plan, params, results
        self._layer = layer = plan.layer
        self._packer = None
        if plan.tile is not None and not is_rows(layer):
            self._packer = WindowPacker(b, layer, io.data, windows=PIXELS)

    def pairs(self, rows: int) -> None:
        b = self._b
        with b.for_("t", -(-rows // PIXELS)) as t:
            first = first_pixel(b, self._layer, t * PIXELS, last=imm(rows - PIXELS), even=rows % PIXELS == 0)
            at = b.let("at", first * self._layer.channels)
            out = self._results.place(at)
            if self._plan.direct is not None:
                self._direct(first, out)
            elif self._packer is not None:
                self._packed(first, out)
            else:
                depth = self._layer.weight[0].size
                where = b.let("where", first * depth)
                self._multiply(self._plan.tile, (region(self._io.data, where), region(self._io.data, where + depth)), out, step=0)
            self._results.finish(at)
        self._results.end()

    def _direct(self, first: Expr, out: Region) -> None:
        """Multiply the windows in place if both are inside the image."""
        b, layer = self._b, self._layer
        _, height, width, depth = layer.data_type.shape
        places = [window_at(b, layer, b.let("p", first + p), origin=layer.attrs.padding[:2]) for p in range(PIXELS)]
        starts = [b.let("start", ((image * height + y) * width + x) * depth) for image, y, x in places]
        windows = (region(self._io.data, starts[0]), region(self._io.data, starts[1]))
        step = layer.attrs.dilation[0] * width * depth
        test = stays_inside(layer, places)
        if test is None:
            self._multiply(self._plan.direct, windows, out, step=step)
            return
        with b.if_(test):
            self._multiply(self._plan.direct, windows, out, step=step)
        with b.else_():
            self._packed(first, out)

    def _packed(self, first: Expr, out: Region) -> None:
        assert self._packer is not None
        with self._b.for_("p", PIXELS) as p:
            self._packer.pack(first + p, p)
        self._multiply(self._plan.tile, (self._packer.window(0), self._packer.window(1)), out, step=0)

    def _multiply(self, tile: Tile | None, windows: tuple[Region, Region], out: Region, *, step: int) -> None:
        assert tile is not None
        self._b.block(matmul(tile), self._params, *windows, out, imm(step))

    def instructions(self, rows: int) -> int:
        """Instructions per call (from counts under QEMU)."""
        plan, pairs = self._plan, -(-rows // PIXELS)
        epilogue, end = self._results.instructions, self._results.instructions_at_end
        if plan.direct is None:
            assert plan.tile is not None
            pack = 0 if self._packer is None else PIXELS * pairs * pack_instructions(self._layer) / rows
            return int(pairs * (plan.tile.instructions + 9 + epilogue) + pack) + end + 30
        around = self._around()
        total = pairs * (plan.direct.instructions + 34 + epilogue)
        if plan.tile is not None and around:
            other = plan.tile.instructions - plan.direct.instructions + PIXELS * pack_instructions(self._layer) / rows
            total += int(around * other)
        return total + end + 30

    def _around(self) -> int:
        """Pairs of pixels whose windows cross the border of the image (estimate)."""
        images, rows, columns, _ = self._layer.out_type.shape
        lines, across = (axis.whole[1] - axis.whole[0] for axis in axes(self._layer))
        aligned = columns % PIXELS == 0 and self._layer.attrs.padding[1] == 0
        whole = lines * ((across if aligned else max(across - 1, 0)) // PIXELS)
        return images * (-(-rows * columns // PIXELS) - whole)

    def code(self) -> int:
        """Bytes of code."""
        tiles = sum(t.code for t in (self._plan.tile, self._plan.direct) if t is not None)
        return tiles + 90 + (self._packer is not None) * 220 + self._results.code


for _kind, _level in (("", 41), ("_direct", 42)):
    register_planned(f"arm_mve.conv2d{_kind}", "nn.conv2d", partial(_plan, direct=bool(_kind)), _lower, plevel=_level)
register_planned("arm_mve.matmul", "nn.dense", partial(_plan, direct=False), _lower, plevel=41)


@cache
def matmul(tile: Tile) -> TensorIntrin:
    """out[p, c] = requantised(bias[c] + sum over the window of x_p * w[c]) for two windows and all channels.

    Operands: params int8 (aligned to 4 bytes), the stream of `pack`; x0 and x1 int8, first bytes of the windows; out
    int8, all results of the first window, then those of the second; step, bytes from one row of the window to the next.  The
    inner loop has 6 loads and 8 VMLADAVA for 128 multiply-accumulates.
    """
    b = IRBuilder(tile.name)
    params = b.input("params", (UNKNOWN_EXTENT,), "int8", align=4)
    windows = [b.input(f"x{p}", (UNKNOWN_EXTENT,), "int8") for p in range(PIXELS)]
    out = b.output("out", (UNKNOWN_EXTENT,), "int8")
    step = Var("step")
    with b.for_("n", tile.blocks) as n:
        start = b.let("start", n * tile.block_bytes)
        acc = b.local("acc", (PIXELS * CHANNELS,), "int32", init=0)
        with b.for_("r", tile.window.rows) as r:
            _row(b, tile.window, (params, start + r * (CHANNELS * tile.window.length)), windows, r * step, acc)
        numbers_at = b.let("requant_at", start + CHANNELS * tile.window.size)
        results = b.local("result", (PIXELS * CHANNELS,), "int32")
        for j in range(CHANNELS):
            numbers = channel_numbers(tile.form, params, numbers_at, j, count=CHANNELS)
            for p in range(PIXELS):
                b.store(results, CHANNELS * p + j, tile.form.meaning(b, acc[CHANNELS * p + j], numbers))
        for p in range(PIXELS):
            for j in range(CHANNELS):
                channel = n * CHANNELS + j
                _store(b, tile, out, channel, p=p, value=results[CHANNELS * p + j], certain=j == 0)
    return block_of(b, "arm_mve", lambda ops: _emit(ops, tile), step, ordered=True)


def _row(b: IRBuilder, window: Window, weights: tuple[Buffer, Expr], windows: list[Buffer], at: Expr, acc: Buffer) -> None:
    """Add the products of one row of the windows, from byte `at` of each."""
    params, start = weights
    count = len(windows) and acc.size // len(windows)

    def lanes(first: Expr, row: Expr, size: int) -> None:
        with b.for_("i", size) as i:
            xs = [b.let("x", cast("int32", x[at + first + i])) for x in windows]
            for j in range(count):
                w = b.let("w", cast("int32", params.load("int8", start + row + (j * size) + i)))
                for p, x in enumerate(xs):
                    total = cast("uint32", acc[count * p + j]) + cast("uint32", x * w)
                    b.store(acc, count * p + j, cast("int32", total))

    if window.whole:
        with b.for_("v", window.whole) as v:
            lanes(v * VECTOR, v * (VECTOR * count), VECTOR)
    if window.remainder:
        lanes(imm(window.whole * VECTOR), imm(window.whole * VECTOR * count), window.remainder)


def _store(b: IRBuilder, tile: Tile, out: Buffer, channel: Expr, *, p: int = 0, value: Expr, certain: bool) -> None:
    """Store a channel's result if the channel exists; the first channel of a block is `certain` to exist."""
    with nullcontext() if certain or not tile.odd else b.if_(channel < tile.channels):
        b.store(out, channel + p * tile.channels, value)


def _emit(operands: Operands, tile: Tile) -> BlockText:
    moving = not tile.fixed and tile.blocks > 1
    start = {f"x{p}": COperand(f"aot_x{p}") if moving else operands[f"x{p}"] for p in range(PIXELS)}
    jump = f"({operands['step'].value}) - {tile.window.length}"
    return asm(
        {**operands, "start0": start["x0"], "start1": start["x1"]}, tile.text(),
        "*x0:m *x1:m " * moving + "wp@r1=params xp@r3=start0 xq@r5=start1 >op@r7=out", kind="+",
        before=[f'register int32_t aot_jump __asm("r9") = {jump};'] * tile.apart, last=['"+r"(aot_jump)'] * tile.apart,
        clobbers=[*_ACCUMULATORS, "r11", *([] if tile.apart else ["r9"]), *(f"q{i}" for i in range(8))],
    )  # fmt: skip


def stays_inside(layer: FusedLayer, origins: Sequence[Origin]) -> Expr | None:
    """Whether windows that begin at `origins` read no padding; None if no window of the layer does."""
    _, height, width, _ = layer.data_type.shape
    _, kh, kw, _ = layer.weight.shape
    dy, dx = layer.attrs.dilation
    tests = [
        test
        for _, y, x in origins
        for pad, test in zip(
            layer.attrs.padding,
            (y >= 0, x >= 0, y <= height - 1 - (kh - 1) * dy, x <= width - 1 - (kw - 1) * dx),
            strict=True,
        )
        if pad
    ]
    return reduce(logical_and, tests) if tests else None


class WindowPacker:
    """Scratch memory for `windows` windows of a convolution, each with rows of KW * C bytes, one after another."""

    def __init__(self, b: IRBuilder, layer: FusedLayer, data: Buffer, *, windows: int) -> None:
        self._b, self._layer, self._data = b, layer, data
        self._runs = WindowRuns(layer)
        self._size = layer.weight[0].size
        self._pitch = -(-self._size // VECTOR) * VECTOR
        self._buffer = b.scratch("windows", (windows * self._pitch,), "int8", align=8)

    def window(self, number: int) -> Region:
        return region(self._buffer, number * self._pitch)

    def pack(self, index: Expr, number: Expr) -> None:
        """Pack the window of output pixel `index` as window `number`."""
        b, layer = self._b, self._layer
        origin = window_at(b, layer, index, origin=layer.attrs.padding[:2])
        to = b.let("to", number * self._pitch)
        test = stays_inside(layer, [origin])
        if test is None:
            self._whole(origin, to)
            return
        with b.if_(test):
            self._whole(origin, to)
        with b.else_():
            self._clipped(origin, to)

    def _at(self, origin: Origin, row: Expr | int, column: Expr | int) -> Expr:
        """The image's byte at a row and column of the window's (dilated) grid."""
        image, y, x = origin
        _, height, width, depth = self._layer.data_type.shape
        dy, dx = self._layer.attrs.dilation
        return ((image * height + y + imm(dy) * row) * width + x + imm(dx) * column) * depth

    def _whole(self, origin: Origin, to: Expr) -> None:
        b, runs = self._b, self._runs
        _, _, width, depth = self._layer.data_type.shape
        step = imm(self._layer.attrs.dilation[0] * width * depth)
        for column in range(runs.columns):
            source = region(self._data, b.let("start", self._at(origin, 0, column)))
            target = region(self._buffer, to + column * runs.length)
            if runs.columns == 1 and vectors.pack_rows_straight(runs.length):
                b.block(vectors.pack_rows(runs.length), source, target, imm(runs.rows), step)
            else:
                b.block(
                    vectors.copy_rows(), source, target, imm(runs.rows), imm(runs.length), step, imm(runs.columns * runs.length)
                )

    def _clipped(self, origin: Origin, to: Expr) -> None:
        """Fill the window with the padding value, then copy the rows and columns that are inside the image."""
        b, layer, runs = self._b, self._layer, self._runs
        _, y, x = origin
        _, height, width, depth = layer.data_type.shape
        dy, dx = layer.attrs.dilation
        b.block(vectors.fill(), region(self._buffer, to), imm(layer.attrs.pad_value), imm(self._size))
        top = b.let("top", (maximum(imm(0) - y, 0) + (dy - 1)) // dy)
        rows = b.let("rows", minimum(runs.rows, (maximum(height - y, 0) + (dy - 1)) // dy) - top)
        sizes = (imm(dy * width * depth), imm(runs.columns * runs.length))
        for column in range(runs.columns):
            left: Expr = imm(column)
            count: Expr = imm(1)
            if runs.columns == 1:
                left = b.let("left", maximum(imm(0) - x, 0))
                count = b.let("count", minimum(runs.width, width - x) - left)
                test = logical_and(rows > 0, count > 0)
            else:
                at = b.let("at", x + column * dx)
                test = logical_and(rows > 0, logical_and(at >= 0, at < width))
            with b.if_(test):
                source = region(self._data, self._at(origin, top, left))
                target = region(self._buffer, to + (top * (runs.columns * runs.width) + left) * depth)
                b.block(vectors.copy_rows(), source, target, rows, count * depth, *sizes)


def pack_instructions(layer: FusedLayer) -> int:
    """Instructions for packing the windows of all output pixels once (from counts under QEMU)."""
    runs = WindowRuns(layer)
    images, rows, columns, _ = layer.out_type.shape
    whole = images * prod(axis.whole[1] - axis.whole[0] for axis in axes(layer))
    copied = vectors.copy_rows_instructions(runs.rows, runs.length)
    plain = runs.columns * (copied + 4) + 20
    if runs.columns == 1 and vectors.pack_rows_straight(runs.length):
        plain = vectors.pack_rows_instructions(runs.rows, runs.length) + 20
    clipped = vectors.fill_instructions(layer.weight[0].size) + runs.columns * copied + 60
    return int(whole * plain + (images * rows * columns - whole) * clipped) if prod(layer.out_type.shape) else 0


# ---- dense: one row by eight channels ----

MAX_ROWS = 2
"""Pointwise convolutions with more pixels belong to conv2d."""
ROW_CHANNELS = 8
ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Channels of a block in the order of their numbers: first those of q0, then those of q1; VQMOVNB and VQMOVNT interleave them."""


@dataclass(frozen=True, slots=True)
class _RowPlan:
    layer: FusedLayer
    requant: VectorRequant
    row: Row


def _plan_row(group: Group, target: Target) -> _RowPlan | None:
    layer = match_rows(group, target, "mve", pixels=MAX_ROWS)
    requant = plan_vectors(layer.requant, layer.acc_low, layer.acc_high) if layer is not None else None
    if layer is None or requant is None:
        return None
    numbers = {(int(m), int(s)) for m, s in zip(requant.multiplier, requant.right, strict=True)}
    uniform = min(numbers) if len(numbers) == 1 and not requant.form.left else None
    row = Row(Window(1, int(layer.weight[0].size)), layer.channels, requant.form, uniform=uniform)
    return _RowPlan(layer, requant, row)


def _lower_row(group: Group, target: Target, name: str, plan: _RowPlan) -> Lowered:
    layer, row = plan.layer, plan.row
    rows, depth = prod(layer.out_type.shape[:-1]), row.window.length
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(rows * depth,), out_shape=(rows * layer.channels,))
    weights = layer.weight.reshape(layer.channels, -1)
    stream = pack(weights, row.window, lambda first: _row_numbers(plan, first), channels=ROW_CHANNELS)
    params = region(io.constant("params", stream, "int8", align=8))
    results = Results(b, io, layer, target=target, size=layer.channels)
    with b.for_("m", rows) as m:
        number = imm(0) if rows == 1 else rows - 1 - m if layer.out_type.dtype != "int8" else m
        at = b.let("at", number * layer.channels)
        b.block(dense_row(row), params, region(io.data, number * depth), results.place(at))
        results.finish(at)
    results.end()
    total = rows * (row.instructions + 8 + results.instructions) + results.instructions_at_end + 14
    return lowered(io, layer, "arm_mve.dense", total, row.code + 60 + results.code)


def _row_numbers(plan: _RowPlan, first: int) -> Array:
    """The numbers of a block of channels."""
    channels = [first + c for c in ORDER]
    if plan.row.uniform:
        biases = [int(plan.layer.bias[c]) if c < plan.layer.channels else 0 for c in channels]
        return np.array(biases, np.int64).astype("<i4").view(np.int8)
    half = ROW_CHANNELS // 2
    return np.concatenate([plan.requant.pack(plan.layer.bias, channels[i : i + half]) for i in (0, half)])


@cache
def dense_row(row: Row) -> TensorIntrin:
    """out[c] = requantised(bias[c] + sum of x * w[c]) for all channels.

    Operands: params int8 (aligned to 4 bytes): per block of eight channels the weights, 16 bytes of one channel after the
    other's, then the numbers in `ORDER` (only biases if the others are uniform); x and out int8.  9 loads and 8 VMLADAVA for 128
    multiply-accumulates.
    """
    b = IRBuilder(row.name)
    params = b.input("params", (UNKNOWN_EXTENT,), "int8", align=4)
    x = b.input("x", (row.window.length,), "int8")
    out = b.output("out", (UNKNOWN_EXTENT,), "int8")
    with b.for_("n", row.blocks) as n:
        start = b.let("start", n * row.block_bytes)
        acc = b.local("acc", (ROW_CHANNELS,), "int32", init=0)

        def lanes(first: Expr, at: Expr, size: int) -> None:
            with b.for_("i", size) as i:
                value = b.let("x", cast("int32", x[first + i]))
                for j in range(ROW_CHANNELS):
                    product = value * cast("int32", params.load("int8", at + (j * size) + i))
                    b.store(acc, j, cast("int32", cast("uint32", acc[j]) + cast("uint32", product)))

        if row.window.whole:
            with b.for_("v", row.window.whole) as v:
                lanes(v * VECTOR, start + v * (VECTOR * ROW_CHANNELS), VECTOR)
        if row.window.remainder:
            done = row.window.whole * VECTOR
            lanes(imm(done), start + done * ROW_CHANNELS, row.window.remainder)
        numbers_at = b.let("requant_at", start + ROW_CHANNELS * row.window.length)
        for j in range(ROW_CHANNELS):
            place = ORDER.index(j)
            if row.uniform:
                bias = params.load("int32", numbers_at // 4 + place)
                numbers: tuple[Expr, Expr, Expr] = (bias, imm(row.uniform[0]), imm(row.uniform[1]))
            else:
                half = ROW_CHANNELS // 2
                at = numbers_at + (place // half) * (half * row.form.field_bytes)
                numbers = channel_numbers(row.form, params, at, place % half, count=half)
            _store(b, row, out, n * ROW_CHANNELS + j, value=row.form.meaning(b, acc[j], numbers), certain=j == 0)
    return block_of(b, "arm_mve", lambda ops: _emit_row(ops, row), ordered=True)


def _emit_row(operands: Operands, row: Row) -> BlockText:
    inside = ['[x] "m"(aot_x)'] if not row.fixed and row.blocks > 1 else []
    inside += ['[end] "m"(aot_end)'] if row.looped else []
    numbers, fixed = [], set[str]()
    if row.uniform:
        multiplier, shift = row.uniform
        if row.looped:
            numbers.append(f"const int32_t aot_m = {multiplier};")
            inside.append('[m] "m"(aot_m)')
        else:
            numbers.append(f'register int32_t aot_r5 __asm("r5") = {multiplier};')
            inside.append('"r"(aot_r5)')
        numbers.append(f'register int32_t aot_r9 __asm("r9") = {shift};')
        inside.append('"r"(aot_r9)')
        fixed = {"r9"} if row.looped else {"r5", "r9"}
    end = VECTOR * (1 + UNROLL * row.iterations)
    return AsmBlock(
        [
            f"const void *const aot_x = {operands['x'].pointer};",
            *([f"const void *const aot_end = (const uint8_t *)aot_x + {end};"] if row.looped else []),
            f'register const void *aot_wp __asm("r1") = {operands["params"].pointer};',
            'register const void *aot_xp __asm("r3") = aot_x;',
            f'register void *aot_op __asm("r7") = {operands["out"].pointer};',
            *numbers,
        ],
        row.text(),
        outs=['"+r"(aot_wp)', '"+r"(aot_xp)', '"+r"(aot_op)'],
        ins=inside,
        clobbers=[*(r for r in (*_ACCUMULATORS, "r5", "r9", "r11") if r not in fixed), *(f"q{i}" for i in range(8))],
    ).emit()


for _anchor in ("nn.dense", "nn.conv2d"):
    register_planned("arm_mve.dense", _anchor, _plan_row, _lower_row, plevel=43)
