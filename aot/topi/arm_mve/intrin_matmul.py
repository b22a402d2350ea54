"""Two windows by all channels, four of them at a time: products of bytes summed by VMLADAVA, 16 at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from aot.support.dataclass import dataclass
from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Var, cast, imm
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.arm_mve.requant import RequantForm, channel_numbers
from aot.topi.arm_mve.stream import VECTOR, Window, block_bytes
from aot.topi.intrin.asm_text import AsmBlock, Repeat, count_instructions

CHANNELS, PIXELS = 4, 2
_ACCUMULATORS = ("r0", "r2", "r4", "r6", "r8", "r10", "r12", "lr")
"""VMLADAV takes even registers alone: those of the first window's four channels, then those of the second's."""
MOST_UNROLLED = 12
"""Vectors of a window of one row up to which there is no loop over them."""
MOST_ROWS = 40
"""Vectors of a window of several rows, which has no loops."""
_NEAR = 127
"""The farthest offset of a load or store of bytes."""


@dataclass(frozen=True, slots=True)
class Tile:
    """What the instructions depend on: the window, the channels of the layer, its requantisation.

    `apart`: the rows of the window lie apart in memory, by a number of bytes that is an operand.
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
        """Whether the pointers to the windows stay where they are."""
        return self.window.rows == 1 and VECTOR * (self.vectors - 1) <= _NEAR

    def moved(self) -> int:
        """Vectors of the window that a loop takes at a time; 0 where there is no loop."""
        if self.apart or self.vectors <= MOST_UNROLLED:
            return 0
        return max(u for u in range(2, 9) if (self.window.whole - 1) // u >= 1)


@cache
def matmul(tile: Tile) -> TensorIntrin:
    """out[p, c] = requantised(bias[c] + sum over the window of x_p * w[c]) for two windows and all channels.

    Operands: params int8 (aligned to 4 bytes), the stream of `stream.pack`; x0 and x1 int8, the windows' first bytes; out
    int8, the first window's first result, the second one's after its last; step, from a row of the window to the next in bytes.
    In the inner loop 6 loads and 8 VMLADAVA for 128 multiply-accumulates.
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
        fields = b.let("fields", start + CHANNELS * tile.window.size)
        results = b.local("result", (PIXELS * CHANNELS,), "int32")
        for j in range(CHANNELS):
            numbers = channel_numbers(tile.form, params, fields, j, count=CHANNELS)
            for p in range(PIXELS):
                b.store(results, CHANNELS * p + j, tile.form.meaning(b, acc[CHANNELS * p + j], numbers))
        for p in range(PIXELS):
            for j in range(CHANNELS):
                _store(b, tile, out, n * CHANNELS + j, p=p, value=results[CHANNELS * p + j], certain=j == 0)
    desc = replace(b.finish(), scalars=(step,))
    return TensorIntrin(f"arm_mve.{tile.name}", desc, lambda ops: _emit(ops, tile), requires="mve", ordered=True)


def _row(b: IRBuilder, window: Window, weights: tuple[Buffer, Expr], windows: list[Buffer], at: Expr, acc: Buffer) -> None:
    """One row of the windows, from byte `at` of each."""
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
    if window.rest:
        lanes(imm(window.whole * VECTOR), imm(window.whole * VECTOR * count), window.rest)


def _store(b: IRBuilder, tile: Tile, out: Buffer, channel: Expr, *, p: int, value: Expr, certain: bool) -> None:
    """Result of a channel, where there is one; the first of a block is `certain`."""
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
    """The assembly: r1 the stream, r3 and r5 the windows, r7 the result, r11 the channels that are left."""
    out: list[str | Repeat] = [*tile.form.setup]
    if tile.window.rest and not tile.odd:
        out += [f"mov r0, #{tile.window.rest}", "vctp.8 r0"]
    if tile.blocks == 1:
        return [*out, *_block(tile)]
    reload = [] if tile.fixed else ["ldr r3, %[x0]", "ldr r5, %[x1]"]
    out += [f"movw r11, #{tile.channels}", "1:", *_block(tile)]
    return [*out, f"subs r11, r11, #{CHANNELS}", *reload, "bgt.w 1b"]


def _block(tile: Tile) -> list[str | Repeat]:
    """Four channels."""
    lines: list[str | Repeat] = []
    if tile.window.rest and tile.odd:
        lines += [f"mov r0, #{tile.window.rest}", "vctp.8 r0"]
    lines += _looped(tile) if tile.moved() else _straight(tile)
    for p in range(PIXELS):
        a, b, c, d = _ACCUMULATORS[CHANNELS * p : CHANNELS * (p + 1)]
        lines += [f"vmov q{p}[2], q{p}[0], {a}, {c}", f"vmov q{p}[3], q{p}[1], {b}, {d}"]
    lines += [*tile.form.vectors("r1"), "vshr.u32 q1, q0, #16"]
    return lines + _stores(tile)


def _stores(tile: Tile) -> list[str]:
    """q0 and q1 to the results of both windows."""
    near = tile.channels <= _NEAR
    second = f"[r7, #{tile.channels}]" if near else "[r2]"
    lines = [] if near else add_to("r2", "r7", tile.channels)
    if not tile.odd:
        return [*lines, f"vstrb.32 q1, {second}", "vstrb.32 q0, [r7], #4"]
    left = "r11" if tile.blocks > 1 else "r0"
    lines += [] if tile.blocks > 1 else [f"mov r0, #{tile.channels}"]
    return [*lines, f"vctp.32 {left}", "vpstt", f"vstrbt.32 q1, {second}", "vstrbt.32 q0, [r7], #4"]


def add_to(register: str, base: str, value: int) -> list[str]:
    """register = base + value, by two instructions where the value is large."""
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
    """The first vector, a loop over most of the others, the rest."""
    assert tile.window.rows == 1
    unroll = tile.moved()
    turns, more = divmod(tile.window.whole - 1, unroll)
    again = vector(first=False, size=VECTOR, offset=None)
    lines: list[str | Repeat] = [*vector(first=True, size=VECTOR, offset=None), *add_to("r9", "r3", VECTOR * unroll * turns)]
    lines += ["2:", Repeat(unroll, again), "cmp r3, r9", "bne.w 2b", Repeat(more, again)]
    return lines + (vector(first=False, size=tile.window.rest, offset=None) if tile.window.rest else [])


def vector(*, first: bool, size: int, offset: int | None) -> list[str]:
    """Up to 16 bytes of both windows by four channels; at `offset`, or where the pointers are, which go on then."""
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
    """Executed by one block."""
    block = count_instructions(_block(tile)) + (2 + 2 * (not tile.fixed)) * (tile.blocks > 1)
    if tile.moved():
        turns = (tile.window.whole - 1) // tile.moved()
        block += (turns - 1) * (14 * tile.moved() + 2)
    return count_instructions(tile.form.setup) + 3 + 2 * bool(tile.window.rest) + tile.blocks * block


def code_bytes(tile: Tile) -> int:
    return 4 * count_instructions(text(tile))
