"""Depthwise sums with pairs of weights, for any number of kernel rows: four neighbouring results of a line at a time.

Two pixels of a plane of 16-bit numbers and two weights are a word each, so SMLAD takes two taps.  A kernel row of up to seven
columns is `words` pairs (2, 3 or 4), with zeros behind.  For results in even columns these are (w0, w1), (w2, w3) ..., for those
in odd columns the same row one column later: (0, w0), (w1, w2) ...  Both kinds then start at an even column of the plane.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from aot.tir.buffer import UNKNOWN_EXTENT
from aot.tir.builder import IRBuilder
from aot.tir.expr import Var, cast, imm
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.arm_dsp.depthwise.intrin import clamp_lines, requantized
from aot.topi.arm_dsp.depthwise.plan import NUMBERS, RequantForm
from aot.topi.intrin.asm_text import AsmBlock

OUTPUTS = 4
"""Results of a block."""

MIN_WORDS, MAX_WORDS = 2, 4

_UNSIZED = (UNKNOWN_EXTENT,)


def row_words(columns: int) -> int:
    """Pairs that hold a kernel row in both kinds."""
    return max(MIN_WORDS, columns // 2 + 1)


def rest_columns(words: int, stride: int) -> int:
    """Columns of the plane that a block reads from its first one on."""
    return 2 * (words + (1 if stride == 1 else 3))


@cache
def unpack_pairs() -> TensorIntrin:
    """Bytes -> pairs of weights times 256, each one in place and one column later.

    Operands: bytes int8[4 * count] of two pairs each, (low 0, low 1, high 0, high 1); pairs int16[8 * count]: for each pair the
    two weights, then the last weight of the pair before (0 at first) and the first one.
    """
    b = IRBuilder("unpack_pairs")
    count = Var("count")
    x = b.input("bytes", _UNSIZED, "int8", align=4)
    out = b.output("pairs", _UNSIZED, "int16", align=4)
    before = b.local("before", (1,), "int32", init=0)
    with b.for_("q", count) as q:
        for i in range(2):
            low, high = (b.let("w", cast("int32", x[q * 4 + (i + 2 * half)]) * 256) for half in range(2))
            for j, value in enumerate((low, high, before[0], low)):
                b.store(out, q * 8 + (4 * i + j), value)
            b.store(before, 0, high)
    desc = replace(b.finish(), scalars=(count,))
    return TensorIntrin("arm_dsp.unpack_pairs", desc, _emit_unpack)


def _emit_unpack(operands: Mapping[str, COperand]) -> BlockText:
    text = [
        "1:",
        "ldr %[v], [%[s]], #4",
        "and %[a], %[mask], %[v], lsl #8",
        "and %[v], %[v], %[mask]",
        "pkhbt %[o], %[p], %[a], lsl #16",
        "strd %[a], %[o], [%[d]], #8",
        "lsr %[p], %[a], #16",
        "pkhbt %[o], %[p], %[v], lsl #16",
        "lsr %[p], %[v], #16",
        "strd %[v], %[o], [%[d]], #8",
        "cmp %[s], %[end]",
        "bne 1b",
    ]
    return AsmBlock(
        [
            f"const void *aot_s = {operands['bytes'].pointer};",
            f"void *aot_d = {operands['pairs'].pointer};",
            f"const void *const aot_end = (const uint8_t *)aot_s + 4 * ({operands['count'].value});",
            "uint32_t aot_v, aot_a, aot_o, aot_p = 0;",
        ],
        text,
        outs=['[s] "+r"(aot_s)', '[d] "+r"(aot_d)', '[p] "+r"(aot_p)', *(f'[{n}] "=&r"(aot_{n})' for n in "vao")],
        ins=['[end] "r"(aot_end)', '[mask] "r"(0xff00ff00u)'],
    ).emit()


@cache
def copy_lines() -> TensorIntrin:
    """plane[r, c] = data[r, c] for `rows` * `columns` pixels of one channel, at least one.

    Operands: data int8 from the first pixel on; plane int16 from its place on; rows; columns; bytes from row to row and from
    column to column of the data; pitch of the plane in elements.
    """
    b = IRBuilder("copy_lines")
    rows, columns, row_step, column_step, pitch = scalars = tuple(
        Var(n) for n in ("rows", "columns", "row_step", "column_step", "pitch")
    )
    data = b.input("data", _UNSIZED, "int8")
    plane = b.output("plane", _UNSIZED, "int16")
    with b.for_("r", rows) as r, b.for_("c", columns) as c:
        b.store(plane, r * pitch + c, data[r * row_step + c * column_step])
    return TensorIntrin("arm_dsp.copy_lines", replace(b.finish(), scalars=scalars), _emit_copy)


def _emit_copy(operands: Mapping[str, COperand]) -> BlockText:
    """Two pixels a turn, an odd one before them."""
    text = ["1:", "mov %[s], %[src]", "mov %[d], %[dst]", "mov %[n], %[columns]"]
    text += ["tst %[n], #1", "beq 2f", "ldrsb %[v], [%[s]]", "add %[s], %[s], %[step]", "strh %[v], [%[d]], #2"]
    text += ["subs %[n], %[n], #1", "beq 3f"]
    text += ["2:", "ldrsb %[v], [%[s]]", "ldrsb %[u], [%[s], %[step]]", "add %[s], %[s], %[step], lsl #1"]
    text += ["strh %[v], [%[d]], #2", "strh %[u], [%[d]], #2", "subs %[n], %[n], #2", "bne 2b"]
    text += ["3:", "add %[src], %[src], %[line]", "add %[dst], %[dst], %[pitch]", "subs %[rows], %[rows], #1", "bne 1b"]
    temporaries = ("s", "d", "n", "v", "u")
    return AsmBlock(
        [
            f"const void *aot_src = {operands['data'].pointer};",
            f"void *aot_dst = {operands['plane'].pointer};",
            f"int32_t aot_rows = {operands['rows'].value};",
            f"uint32_t {', '.join('aot_' + t for t in temporaries)};",
        ],
        text,
        outs=[
            *('[src] "+&r"(aot_src)', '[dst] "+&r"(aot_dst)', '[rows] "+&r"(aot_rows)'),
            *(f'[{t}] "=&r"(aot_{t})' for t in temporaries),
        ],
        ins=[
            f'[columns] "r"({operands["columns"].value})',
            f'[step] "r"({operands["column_step"].value})',
            f'[line] "r"({operands["row_step"].value})',
            f'[pitch] "r"(2 * ({operands["pitch"].value}))',
        ],
    ).emit()


@cache
def band_pairs(stride: int, rounding: RequantForm) -> TensorIntrin:
    """`lines` rows of `columns` results of one channel, whose windows are `stride` (1 or 2) columns apart.

    out[y, x] = clamp((hi((bias + sum) * multiplier) + constant) >> shift).  Operands: plane int16 (aligned to 4 bytes) from the
    first window's corner on; weights int16, `rows` * `words` groups of unpack_pairs; numbers int32: bias, constant, multiplier,
    shift; out int8 from the first result on; lines; columns; elements of the plane from line to line; bytes of the result from
    column to column and from line to line; rows of the kernel; words; pitch of the plane in elements, even.
    """
    b = IRBuilder(f"band_pairs_s{stride}" + "_signed" * rounding.signed + f"_{rounding.lo}_{rounding.hi}".replace("-", "m"))
    names = ("lines", "columns", "line", "column_step", "line_step", "rows", "words", "pitch")
    scalars = tuple(Var(n) for n in names)
    lines, columns, line, column_step, line_step, rows, words, pitch = scalars
    plane = b.input("plane", _UNSIZED, "int16", align=4)
    weights = b.input("weights", _UNSIZED, "int16", align=4)
    params = b.input("numbers", (len(NUMBERS),), "int32", align=4)
    out = b.output("out", _UNSIZED, "int8")
    numbers = [b.let(n, params[i]) for i, n in enumerate(NUMBERS)]
    with b.for_("y", lines) as y, b.for_("x", columns) as x:
        acc = b.local("acc", (1,), "int32", init=numbers[0])
        kind = b.let("kind", x % 2 if stride == 1 else imm(0))
        corner = b.let("corner", y * line + x * stride - kind)
        with b.for_("r", rows) as r, b.for_("i", words) as i:
            group = b.let("group", (r * words + i) * 4 + kind * 2)
            at = b.let("at", corner + r * pitch + i * 2)
            products = [cast("int32", plane[at + half]) * cast("int32", weights[group + half]) for half in range(2)]
            b.store(acc, 0, acc[0] + products[0] + products[1])
        b.store(out, y * line_step + x * column_step, requantized(b, rounding, acc[0], numbers))
    desc = replace(b.finish(), scalars=scalars)
    return TensorIntrin(f"arm_dsp.{desc.name}", desc, lambda ops: _emit(ops, stride, rounding))


def _row_single() -> tuple[list[str], list[str]]:
    """A kernel row of two pairs, and what a third and a fourth add: each pixel word is used twice."""

    def step(p: str, q: str) -> list[str]:
        sums = [f"smlad %[a{j}], %[{(p, p, q, q)[j]}], %[{'ef'[j % 2]}], %[a{j}]" for j in range(OUTPUTS)]
        return ["ldrd %[e], %[f], [%[w]], #8", *sums]

    first = ["ldrd %[p], %[q], [%[x]]", *step("p", "q"), "ldr %[p], [%[x], #8]", *step("q", "p")]
    third = ["ldr %[q], [%[x], #12]", *step("p", "q")]
    return [*first, *SKIP_THIRD, *third], ["ldr %[p], [%[x], #16]", *step("q", "p")]


def _row_double() -> tuple[list[str], list[str]]:
    """As _row_single with four pixel words, of which each pair of weights replaces one."""

    def step(first: int) -> list[str]:
        sums = [f"smlad %[a{j}], %[{'pqfg'[(first + j) % 4]}], %[e], %[a{j}]" for j in range(OUTPUTS)]
        return ["ldr %[e], [%[w]], #8", *sums]

    first = ["ldrd %[p], %[q], [%[x]]", "ldrd %[f], %[g], [%[x], #8]", *step(0), "ldr %[p], [%[x], #16]", *step(1)]
    third = ["ldr %[q], [%[x], #20]", *step(2)]
    return [*first, *SKIP_THIRD, *third], ["ldr %[f], [%[x], #24]", *step(3)]


SKIP_THIRD = ("tst %[rows], #3", "beq 2f")
SKIP_FOURTH = ("tst %[rows], #2", "beq 2f")
"""`rows` holds 4 * (rows left - 1) + words - 2."""


def _block(stride: int, rounding: RequantForm) -> list[str]:
    """Four results in a0 to a3."""
    accs = [f"%[a{j}]" for j in range(OUTPUTS)]
    three, fourth = _row_single() if stride == 1 else _row_double()
    text = [f"ldr %[a0], {_at('bias')}", *(f"mov {a}, %[a0]" for a in accs[1:])]
    text += [f"ldr %[w], {_at('weights')}", f"ldr %[rows], {_at('count')}"]
    text += ["1:", *three, *SKIP_FOURTH, *fourth]
    text += ["2:", f"ldr %[e], {_at('pitch')}", "add %[x], %[x], %[e]", "subs %[rows], %[rows], #4", "bhs 1b"]
    text += [f"ldr %[e], {_at('next')}", "add %[x], %[x], %[e]"]
    text += [f"ldr %[p], {_at('multiplier')}", f"ldr %[q], {_at('constant')}"]
    for a in accs:
        if rounding.signed:
            text += [f"asr %[e], {a}, #31", f"add %[e], %[q], %[e], lsl #{rounding.prescale - 1}"]
        text.append(f"smmla {a}, {a}, %[p], %[{'e' if rounding.signed else 'q'}]")
    return [*text, f"ldr %[e], {_at('shift')}", *(f"asr {a}, {a}, %[e]" for a in accs), *clamp_lines(rounding, accs)]


def band_text(stride: int, rounding: RequantForm) -> list[str]:
    """The instructions of band_pairs."""
    text = ["0:", *_block(stride, rounding)]
    text += [f"ldr %[e], {_at('step')}", f"ldr %[p], {_at('left')}", "subs %[p], %[p], #4", f"str %[p], {_at('left')}", "blo 3f"]
    for j in (0, 2):
        text += [f"strb %[a{j}], [%[o]]", f"strb %[a{j + 1}], [%[o], %[e]]", "add %[o], %[o], %[e], lsl #1"]
    text += ["bne 0b", "b 4f"]
    text += ["3:", "strb %[a0], [%[o]]", "cmn %[p], #3", "beq 4f", "strb %[a1], [%[o], %[e]]", "cmn %[p], #2", "beq 4f"]
    text += ["strb %[a2], [%[o], %[e], lsl #1]"]
    text += ["4:", f"ldr %[e], {_at('columns')}", f"str %[e], {_at('left')}"]
    for register, step in (("x", "line"), ("o", "line_step")):
        text += [f"ldr %[{register}], {_at(register + '0')}", f"ldr %[e], {_at(step)}"]
        text += [f"add %[{register}], %[{register}], %[e]", f"str %[{register}], {_at(register + '0')}"]
    return [*text, f"ldr %[e], {_at('lines')}", "subs %[e], %[e], #1", f"str %[e], {_at('lines')}", "bne 0b"]


CONTEXT = (
    *("weights", "count", "pitch", "next", "step", "columns", "line", "line_step"),
    *NUMBERS,
    *("left", "lines", "x0", "o0"),
)
"""Words of memory that the block reads, and writes the last four of: there are not enough registers."""


def _at(name: str) -> str:
    return f"[%[k], #{4 * CONTEXT.index(name)}]"


def _emit(operands: Mapping[str, COperand], stride: int, rounding: RequantForm) -> BlockText:
    value = {name: f"({operand.value or operand.pointer})" for name, operand in operands.items()}
    context = {
        "weights": f"(int32_t)(intptr_t){value['weights']}",
        "count": f"4 * {value['rows']} + {value['words']} - 6",
        "pitch": f"2 * {value['pitch']}",
        "next": f"{8 * stride} - 2 * {value['rows']} * {value['pitch']}",
        "step": value["column_step"],
        "columns": value["columns"],
        "line": f"2 * {value['line']}",
        "line_step": value["line_step"],
        **{n: f"{value['numbers']}[{i}]" for i, n in enumerate(NUMBERS)},
        "left": value["columns"],
        "lines": value["lines"],
        "x0": "(int32_t)(intptr_t)aot_x",
        "o0": "(int32_t)(intptr_t)aot_o",
    }
    temporaries = ["w", "rows", "a0", "a1", "a2", "a3", "p", "q", "e", "f"] + ["g"] * (stride == 2)
    outs = ['[x] "+r"(aot_x)', '[o] "+r"(aot_o)', *(f'[{t}] "=&r"(aot_{t})' for t in temporaries)]
    return AsmBlock(
        [
            f"const void *aot_x = {operands['plane'].pointer};",
            f"void *aot_o = {operands['out'].pointer};",
            "int32_t aot_k[] = {",
            *(f"  {context[name]}," for name in CONTEXT),
            "};",
            f"uint32_t {', '.join('aot_' + t for t in temporaries)};",
        ],
        band_text(stride, rounding),
        outs=outs,
        ins=['[k] "r"(aot_k)'],
    ).emit()


def band_instructions(plan: tuple[int, int, int], *, lines: int, columns: int) -> int:
    """Of one block, plan: (words, stride, kernel rows), counted from its text."""
    words, stride, rows = plan
    row = (18 if stride == 1 else 19) + (6 if words > MIN_WORDS else 0) + (2 + 5) * (words - MIN_WORDS)
    blocks = -(-columns // OUTPUTS)
    return 40 + lines * (17 + blocks * (rows * (row + 1) + 37))
