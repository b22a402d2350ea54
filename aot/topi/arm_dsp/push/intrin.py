"""One row by four channels, and one window of four planes, with weights of 16 bits that are 256 times the model's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Var, cast
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.arm_dsp.w8.intrin import PRESCALE, TAPS, QuadLoop
from aot.topi.intrin.asm_text import AsmBlock, Repeat

ORDER = (0, 2, 1, 3)
"""The bytes of a quad in the order in which SXTB16 unpacks them."""

MAX_UNROLL = 16

STRAIGHT = 32
"""Steps that need no loop."""

_DATA = ("r5", "r6", "r8")
_WEIGHTS = ("r9", "r10", "r11", "r12")
"""What is left for the six operands are low registers: with r12 in place of r4 GCC often finds no room for them."""
_UNSIZED = (UNKNOWN_EXTENT,)


def scaled(values: Array) -> Array:
    """256 times int8 values, as int16."""
    found: Array = (values.astype(np.int64) << PRESCALE).astype(np.int16)
    return found


def start_values(bias: Array, _weights: Array) -> Array:
    """256 times biases, modulo 2^32."""
    found: Array = ((bias.astype(np.int64) << PRESCALE) & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
    return found


def add_modulo(b: IRBuilder, acc: Buffer, at: Expr | int, value: Expr) -> None:
    """acc[at] += value, modulo 2^32."""
    b.store(acc, at, cast("int32", cast("uint32", acc[at]) + cast("uint32", value)))


@cache
def unpack_quads(unroll: int) -> TensorIntrin:
    """words[4 q + i] = x[4 q + ORDER[i]], q < quads, a multiple of `unroll`: int8 at any address to int16."""
    b = IRBuilder(f"unpack_quads_u{unroll}")
    quads = Var("quads")
    x = b.input("x", _UNSIZED, "int8")
    words = b.output("words", _UNSIZED, "int16", align=4)
    with b.for_("q", quads) as q:
        values = [b.let("v", cast("int32", x[q * TAPS + i])) for i in ORDER]
        for i, value in enumerate(values):
            b.store(words, q * TAPS + i, value)
    desc = replace(b.finish(), scalars=(quads,))
    return TensorIntrin(f"arm_dsp.{desc.name}", desc, lambda ops: _emit_unpack(ops, QuadLoop(ops, unroll)), ordered=True)


def _emit_unpack(operands: Mapping[str, COperand], loop: QuadLoop) -> BlockText:
    step = ["ldr %[v], [%[s]], #4", "sxtb16 %[w], %[v]", "sxtb16 %[v], %[v], ror #8", "strd %[w], %[v], [%[d]], #8"]
    return AsmBlock(
        [
            f"const void *aot_s = {operands['x'].pointer};",
            f"void *aot_d = {operands['words'].pointer};",
            *loop.ends("aot_s", TAPS),
            "uint32_t aot_v, aot_w;",
        ],
        loop.text(step, "s", ""),
        outs=['[s] "+r"(aot_s)', '[d] "+r"(aot_d)', '[v] "=&r"(aot_v)', '[w] "=&r"(aot_w)'],
        ins=loop.operands("r"),
    ).emit()


@dataclass(frozen=True, slots=True)
class Steps:
    """How `dot_quads` runs: steps of `words` words of data, `unroll` of them `loops` times, then `rest` words.

    With three words no register is left to count with, so they are for what needs no loop.
    """

    words: int
    unroll: int
    loops: int
    rest: int


def dot_steps(quads: int) -> Steps:
    """Straight code where a repetition in C can say it, else a loop over up to 16 quads."""
    if 2 * quads // 3 <= STRAIGHT:
        return Steps(3, 2 * quads // 3, 1, 2 * quads % 3)
    unroll = max(u for u in range(1, MAX_UNROLL + 1) if quads % u == 0)
    if unroll >= 4:
        return Steps(2, unroll, quads // unroll, 0)
    return Steps(2, MAX_UNROLL, quads // MAX_UNROLL, 2 * (quads % MAX_UNROLL))


@cache
def dot_quads(channels: int, quads: int) -> TensorIntrin:
    """acc[c] += sum over k < 2 quads, j < 2 of x[2 k + j] * w[k, c, j], modulo 2^32; up to four channels.

    acc: int32[channels]; x: int16[4 quads] and w: int16[2 quads, channels, 2], both aligned to 4 bytes.  For four channels 12
    SMLAD and 4 LDM for 24 multiply-accumulates; in a loop 8, 2 and an LDRD for 16.
    """
    b = IRBuilder(f"dot_quads_c{channels}_q{quads}")
    x = b.input("x", _UNSIZED, "int16", align=4)
    w = b.input("w", _UNSIZED, "int16", align=4)
    acc = b.output("acc", (channels,), "int32")
    with b.for_("k", 2 * quads) as k:
        values = [b.let("x", cast("int32", x[k * 2 + j])) for j in range(2)]
        for c in range(channels):
            first, second = (values[j] * cast("int32", w[(k * channels + c) * 2 + j]) for j in range(2))
            add_modulo(b, acc, c, first + second)
    desc = b.finish()
    return TensorIntrin(f"arm_dsp.{desc.name}", desc, lambda ops: _emit_dot(ops, channels, quads), requires="dsp")


def _dot_text(channels: int, quads: int) -> list[str | Repeat]:
    words = _WEIGHTS[:channels]
    load = f"ldmia %[w]!, {{{', '.join(words)}}}" if channels > 1 else f"ldr {words[0]}, [%[w]], #4"

    def step(count: int) -> list[str]:
        take = (f"ldr {_DATA[0]}, [%[x]], #4", f"ldrd {_DATA[0]}, {_DATA[1]}, [%[x]], #8", f"ldmia %[x]!, {{{', '.join(_DATA)}}}")
        products = [(load, *(f"smlad %[a{c}], {w}, {x}, %[a{c}]" for c, w in enumerate(words))) for x in _DATA[:count]]
        return [take[count - 1], *(line for lines in products for line in lines)]

    steps = dot_steps(quads)
    text: list[str | Repeat] = [Repeat(steps.unroll, step(steps.words))] if steps.unroll else []
    if steps.loops > 1:
        text = [f"mov %[n], #{steps.loops}", "1:", *text, "subs %[n], %[n], #1", "bne 1b"]
    pairs, last = divmod(steps.rest, 2)
    return text + [Repeat(pairs, step(2))] * (pairs > 0) + step(1) * last


def _emit_dot(operands: Mapping[str, COperand], channels: int, quads: int) -> BlockText:
    counts = dot_steps(quads).loops > 1
    lines = [f"const void *aot_w = {operands['w'].pointer};", f"const void *aot_x = {operands['x'].pointer};"]
    outs = [*(f'[a{c}] "+r"({s})' for c, s in enumerate(operands["acc"].scalars)), '[w] "+r"(aot_w)', '[x] "+r"(aot_x)']
    return AsmBlock(
        [*lines, *(["uint32_t aot_n;"] * counts)],
        _dot_text(channels, quads),
        outs=[*outs, *(['[n] "=&r"(aot_n)'] * counts)],
        clobbers=[*_DATA[: dot_steps(quads).words], *_WEIGHTS[:channels]],
    ).emit()


def dot_instructions(channels: int, quads: int) -> int:
    """Of `dot_quads`."""
    steps = dot_steps(quads)
    looping = 2 * steps.loops + 1 if steps.loops > 1 else 0
    return 2 * quads * (1 + channels) + steps.loops * steps.unroll + -(-steps.rest // 2) + looping


@cache
def window_sums(taps: int, pitch: int) -> TensorIntrin:
    """acc[c] += sum over k < taps of x[k * pitch + c] * w[k, ORDER.index(c)], modulo 2^32, for four channels.

    acc: int32[4]; x: int8 at any address; w: int16[taps, 4], aligned to 4 bytes.  8 instructions for 4 multiply-accumulates.
    """
    b = IRBuilder(f"window_sums_t{taps}_p{pitch}")
    x = b.input("x", _UNSIZED, "int8")
    w = b.input("w", _UNSIZED, "int16", align=4)
    acc = b.output("acc", (TAPS,), "int32")
    with b.for_("k", taps) as k:
        for i, c in enumerate(ORDER):
            add_modulo(b, acc, c, cast("int32", x[k * pitch + c]) * cast("int32", w[k * TAPS + i]))
    desc = b.finish()
    return TensorIntrin(f"arm_dsp.{desc.name}", desc, lambda ops: _emit_window(ops, taps, pitch), requires="dsp")


def window_instructions(taps: int, pitch: int) -> int:
    """Of `window_sums`."""
    return taps * len(_tap(pitch))


def _tap(pitch: int) -> list[str]:
    load = [f"ldr r8, [%[x]], #{pitch}"] if pitch < 256 else ["ldr r8, [%[x]]", "add %[x], %[x], %[pitch]"]
    products = [f"smla{half} %[a{c}], {x}, {w}, %[a{c}]" for c, half, x, w in _LANES]
    return [*load, "ldrd r10, r11, [%[w]], #8", "sxtb16 r9, r8", "sxtb16 r8, r8, ror #8", *products]


_LANES = ((0, "bb", "r9", "r10"), (2, "tt", "r9", "r10"), (1, "bb", "r8", "r11"), (3, "tt", "r8", "r11"))


def _emit_window(operands: Mapping[str, COperand], taps: int, pitch: int) -> BlockText:
    lines = [f"const void *aot_w = {operands['w'].pointer};", f"const void *aot_x = {operands['x'].pointer};"]
    return AsmBlock(
        lines,
        [Repeat(taps, _tap(pitch))],
        outs=[*(f'[a{c}] "+r"({s})' for c, s in enumerate(operands["acc"].scalars)), '[w] "+r"(aot_w)', '[x] "+r"(aot_x)'],
        ins=[f'[pitch] "r"({pitch})'] if pitch >= 256 else [],
        clobbers=["r8", "r9", "r10", "r11"],
    ).emit()


@cache
def unpack_pairs() -> TensorIntrin:
    """words[q, i // 2, p, i % 2] = x_p[4 q + ORDER[i]], q < quads: two runs of int8 at any address, word by word."""
    b = IRBuilder("unpack_pairs")
    quads = Var("quads")
    runs = [b.input(f"x{p}", _UNSIZED, "int8") for p in range(2)]
    words = b.output("words", _UNSIZED, "int16", align=4)
    with b.for_("q", quads) as q:
        values = [[b.let("v", cast("int32", x[q * TAPS + i])) for i in ORDER] for x in runs]
        for p, of_run in enumerate(values):
            for i, value in enumerate(of_run):
                b.store(words, q * (2 * TAPS) + (i // 2 * 4 + p * 2 + i % 2), value)
    desc = replace(b.finish(), scalars=(quads,))
    return TensorIntrin(f"arm_dsp.{desc.name}", desc, _emit_unpack_pairs, requires="dsp", ordered=True)


def _emit_unpack_pairs(operands: Mapping[str, COperand]) -> BlockText:
    step = [
        *("ldr r5, [%[s]], #4", "ldr r6, [%[t]], #4"),
        *("sxtb16 r8, r5", "sxtb16 r9, r6", "sxtb16 r10, r5, ror #8", "sxtb16 r11, r6, ror #8"),
        "stmia %[d]!, {r8, r9, r10, r11}",
    ]
    return AsmBlock(
        [
            f"const void *aot_s = {operands['x0'].pointer};",
            f"const void *aot_t = {operands['x1'].pointer};",
            f"void *aot_d = {operands['words'].pointer};",
            f"uint32_t aot_n = {operands['quads'].value};",
        ],
        ["1:", *step, "subs %[n], %[n], #1", "bne 1b"],
        outs=['[s] "+r"(aot_s)', '[t] "+r"(aot_t)', '[d] "+r"(aot_d)', '[n] "+r"(aot_n)'],
        clobbers=["r5", "r6", "r8", "r9", "r10", "r11"],
    ).emit()


@cache
def pair_products(steps: int) -> TensorIntrin:
    """acc[c, p] += sum over k < steps, j < 2 of x[k, p, j] * w[k, c, j], modulo 2^32, for three channels c and two runs p.

    acc: int32[6]; x: int16[steps, 2, 2] and w: int16[steps, 3, 2], both aligned to 4 bytes.  6 SMLAD, an LDRD and an LDM for 12
    multiply-accumulates.
    """
    b = IRBuilder(f"pair_products_{steps}")
    x = b.input("x", _UNSIZED, "int16", align=4)
    w = b.input("w", _UNSIZED, "int16", align=4)
    acc = b.output("acc", (6,), "int32")
    with b.for_("k", steps) as k:
        values = [[b.let("x", cast("int32", x[k * 4 + p * 2 + j])) for j in range(2)] for p in range(2)]
        for c in range(3):
            weights = [b.let("w", cast("int32", w[k * 6 + c * 2 + j])) for j in range(2)]
            for p, pair in enumerate(values):
                add_modulo(b, acc, c * 2 + p, pair[0] * weights[0] + pair[1] * weights[1])
    desc = b.finish()
    return TensorIntrin(f"arm_dsp.{desc.name}", desc, lambda ops: _emit_products(ops, steps), requires="dsp")


def pair_instructions() -> int:
    """Of a step of `pair_products`."""
    return len(_PAIR_STEP)


_PRODUCTS = tuple((2 * c + p, w, x) for c, w in enumerate(("r10", "r11", "r12")) for p, x in enumerate(("r8", "r9")))
_PAIR_STEP = [
    "ldrd r8, r9, [%[x]], #8",
    "ldmia %[w]!, {r10, r11, r12}",
    *(f"smlad %[a{i}], {w}, {x}, %[a{i}]" for i, w, x in _PRODUCTS),
]


def _emit_products(operands: Mapping[str, COperand], steps: int) -> BlockText:
    lines = [f"const void *aot_w = {operands['w'].pointer};", f"const void *aot_x = {operands['x'].pointer};"]
    return AsmBlock(
        lines,
        [Repeat(steps, _PAIR_STEP)],
        outs=[*(f'[a{c}] "+r"({s})' for c, s in enumerate(operands["acc"].scalars)), '[w] "+r"(aot_w)', '[x] "+r"(aot_x)'],
        clobbers=["r8", "r9", "r10", "r11", "r12"],
    ).emit()
