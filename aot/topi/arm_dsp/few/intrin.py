"""Rows of bytes as halves of words, and four windows by one channel on them (Armv7E-M's DSP extension)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from aot.support.dataclass import dataclass
from aot.tir.buffer import UNKNOWN_EXTENT
from aot.tir.builder import IRBuilder
from aot.tir.expr import Var, cast
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.intrin.asm_text import AsmBlock, Repeat, count_instructions

PIXELS = 4
LANES = 4
MOST_STEP = 160
"""Halves from window to window that LDRD's offset reaches."""
_MOST_UNROLL = 8


@cache
def widen_4() -> TensorIntrin:
    """out[i] = x[i] - zp of `count` elements, a multiple of LANES; operands x (any address), out: int16, zp, count."""
    zp, count = Var("zp"), Var("count")
    b = IRBuilder("widen_4")
    x = b.input("x", (UNKNOWN_EXTENT,), "int8")
    out = b.output("out", (UNKNOWN_EXTENT,), "int16")
    with b.for_("i", count) as i:
        b.store(out, i, cast("int16", cast("int32", x[i]) - zp))
    desc = replace(b.finish(), scalars=(zp, count))
    return TensorIntrin("arm_dsp.widen_4", desc, _emit_widen)


def _emit_widen(operands: Mapping[str, COperand]) -> BlockText:
    text = [
        "1:",
        "ldr %[v], [%[x]], #4",
        "sxtab16 %[s], %[zp], %[v]",
        "sxtab16 %[v], %[zp], %[v], ror #8",
        "pkhbt %[t], %[s], %[v], lsl #16",
        "pkhtb %[s], %[v], %[s], asr #16",
        "str %[t], [%[out]], #4",
        "str %[s], [%[out]], #4",
        f"subs %[n], %[n], #{LANES}",
        "bne 1b",
    ]
    return AsmBlock(
        [
            f"const void *aot_x = {operands['x'].pointer};",
            f"void *aot_out = {operands['out'].pointer};",
            f"int32_t aot_n = {operands['count'].value};",
            "uint32_t aot_v, aot_s, aot_t;",
        ],
        text,
        outs=[f'[{n}] "+&r"(aot_{n})' for n in ("x", "out", "n")] + [f'[{t}] "=&r"(aot_{t})' for t in "vst"],
        ins=[f'[zp] "r"(((0u - (uint32_t)({operands["zp"].value})) & 0xffffu) * 0x10001u)'],
    ).emit()


@dataclass(frozen=True, slots=True)
class Run:
    """`pairs` of taps in a row of the window, which is `step` halves from one window to the next."""

    pairs: int
    step: int

    @property
    def by_words(self) -> bool:
        """Whether all windows begin with a word."""
        return self.step % 2 == 0


@cache
def dot_4(run: Run) -> TensorIntrin:
    """acc[p] += sum over k < 2 pairs of x[p step + k] * w[k].

    acc: int32[4] in registers; w: int16, aligned to words; x: int16, aligned to words if `by_words`.
    """
    b = IRBuilder(f"dot_4_k{2 * run.pairs}_s{run.step}")
    x = b.input("x", (UNKNOWN_EXTENT,), "int16", align=4 if run.by_words else 2)
    w = b.input("w", (2 * run.pairs,), "int16", align=4)
    acc = b.output("acc", (PIXELS,), "int32")
    with b.for_("k", run.pairs) as k:
        weights = [b.let("w", cast("int32", w[2 * k + j])) for j in range(2)]
        for p in range(PIXELS):
            products = [cast("int32", x[2 * k + (p * run.step + j)]) * weights[j] for j in range(2)]
            b.store(acc, p, acc[p] + (products[0] + products[1]))
    return TensorIntrin(f"arm_dsp.{b.name}", b.finish(), lambda ops: _emit_dot(ops, run), requires="dsp")


def text(run: Run) -> list[str | Repeat]:
    """Two pairs a turn; the windows from the last to the first, whose loads move the pointer on."""

    def products(p: int) -> list[str]:
        return [f"smlad %[a{p}], %[x{j}], %[w{j}], %[a{p}]" for j in range(2)]

    two = ["ldrd %[w0], %[w1], [%[w]], #8"]
    for p in reversed(range(1, PIXELS)):
        at = 2 * p * run.step
        if run.by_words:
            two += [f"ldrd %[x0], %[x1], [%[x], #{at}]", *products(p)]
        else:
            two += [f"ldr %[x{j}], [%[x], #{at + 4 * j}]" for j in range(2)] + products(p)
    first = ["ldrd %[x0], %[x1], [%[x]], #8"] if run.by_words else ["ldr %[x1], [%[x], #4]", "ldr %[x0], [%[x]], #8"]
    two += [*first, *products(0)]
    one = ["ldr %[w0], [%[w]], #4"]
    for p in range(PIXELS):
        one += [f"ldr %[x0], [%[x], #{2 * p * run.step}]", products(p)[0]]
    turns = run.pairs // 2
    unroll = _unroll(turns)
    lines: list[str | Repeat] = []
    if turns > unroll:
        lines += [f"mov %[n], #{turns // unroll}", "1:", Repeat(unroll, two), "subs %[n], %[n], #1", "bne 1b"]
    elif turns:
        lines.append(Repeat(unroll, two))
    return [*lines, *(one if run.pairs % 2 else [])]


def _unroll(turns: int) -> int:
    return max((u for u in range(1, _MOST_UNROLL + 1) if turns % u == 0), default=0) if turns else 0


def instructions(run: Run) -> int:
    """Executed by one block."""
    turns, each = run.pairs // 2, 13 if run.by_words else 17
    unroll = _unroll(turns)
    loop = 2 * (turns // unroll) + 1 if turns > unroll else 0
    return each * turns + loop + 9 * (run.pairs % 2)


def code_bytes(run: Run) -> int:
    """Of one block."""
    return 4 * count_instructions(text(run))


def _emit_dot(operands: Mapping[str, COperand], run: Run) -> BlockText:
    accs = operands["acc"].scalars
    loop = run.pairs // 2 > _unroll(run.pairs // 2)
    temporaries = ["x0", "w0", *(["x1", "w1"] if run.pairs > 1 else [])]
    outs = [f'[a{p}] "+&r"({name})' for p, name in enumerate(accs)] + ['[x] "+&r"(aot_x)', '[w] "+&r"(aot_w)']
    outs += [f'[{t}] "=&r"(aot_{t})' for t in temporaries] + (['[n] "=&r"(aot_n)'] if loop else [])
    declarations = [
        f"const void *aot_x = {operands['x'].pointer};",
        f"const void *aot_w = {operands['w'].pointer};",
        f"uint32_t {', '.join(f'aot_{t}' for t in temporaries)};",
        *(["uint32_t aot_n;"] if loop else []),
    ]
    return AsmBlock(declarations, text(run), outs=outs).emit()
