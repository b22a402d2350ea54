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
from aot.tir.expr import Expr, Var, cast, imm
from aot.tir.intrin import COperand, TensorIntrin
from aot.topi.arm_dsp.intrin_w8 import asm_block

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
    """Bytes -> pairs of weights times 256, each as it is and one column later.

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


def _emit_unpack(operands: Mapping[str, COperand]) -> str:
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
    return asm_block(
        [
            f"const void *aot_s = {operands['bytes'].pointer};",
            f"void *aot_d = {operands['pairs'].pointer};",
            f"const void *const aot_end = (const uint8_t *)aot_s + 4 * ({operands['count'].value});",
            "uint32_t aot_v, aot_a, aot_o, aot_p = 0;",
        ],
        text,
        outs=['[s] "+r"(aot_s)', '[d] "+r"(aot_d)', '[p] "+r"(aot_p)', *(f'[{n}] "=&r"(aot_{n})' for n in "vao")],
        ins=['[end] "r"(aot_end)', '[mask] "r"(0xff00ff00u)'],
    )


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


def _emit_copy(operands: Mapping[str, COperand]) -> str:
    """Two pixels a turn, an odd one before them."""
    text = ["1:", "mov %[s], %[src]", "mov %[d], %[dst]", "mov %[n], %[columns]"]
    text += ["tst %[n], #1", "beq 2f", "ldrsb %[v], [%[s]]", "add %[s], %[s], %[step]", "strh %[v], [%[d]], #2"]
    text += ["subs %[n], %[n], #1", "beq 3f"]
    text += ["2:", "ldrsb %[v], [%[s]]", "ldrsb %[u], [%[s], %[step]]", "add %[s], %[s], %[step], lsl #1"]
    text += ["strh %[v], [%[d]], #2", "strh %[u], [%[d]], #2", "subs %[n], %[n], #2", "bne 2b"]
    text += ["3:", "add %[src], %[src], %[line]", "add %[dst], %[dst], %[pitch]", "subs %[rows], %[rows], #1", "bne 1b"]
    temporaries = ("s", "d", "n", "v", "u")
    return asm_block(
        [
            f"const void *aot_src = {operands['data'].pointer};",
            f"void *aot_dst = {operands['plane'].pointer};",
            f"int32_t aot_rows = {operands['rows'].value};",
            f"uint32_t {', '.join('aot_' + t for t in temporaries)};",
        ],
        text,
        outs=[
            *('[src] "+r"(aot_src)', '[dst] "+r"(aot_dst)', '[rows] "+r"(aot_rows)'),
            *(f'[{t}] "=&r"(aot_{t})' for t in temporaries),
        ],
        ins=[
            f'[columns] "r"({operands["columns"].value})',
            f'[step] "r"({operands["column_step"].value})',
            f'[line] "r"({operands["row_step"].value})',
            f'[pitch] "r"(2 * ({operands["pitch"].value}))',
        ],
    )


@cache
def sum_pairs(stride: int) -> TensorIntrin:
    """acc[j] += the kernel's sum for result j of four, whose windows are `stride` (1 or 2) columns apart.

    Operands: plane int16 (aligned to 4 bytes) from the first window's corner on; weights int16, `rows` * `words` groups of
    unpack_pairs; acc int32[4]; rows of the kernel; words; pitch of the plane in elements, even.
    """
    b = IRBuilder(f"sum_pairs_s{stride}")
    rows, words, pitch = (Var(n) for n in ("rows", "words", "pitch"))
    plane = b.input("plane", _UNSIZED, "int16", align=4)
    weights = b.input("weights", _UNSIZED, "int16", align=4)
    acc = b.output("acc", (OUTPUTS,), "int32")
    with b.for_("r", rows) as r, b.for_("i", words) as i:
        group = b.let("group", (r * words + i) * 4)
        for j in range(OUTPUTS):
            column, kind = (j // 2, j % 2) if stride == 1 else (j, 0)
            at = b.let("at", r * pitch + (i + column) * 2)
            total: Expr = acc[imm(j)]
            for half in range(2):
                total = total + cast("int32", plane[at + half]) * cast("int32", weights[group + (2 * kind + half)])
            b.store(acc, j, total)
    desc = replace(b.finish(), scalars=(rows, words, pitch))
    emit = _emit_single if stride == 1 else _emit_double
    return TensorIntrin(f"arm_dsp.{desc.name}", desc, emit)


def _emit_single(operands: Mapping[str, COperand]) -> str:
    """Each pixel word is used twice; the third and fourth pair of weights are left out where there are fewer."""

    def step(p: str, q: str) -> list[str]:
        return [f"smlad %[a{j}], %[{(p, p, q, q)[j]}], %[{'eo'[j % 2]}], %[a{j}]" for j in range(OUTPUTS)]

    text = ["1:", "ldrd %[p], %[q], [%[x]]", "ldrd %[e], %[o], [%[w]], #8", *step("p", "q")]
    text += ["ldr %[p], [%[x], #8]", "ldrd %[e], %[o], [%[w]], #8", *step("q", "p")]
    text += ["cmp %[words], #3", "blo 2f", "ldr %[q], [%[x], #12]", "ldrd %[e], %[o], [%[w]], #8", *step("p", "q")]
    text += ["beq 2f", "ldr %[p], [%[x], #16]", "ldrd %[e], %[o], [%[w]], #8", *step("q", "p")]
    text += ["2:", "add %[x], %[x], %[pitch]", "subs %[rows], %[rows], #1", "bne 1b"]
    return _emit(operands, text, ("p", "q", "e", "o"), '[pitch] "r"(aot_pitch)')


def _emit_double(operands: Mapping[str, COperand]) -> str:
    """Four pixel words, of which one is replaced with each pair of weights."""

    def step(first: int) -> list[str]:
        return [f"smlad %[a{j}], %[p{(first + j) % 4}], %[e], %[a{j}]" for j in range(OUTPUTS)]

    text = ["1:", "ldrd %[p0], %[p1], [%[x]]", "ldrd %[p2], %[p3], [%[x], #8]", "ldr %[e], [%[w]], #8", *step(0)]
    text += ["ldr %[p0], [%[x], #16]", "ldr %[e], [%[w]], #8", *step(1)]
    text += ["cmp %[words], #3", "blo 2f", "ldr %[p1], [%[x], #20]", "ldr %[e], [%[w]], #8", *step(2)]
    text += ["beq 2f", "ldr %[p2], [%[x], #24]", "ldr %[e], [%[w]], #8", *step(3)]
    text += ["2:", "ldr %[e], %[pitch]", "add %[x], %[x], %[e]", "subs %[rows], %[rows], #1", "bne 1b"]
    return _emit(operands, text, ("p0", "p1", "p2", "p3", "e"), '[pitch] "m"(aot_pitch)')


def _emit(operands: Mapping[str, COperand], text: list[str], temporaries: tuple[str, ...], pitch: str) -> str:
    outs = [f'[a{i}] "+r"({name})' for i, name in enumerate(operands["acc"].scalars)]
    outs += ['[x] "+r"(aot_x)', '[w] "+r"(aot_w)', '[rows] "+r"(aot_rows)', *(f'[{t}] "=&r"(aot_{t})' for t in temporaries)]
    return asm_block(
        [
            f"const void *aot_x = {operands['plane'].pointer};",
            f"const void *aot_w = {operands['weights'].pointer};",
            f"int32_t aot_rows = {operands['rows'].value};",
            f"const int32_t aot_pitch = 2 * ({operands['pitch'].value});",
            f"uint32_t {', '.join('aot_' + t for t in temporaries)};",
        ],
        text,
        outs=outs,
        ins=[pitch, f'[words] "r"({operands["words"].value})'],
    )


def sum_instructions(words: int, stride: int, rows: int) -> int:
    """Of one block (counted from its text)."""
    if stride == 1:
        return rows * (17 + 7 * (words - 2) + (words == MAX_WORDS) - (words == MAX_WORDS) + (words > MIN_WORDS))
    return rows * (19 + 6 * (words - 2) + (words > MIN_WORDS))
