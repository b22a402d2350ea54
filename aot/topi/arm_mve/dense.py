"""Fully connected layers and small pointwise convolutions for MVE: one row of bytes by eight channels at a time.

VMLADAVA multiplies 16 pairs of bytes and adds them to an accumulator in one core register: one load of data serves eight
channels, so 9 loads and 8 VMLADAVA do 128 multiply-accumulates.  No scratch memory; weights stay one byte each.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import prod

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import UNKNOWN_EXTENT
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, cast, imm
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.arm_mve.requant import VECTOR, RequantForm, VectorRequant, Window, channel_numbers, pack, plan_vectors
from aot.topi.arm_mve.results import Results
from aot.topi.intrin.asm_text import AsmBlock, Repeat, count_instructions
from aot.topi.layer.fused import FusedLayer, lowered, open_io
from aot.topi.layer.im2col import match_rows
from aot.topi.strategy import Group, Lowered, register_planned

MAX_ROWS = 2
"""Pointwise convolutions with more pixels belong to conv2d."""


@dataclass(frozen=True, slots=True)
class _Plan:
    layer: FusedLayer
    requant: VectorRequant
    row: Row
    target: Target


def _plan(group: Group, target: Target) -> _Plan | None:
    layer = match_rows(group, target, "mve", pixels=MAX_ROWS)
    requant = plan_vectors(layer.requant, layer.acc_low, layer.acc_high) if layer is not None else None
    if layer is None or requant is None:
        return None
    numbers = {(int(m), int(s)) for m, s in zip(requant.multiplier, requant.right, strict=True)}
    uniform = min(numbers) if len(numbers) == 1 and not requant.form.left else None
    return _Plan(layer, requant, Row(layer.weight[0].size, layer.channels, requant.form, uniform), target)


def _lower(group: Group, _target: Target, name: str, plan: _Plan) -> Lowered:
    layer, row = plan.layer, plan.row
    rows = prod(layer.out_type.shape[:-1])
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(rows * row.depth,), out_shape=(rows * layer.channels,))
    weights = layer.weight.reshape(layer.channels, -1)
    stream = pack(weights, row.window, lambda first: _numbers(plan, first), channels=CHANNELS)
    params = region(io.constant("params", stream, "int8", align=8))
    results = Results(b, io, layer, target=plan.target, size=layer.channels)
    with b.for_("m", rows) as m:
        number = imm(0) if rows == 1 else rows - 1 - m if layer.out_type.dtype != "int8" else m
        at = b.let("at", number * layer.channels)
        b.block(dense_row(row), params, region(io.data, number * row.depth), results.place(at))
        results.finish(at)
    results.end()
    total = rows * (instructions(row) + 8 + results.instructions) + results.instructions_at_end + 14
    return lowered(io, layer, "arm_mve.dense", total, code_bytes(row) + 60 + results.code)


def _numbers(plan: _Plan, first: int) -> Array:
    """The numbers of a block of channels."""
    channels = [first + c for c in ORDER]
    if plan.row.uniform:
        biases = [int(plan.layer.bias[c]) if c < plan.layer.channels else 0 for c in channels]
        return np.array(biases, np.int64).astype("<i4").view(np.int8)
    half = CHANNELS // 2
    return np.concatenate([plan.requant.pack(plan.layer.bias, channels[i : i + half]) for i in (0, half)])


for _anchor in ("nn.dense", "nn.conv2d"):
    register_planned("arm_mve.dense", _anchor, _plan, _lower, plevel=43)


CHANNELS = 8
ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Channels of a block in the order of their numbers: first those of q0, then those of q1; VQMOVNB and VQMOVNT interleave them."""
_ACCUMULATORS = ("r0", "r2", "r4", "r6", "r8", "r10", "r12", "lr")
MOST_UNROLLED = 12
"""Most vectors of a row without a loop over them."""
_UNROLL = 8


@dataclass(frozen=True, slots=True)
class Row:
    """Everything that the instructions depend on: bytes of a row, channels of the layer, the requantisation.

    `uniform`: multiplier and (negative) shift if all channels share them.
    """

    depth: int
    channels: int
    form: RequantForm
    uniform: tuple[int, int] | None = None

    @property
    def window(self) -> Window:
        return Window(1, self.depth)

    @property
    def blocks(self) -> int:
        return -(-self.channels // CHANNELS)

    @property
    def odd(self) -> bool:
        return self.channels % CHANNELS > 0

    @property
    def looped(self) -> bool:
        return len(self.window.pieces) > MOST_UNROLLED

    @property
    def fixed(self) -> bool:
        """Whether the pointer to the row does not advance, because offsets reach all vectors."""
        return len(self.window.pieces) <= VECTOR // 2

    @property
    def block_bytes(self) -> int:
        """Bytes of eight channels in the stream."""
        return CHANNELS * (self.depth + (4 if self.uniform else self.form.field_bytes))


@cache
def dense_row(row: Row) -> TensorIntrin:
    """out[c] = requantised(bias[c] + sum of x * w[c]) for all channels.

    Operands: params int8 (aligned to 4 bytes): per block of eight channels the weights, 16 bytes of one channel after the
    other's, then the numbers in `ORDER` (only biases if the others are uniform); x and out int8.  9 loads and 8 VMLADAVA for 128
    multiply-accumulates.
    """
    b = IRBuilder(f"dense_{row.depth}_c{row.channels}_{row.form.rounding}_{row.form.ties}")
    params = b.input("params", (UNKNOWN_EXTENT,), "int8", align=4)
    x = b.input("x", (row.depth,), "int8")
    out = b.output("out", (UNKNOWN_EXTENT,), "int8")
    with b.for_("n", row.blocks) as n:
        start = b.let("start", n * row.block_bytes)
        acc = b.local("acc", (CHANNELS,), "int32", init=0)

        def lanes(first: Expr, at: Expr, size: int) -> None:
            with b.for_("i", size) as i:
                value = b.let("x", cast("int32", x[first + i]))
                for j in range(CHANNELS):
                    product = value * cast("int32", params.load("int8", at + (j * size) + i))
                    b.store(acc, j, cast("int32", cast("uint32", acc[j]) + cast("uint32", product)))

        if row.window.whole:
            with b.for_("v", row.window.whole) as v:
                lanes(v * VECTOR, start + v * (VECTOR * CHANNELS), VECTOR)
        if row.window.remainder:
            done = row.window.whole * VECTOR
            lanes(imm(done), start + done * CHANNELS, row.window.remainder)
        numbers_at = b.let("fields", start + CHANNELS * row.depth)
        for j in range(CHANNELS):
            place = ORDER.index(j)
            if row.uniform:
                bias = params.load("int32", numbers_at // 4 + place)
                numbers: tuple[Expr, Expr, Expr] = (bias, imm(row.uniform[0]), imm(row.uniform[1]))
            else:
                half = CHANNELS // 2
                at = numbers_at + (place // half) * (half * row.form.field_bytes)
                numbers = channel_numbers(row.form, params, at, place % half, count=half)
            result = row.form.meaning(b, acc[j], numbers)
            if row.odd and j:
                with b.if_(n * CHANNELS + j < row.channels):
                    b.store(out, n * CHANNELS + j, result)
            else:
                b.store(out, n * CHANNELS + j, result)
    return TensorIntrin(f"arm_mve.{b.name}", b.finish(), lambda ops: _emit(ops, row), requires="mve", ordered=True)


def _emit(operands: Mapping[str, COperand], row: Row) -> BlockText:
    uniform = row.uniform or (0, 0)
    numbers = [f"const int32_t aot_m = {uniform[0]};"] if row.uniform and row.looped else []
    numbers += [f'register int32_t aot_r5 __asm("r5") = {uniform[0]};'] if row.uniform and not row.looped else []
    numbers += [f'register int32_t aot_r9 __asm("r9") = {uniform[1]};'] if row.uniform else []
    inside = ['[x] "m"(aot_x)'] if not row.fixed and row.blocks > 1 else []
    inside += ['[end] "m"(aot_end)'] if row.looped else []
    inside += ['[m] "m"(aot_m)'] if row.uniform and row.looped else []
    inside += ['"r"(aot_r5)'] if row.uniform and not row.looped else []
    inside += ['"r"(aot_r9)'] if row.uniform else []
    inputs = {"r5"} if row.uniform and not row.looped else set()
    inputs |= {"r9"} if row.uniform else set()
    end = VECTOR * (1 + _UNROLL * _iterations(row))
    return AsmBlock(
        [
            f"const void *const aot_x = {operands['x'].pointer};",
            *([f"const void *const aot_end = (const uint8_t *)aot_x + {end};"] if row.looped else []),
            f'register const void *aot_wp __asm("r1") = {operands["params"].pointer};',
            'register const void *aot_xp __asm("r3") = aot_x;',
            f'register void *aot_op __asm("r7") = {operands["out"].pointer};',
            *numbers,
        ],
        text(row),
        outs=['"+r"(aot_wp)', '"+r"(aot_xp)', '"+r"(aot_op)'],
        ins=inside,
        clobbers=[*(r for r in (*_ACCUMULATORS, "r5", "r9", "r11") if r not in inputs), *(f"q{i}" for i in range(8))],
    ).emit()


def _iterations(row: Row) -> int:
    """Iterations of the loop over vectors; the first vector is outside of it."""
    return (row.window.whole - 1) // _UNROLL


def text(row: Row) -> list[str | Repeat]:
    """The assembly; r1 stream, r3 row, r7 result, r5 and r9 uniform numbers, r11 remaining channels."""
    lines: list[str | Repeat] = [*row.form.setup]
    lines += [f"mov r0, #{row.window.remainder}", "vctp.8 r0"] if row.window.remainder and not row.odd else []
    if row.blocks == 1:
        return [*lines, *_block(row)]
    reload = [] if row.fixed else ["ldr r3, %[x]"]
    return [*lines, f"movw r11, #{row.channels}", "1:", *_block(row), f"subs r11, r11, #{CHANNELS}", *reload, "bgt.w 1b"]


def _block(row: Row) -> list[str | Repeat]:
    """The code for eight channels."""
    lines: list[str | Repeat] = [f"mov r0, #{row.window.remainder}", "vctp.8 r0"] if row.window.remainder and row.odd else []
    if row.looped:
        again = _vector(first=False, size=VECTOR, offset=None)
        lines += [*_vector(first=True, size=VECTOR, offset=None), "ldr r5, %[end]", "2:", Repeat(_UNROLL, again)]
        lines += ["cmp r3, r5", "bne.w 2b", Repeat((row.window.whole - 1) % _UNROLL, again)]
        lines += _vector(first=False, size=row.window.remainder, offset=None) if row.window.remainder else []
        lines += ["ldr r5, %[m]"] if row.uniform else []
    else:
        for i, size in enumerate(row.window.pieces):
            lines += _vector(first=i == 0, size=size, offset=VECTOR * i if row.fixed else None)
    a = _ACCUMULATORS
    for q in range(2):
        lines += [f"vmov q{q}[2], q{q}[0], {a[q]}, {a[4 + q]}", f"vmov q{q}[3], q{q}[1], {a[2 + q]}, {a[6 + q]}"]
    return [*lines, *_results(row)]


def _vector(*, first: bool, size: int, offset: int | None) -> list[str]:
    """Multiply up to 16 bytes of the row by eight channels; read at `offset`, or at the pointer, which then advances."""
    op = "vmladav.s8" if first else "vmladava.s8"
    place = f"[r3], #{size}" if offset is None else f"[r3, #{offset}]"
    lines = [f"vldrb.u8 q0, {place}"] if size == VECTOR else ["vpst", f"vldrbt.u8 q0, {place}"]
    lines.append(f"vldrb.u8 q1, [r1], #{size}")
    for j, acc in enumerate(_ACCUMULATORS):
        lines += [f"vldrb.u8 q{1 + (j + 1) % 2}, [r1], #{size}"] if j < CHANNELS - 1 else []
        lines.append(f"{op} {acc}, q0, q{1 + j % 2}")
    return lines


def _results(row: Row) -> list[str]:
    """Requantise q0 and q1 and store them."""
    form = row.form
    if row.uniform:
        lines = ["vldrw.u32 q2, [r1], #16", "vldrw.u32 q3, [r1], #16", "vadd.i32 q0, q0, q2", "vadd.i32 q1, q1, q3"]
        lines += [f"{form.multiply} {q}, {q}, r5" for q in ("q0", "q1")]
        for q in ("q0", "q1") if form.ties else ():
            lines += [f"vshr.s32 q2, {q}, #31", f"vadd.i32 {q}, {q}, q2"]
        lines += [f"vrshl.s32 {q}, r9" for q in ("q0", "q1")]
    else:
        lines = [*form.vector("r1", "q0"), *form.vector("r1", "q1")]
    lines += form.narrow
    if not row.odd:
        return [*lines, "vstrb.16 q0, [r7], #8"]
    left = ["vctp.16 r11"] if row.blocks > 1 else [f"mov r0, #{row.channels}", "vctp.16 r0"]
    return [*lines, *left, "vpst", "vstrbt.16 q0, [r7], #8"]


def instructions(row: Row) -> int:
    """Instructions that one block executes."""
    block = count_instructions(_block(row)) + (2 + (not row.fixed)) * (row.blocks > 1)
    if row.looped:
        block += (_iterations(row) - 1) * (17 * _UNROLL + 2)
    return count_instructions(row.form.setup) + 3 + 2 * bool(row.window.remainder and not row.odd) + row.blocks * block


def code_bytes(row: Row) -> int:
    return 4 * count_instructions(text(row))
