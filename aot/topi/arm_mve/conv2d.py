"""Convolution for MVE: two output pixels by four channels at a time, in vectors of 16 bytes.

VMLADAVA multiplies 16 pairs of bytes and adds them to one core register.  Eight accumulators use all even core registers; each
vector of data or weights is loaded once and used four times or twice: 6 loads and 8 VMLADAVA do 128 multiply-accumulates.

`arm_mve.conv2d` reads the data of pointwise layers in place and packs the windows of others; scratch memory: two windows.
`arm_mve.conv2d_direct` reads the rows of a window in place if the window is inside the image, and packs only the windows that
cross its border.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial, reduce
from math import prod

from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, Var, cast, imm, logical_and, maximum, minimum
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.tir.stmt import Region
from aot.topi.arm_mve.intrin_copy import (
    copy_rows,
    copy_rows_instructions,
    fill,
    fill_instructions,
    pack_rows,
    pack_rows_instructions,
    pack_rows_straight,
)
from aot.topi.arm_mve.requant import VECTOR, RequantForm, VectorRequant, Window, block_bytes, channel_numbers, pack, plan_vectors
from aot.topi.arm_mve.results import Results
from aot.topi.intrin.asm_text import AsmBlock, Repeat, count_instructions
from aot.topi.layer.fused import FusedLayer, LayerIo, lowered, match_for, open_io
from aot.topi.layer.im2col import Origin, WindowRuns, first_pixel, inside, is_rows, window_at
from aot.topi.strategy import Group, Lowered, register_planned


@dataclass(frozen=True, slots=True)
class _Plan:
    """`tile` multiplies windows that are packed or contiguous; `direct` multiplies those inside the image in place."""

    layer: FusedLayer
    requant: VectorRequant
    tile: Tile | None
    direct: Tile | None
    target: Target


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
        return _Plan(layer, requant, packed, None, target)
    tile = Tile(Window(runs.rows, runs.length), layer.channels, requant.form, apart=True)
    if runs.columns > 1 or tile.vectors > MOST_ROWS:
        return None
    if not any(layer.attrs.padding):
        return _Plan(layer, requant, None, tile, target)
    return _Plan(layer, requant, packed, tile, target) if runs.length % VECTOR == 0 else None


def _lower(group: Group, _target: Target, name: str, plan: _Plan) -> Lowered:
    layer = plan.layer
    rows = prod(layer.out_type.shape[:-1])
    tile = plan.direct or plan.tile
    assert tile is not None
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(prod(layer.data_type.shape),), out_shape=(rows * layer.channels,))
    weights = layer.weight.reshape(layer.channels, -1)
    stream = pack(weights, tile.window, lambda c: plan.requant.pack(layer.bias, range(c, c + CHANNELS)), channels=CHANNELS)
    kernel = _Pairs(b, io, plan, params=region(io.constant("params", stream, "int8", align=8)))
    kernel.pairs(rows)
    kind = "_direct" * (plan.direct is not None)
    return lowered(io, layer, f"arm_mve.conv2d{kind}", kernel.instructions(rows), kernel.code(), vectors=tile.vectors)


class _Pairs:
    """Emits the loop over pairs of output pixels."""

    def __init__(self, b: IRBuilder, io: LayerIo, plan: _Plan, *, params: Region) -> None:
        self._b, self._io, self._plan, self._params = b, io, plan, params
        self._layer = layer = plan.layer
        self._results = Results(b, io, layer, target=plan.target, size=PIXELS * layer.channels)
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
            return int(pairs * (instructions(plan.tile) + 9 + epilogue) + pack) + end + 30
        around = self._around()
        total = pairs * (instructions(plan.direct) + 34 + epilogue)
        if plan.tile is not None and around:
            other = instructions(plan.tile) - instructions(plan.direct) + PIXELS * pack_instructions(self._layer) / rows
            total += int(around * other)
        return total + end + 30

    def _around(self) -> int:
        """Pairs of pixels whose windows cross the border of the image (estimate)."""
        attrs, (_, height, width, _) = self._layer.attrs, self._layer.data_type.shape
        images, rows, columns, _ = self._layer.out_type.shape
        _, kh, kw, _ = self._layer.weight.shape
        (sy, sx), (dy, dx), (top, left, *_rest) = attrs.strides, attrs.dilation, attrs.padding
        lines = inside(rows, 1, (kh - 1) * dy + 1, height, axis=(sy, 0, top))
        across = inside(columns, 1, (kw - 1) * dx + 1, width, axis=(sx, 0, left))
        whole = lines * (across // PIXELS if columns % PIXELS == 0 and left == 0 else max(across - 1, 0) // PIXELS)
        return images * (-(-rows * columns // PIXELS) - whole)

    def code(self) -> int:
        """Bytes of code."""
        tiles = sum(code_bytes(t) for t in (self._plan.tile, self._plan.direct) if t is not None)
        return tiles + 90 + (self._packer is not None) * 220 + self._results.code


for _kind, _level in (("", 41), ("_direct", 42)):
    register_planned(f"arm_mve.conv2d{_kind}", "nn.conv2d", partial(_plan, direct=bool(_kind)), _lower, plevel=_level)
register_planned("arm_mve.matmul", "nn.dense", partial(_plan, direct=False), _lower, plevel=41)


CHANNELS, PIXELS = 4, 2
_ACCUMULATORS = ("r0", "r2", "r4", "r6", "r8", "r10", "r12", "lr")
"""VMLADAV accepts even registers only: four for the first window's channels, then four for the second's."""
MOST_UNROLLED = 12
"""Most vectors of a one-row window without a loop over them."""
MOST_ROWS = 40
"""Most vectors of a window with several rows, which has no loops."""
_NEAR = 127
"""Largest offset of a byte vector load or store."""


@dataclass(frozen=True, slots=True)
class Tile:
    """Everything that the instructions depend on: the window, the channels of the layer, its requantisation.

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
    def blocks(self) -> int:
        return -(-self.channels // CHANNELS)

    @property
    def odd(self) -> bool:
        """Whether the last block has fewer channels."""
        return self.channels % CHANNELS > 0

    @property
    def vectors(self) -> int:
        return self.window.rows * len(self.window.pieces)

    @property
    def fixed(self) -> bool:
        """Whether the pointers to the windows do not advance, because offsets reach all vectors."""
        return self.window.rows == 1 and VECTOR * (self.vectors - 1) <= _NEAR

    def unroll(self) -> int:
        """Vectors of the window per iteration of a loop; 0 if there is no loop."""
        if self.apart or self.vectors <= MOST_UNROLLED:
            return 0
        return max(u for u in range(2, 9) if (self.window.whole - 1) // u >= 1)


@cache
def matmul(tile: Tile) -> TensorIntrin:
    """out[p, c] = requantised(bias[c] + sum over the window of x_p * w[c]) for two windows and all channels.

    Operands: params int8 (aligned to 4 bytes), the stream of `requant.pack`; x0 and x1 int8, first bytes of the windows; out
    int8, all results of the first window, then those of the second; step, bytes from one row of the window to the next.  The
    inner loop has 6 loads and 8 VMLADAVA for 128 multiply-accumulates.
    """
    b = IRBuilder(tile.name)
    params = b.input("params", (UNKNOWN_EXTENT,), "int8", align=4)
    windows = [b.input(f"x{p}", (UNKNOWN_EXTENT,), "int8") for p in range(PIXELS)]
    out = b.output("out", (UNKNOWN_EXTENT,), "int8")
    step = Var("step")
    size = block_bytes(tile.window, tile.form, CHANNELS)
    with b.for_("n", tile.blocks) as n:
        start = b.let("start", n * size)
        acc = b.local("acc", (PIXELS * CHANNELS,), "int32", init=0)
        with b.for_("r", tile.window.rows) as r:
            _row(b, tile.window, (params, start + r * (CHANNELS * tile.window.length)), windows, r * step, acc)
        numbers_at = b.let("fields", start + CHANNELS * tile.window.size)
        results = b.local("result", (PIXELS * CHANNELS,), "int32")
        for j in range(CHANNELS):
            numbers = channel_numbers(tile.form, params, numbers_at, j, count=CHANNELS)
            for p in range(PIXELS):
                b.store(results, CHANNELS * p + j, tile.form.meaning(b, acc[CHANNELS * p + j], numbers))
        for p in range(PIXELS):
            for j in range(CHANNELS):
                _store(b, tile, out, n * CHANNELS + j, p=p, value=results[CHANNELS * p + j], certain=j == 0)
    desc = replace(b.finish(), scalars=(step,))
    return TensorIntrin(f"arm_mve.{tile.name}", desc, lambda ops: _emit(ops, tile), requires="mve", ordered=True)


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


def _store(b: IRBuilder, tile: Tile, out: Buffer, channel: Expr, *, p: int, value: Expr, certain: bool) -> None:
    """Store a channel's result if the channel exists; the first channel of a block is `certain` to exist."""
    if certain or not tile.odd:
        b.store(out, channel + p * tile.channels, value)
        return
    with b.if_(channel < tile.channels):
        b.store(out, channel + p * tile.channels, value)


def _emit(operands: Mapping[str, COperand], tile: Tile) -> BlockText:
    moving = "" if tile.fixed or tile.blocks == 1 else "x"
    start = {f"x{p}": operands[f"x{p}"].pointer for p in range(PIXELS)}
    keep = [f"const void *const aot_x{p} = {start[f'x{p}']};" for p in range(PIXELS)] if moving else []
    pointers = [f"aot_x{p}" if moving else start[f"x{p}"] for p in range(PIXELS)]
    jump = f"({operands['step'].value}) - {tile.window.length}"
    return AsmBlock(
        [
            *keep,
            f'register const void *aot_wp __asm("r1") = {operands["params"].pointer};',
            f'register const void *aot_xp __asm("r3") = {pointers[0]};',
            f'register const void *aot_xq __asm("r5") = {pointers[1]};',
            f'register void *aot_op __asm("r7") = {operands["out"].pointer};',
            *([f'register int32_t aot_jump __asm("r9") = {jump};'] if tile.apart else []),
        ],
        text(tile),
        outs=['"+r"(aot_wp)', '"+r"(aot_xp)', '"+r"(aot_xq)', '"+r"(aot_op)', *(['"+r"(aot_jump)'] if tile.apart else [])],
        ins=[f'[x{p}] "m"(aot_x{p})' for p in range(PIXELS) if moving],
        clobbers=[*_ACCUMULATORS, "r11", *([] if tile.apart else ["r9"]), *(f"q{i}" for i in range(8))],
    ).emit()


def text(tile: Tile) -> list[str | Repeat]:
    """The assembly; r1 stream, r3 and r5 windows, r7 result, r11 remaining channels."""
    out: list[str | Repeat] = [*tile.form.setup]
    if tile.window.remainder and not tile.odd:
        out += [f"mov r0, #{tile.window.remainder}", "vctp.8 r0"]
    if tile.blocks == 1:
        return [*out, *_block(tile)]
    reload = [] if tile.fixed else ["ldr r3, %[x0]", "ldr r5, %[x1]"]
    out += [f"movw r11, #{tile.channels}", "1:", *_block(tile)]
    return [*out, f"subs r11, r11, #{CHANNELS}", *reload, "bgt.w 1b"]


def _block(tile: Tile) -> list[str | Repeat]:
    """The code for four channels."""
    lines: list[str | Repeat] = []
    if tile.window.remainder and tile.odd:
        lines += [f"mov r0, #{tile.window.remainder}", "vctp.8 r0"]
    lines += _looped(tile) if tile.unroll() else _straight(tile)
    for p in range(PIXELS):
        a, b, c, d = _ACCUMULATORS[CHANNELS * p : CHANNELS * (p + 1)]
        lines += [f"vmov q{p}[2], q{p}[0], {a}, {c}", f"vmov q{p}[3], q{p}[1], {b}, {d}"]
    lines += [*tile.form.vectors("r1"), "vshr.u32 q1, q0, #16"]
    return lines + _stores(tile)


def _stores(tile: Tile) -> list[str]:
    """Store q0 and q1 as results of the two windows."""
    near = tile.channels <= _NEAR
    second = f"[r7, #{tile.channels}]" if near else "[r2]"
    lines = [] if near else add_to("r2", "r7", tile.channels)
    if not tile.odd:
        return [*lines, f"vstrb.32 q1, {second}", "vstrb.32 q0, [r7], #4"]
    left = "r11" if tile.blocks > 1 else "r0"
    lines += [] if tile.blocks > 1 else [f"mov r0, #{tile.channels}"]
    return [*lines, f"vctp.32 {left}", "vpstt", f"vstrbt.32 q1, {second}", "vstrbt.32 q0, [r7], #4"]


def add_to(register: str, base: str, value: int) -> list[str]:
    """register = base + value; two instructions if the value is large."""
    if value < 4096:
        return [f"addw {register}, {base}, #{value}"]
    return [f"addw {register}, {base}, #{value & 4095}", f"add {register}, {register}, #{value & ~4095}"]


def _straight(tile: Tile) -> list[str | Repeat]:
    """The whole window without a loop."""
    lines: list[str | Repeat] = []
    first = True
    for row in range(tile.window.rows):
        if row and tile.apart:
            lines += ["add r3, r3, r9", "add r5, r5, r9"]
        for v, size in enumerate(tile.window.pieces):
            lines += vector(first=first, size=size, offset=VECTOR * v if tile.fixed else None)
            first = False
    return lines


def _looped(tile: Tile) -> list[str | Repeat]:
    """The first vector, a loop over most of the others, then the remaining ones."""
    assert tile.window.rows == 1
    unroll = tile.unroll()
    iterations, more = divmod(tile.window.whole - 1, unroll)
    again = vector(first=False, size=VECTOR, offset=None)
    lines: list[str | Repeat] = [*vector(first=True, size=VECTOR, offset=None), *add_to("r9", "r3", VECTOR * unroll * iterations)]
    lines += ["2:", Repeat(unroll, again), "cmp r3, r9", "bne.w 2b", Repeat(more, again)]
    return lines + (vector(first=False, size=tile.window.remainder, offset=None) if tile.window.remainder else [])


def vector(*, first: bool, size: int, offset: int | None) -> list[str]:
    """Multiply up to 16 bytes of both windows by four channels; read at `offset`, or at the pointers, which then advance."""
    op = "vmladav.s8" if first else "vmladava.s8"
    place = [f"[{r}], #{size}" if offset is None else f"[{r}, #{offset}]" if offset else f"[{r}]" for r in ("r3", "r5")]
    weights = [f"vldrb.u8 q{q}, [r1], #{size}" for q in (2, 3, 2, 3)]
    a = _ACCUMULATORS
    if size < VECTOR:
        lines = ["vpstt", f"vldrbt.u8 q0, {place[0]}", f"vldrbt.u8 q1, {place[1]}", weights[0]]
        lines += [f"{op} {a[0]}, q0, q2"]
    else:
        lines = [f"vldrb.u8 q0, {place[0]}", weights[0], f"{op} {a[0]}, q0, q2", f"vldrb.u8 q1, {place[1]}"]
    lines += [f"{op} {a[4]}, q1, q2", weights[1]]
    for j, q in ((1, 3), (2, 2), (3, 3)):
        lines += [f"{op} {a[j]}, q0, q{q}", f"{op} {a[4 + j]}, q1, q{q}"]
        lines += [weights[j + 1]] if j < 3 else []
    return lines


def instructions(tile: Tile) -> int:
    """Instructions that one block executes."""
    block = count_instructions(_block(tile)) + (2 + 2 * (not tile.fixed)) * (tile.blocks > 1)
    if tile.unroll():
        iterations = (tile.window.whole - 1) // tile.unroll()
        block += (iterations - 1) * (14 * tile.unroll() + 2)
    return count_instructions(tile.form.setup) + 3 + 2 * bool(tile.window.remainder) + tile.blocks * block


def code_bytes(tile: Tile) -> int:
    return 4 * count_instructions(text(tile))


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
            if runs.columns == 1 and pack_rows_straight(runs.length):
                b.block(pack_rows(runs.length), source, target, imm(runs.rows), step)
            else:
                b.block(copy_rows(), source, target, imm(runs.rows), imm(runs.length), step, imm(runs.columns * runs.length))

    def _clipped(self, origin: Origin, to: Expr) -> None:
        """Fill the window with the padding value, then copy the rows and columns that are inside the image."""
        b, layer, runs = self._b, self._layer, self._runs
        _, y, x = origin
        _, height, width, depth = layer.data_type.shape
        dy, dx = layer.attrs.dilation
        b.block(fill(), region(self._buffer, to), imm(layer.attrs.pad_value), imm(self._size))
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
                b.block(copy_rows(), source, target, rows, count * depth, *sizes)


def pack_instructions(layer: FusedLayer) -> int:
    """Instructions for packing the windows of all output pixels once (from counts under QEMU)."""
    runs = WindowRuns(layer)
    attrs, (_, height, width, _) = layer.attrs, layer.data_type.shape
    images, rows, columns, _ = layer.out_type.shape
    _, kh, kw, _ = layer.weight.shape
    (sy, sx), (dy, dx), (top, left, *_rest) = attrs.strides, attrs.dilation, attrs.padding
    whole = images * inside(rows, 1, (kh - 1) * dy + 1, height, axis=(sy, 0, top))
    whole *= inside(columns, 1, (kw - 1) * dx + 1, width, axis=(sx, 0, left))
    if runs.columns == 1 and pack_rows_straight(runs.length):
        plain = pack_rows_instructions(runs.rows, runs.length) + 20
    else:
        plain = runs.columns * (copy_rows_instructions(runs.rows, runs.length) + 4) + 20
    clipped = fill_instructions(layer.weight[0].size) + runs.columns * copy_rows_instructions(runs.rows, runs.length) + 60
    return int(whole * plain + (images * rows * columns - whole) * clipped) if prod(layer.out_type.shape) else 0
