"""Intrinsics for int8 matrix products written as tensor expressions: blocks of two rows x two columns (docs/python.md).

Rows are unpacked to 16 bits once, two rows in one stream: per quad of four values, first the first row's and then the second
row's, and of each row {x0, x2} before {x1, x3}, the order of SXTB16.  With both operands in that order, a quad of 16 products
needs only two LDM and eight SMLAD.
"""

from __future__ import annotations

from functools import cache
from itertools import product

from aot.tir.builder import IRBuilder
from aot.tir.expr import cast
from aot.tir.intrin import BlockText, TensorIntrin
from aot.topi.intrin.asm_text import AsmBlock, Operands, Repeat, asm, block_of

QUAD = 4
"""Values of a row that are handled together."""

MAX_UNROLL = 16


@cache
def pack_row_pair(depth: int) -> TensorIntrin:
    """Unpack two rows to 16 bits: packed[q, r, a, b] = rows[r, 4 q + 2 b + a] for q < depth / 4.

    Operands: rows int8[2, depth], depth a multiple of 4; packed int16[depth / 4, 2, 2, 2], aligned to 4 bytes.
    """
    _check(depth)
    b = IRBuilder(f"pack_row_pair_{depth}")
    rows = b.input("rows", (2, depth), "int8")
    packed = b.output("packed", (depth // QUAD, 2, 2, 2), "int16", align=4)
    with b.for_("q", depth // QUAD) as q, b.for_("r", 2) as r, b.for_("a", 2) as a, b.for_("b", 2) as c:
        b.store(packed, (q, r, a, c), cast("int16", rows[r, q * 4 + c * 2 + a]))
    return block_of(b, "arm_dsp", lambda ops: _emit_pack(ops, depth))


@cache
def dot_row_pairs(depth: int) -> TensorIntrin:
    """Two rows x two rows, each pair packed by `pack_row_pair`: acc[i, j] += sum of x[.., i, ..] * y[.., j, ..].

    Operands: x and y int16[depth / 4, 2, 2, 2], aligned to 4 bytes; acc int32[2, 2].  Sums must fit.
    """
    _check(depth)
    quads = depth // QUAD
    b = IRBuilder(f"dot_row_pairs_{depth}")
    x = b.input("x", (quads, 2, 2, 2), "int16", align=4)
    y = b.input("y", (quads, 2, 2, 2), "int16", align=4)
    acc = b.output("acc", (2, 2), "int32")
    with b.for_("q", quads) as q:
        for a, c, i, j in product(range(2), repeat=4):
            b.store(acc, (i, j), acc[i, j] + cast("int32", x[q, i, a, c]) * cast("int32", y[q, j, a, c]))
    return block_of(b, "arm_dsp", lambda ops: _emit_dot(ops, quads))


def _check(depth: int) -> None:
    if depth < QUAD or depth % QUAD:
        raise ValueError(f"depth {depth} is not a multiple of {QUAD}")


def _unroll(quads: int) -> int:
    return max(u for u in range(1, MAX_UNROLL + 1) if quads % u == 0)


def _emit_pack(operands: Operands, depth: int) -> BlockText:
    quads = depth // QUAD
    unroll = max(u for u in range(1, 5) if quads % u == 0)
    step = ["ldr %[v], [%[s]], #4", "ldr %[w], [%[t]], #4"]
    step += ["sxtb16 r4, %[v]", "sxtb16 r5, %[v], ror #8", "sxtb16 r6, %[w]", "sxtb16 r8, %[w], ror #8"]
    step += ["stmia %[d]!, {r4, r5, r6, r8}"]
    return AsmBlock(  # the end is where the second row starts: early clobber keeps it out of that pointer's register
        [
            f"const void *aot_s = {operands['rows'].pointer};",
            f"const void *aot_t = (const uint8_t *)aot_s + {depth};",
            "const void *const aot_end = aot_t;",
            f"void *aot_d = {operands['packed'].pointer};",
            "uint32_t aot_v, aot_w;",
        ],
        ["1:", Repeat(unroll, step), "cmp %[s], %[end]", "bne 1b"],
        outs=['[s] "+r"(aot_s)', '[t] "+&r"(aot_t)', '[d] "+r"(aot_d)', '[v] "=&r"(aot_v)', '[w] "=&r"(aot_w)'],
        ins=['[end] "r"(aot_end)'],
        clobbers=["r4", "r5", "r6", "r8"],
    ).emit()


def _emit_dot(operands: Operands, quads: int) -> BlockText:
    unroll = _unroll(quads)
    step = ["ldmia %[xp]!, {r4, r5, r6, r8}", "ldmia %[yp]!, {r9, r10, r11, r12}"]
    for word in range(2):
        for i in range(2):
            for j in range(2):
                x, y = ("r4", "r5", "r6", "r8")[2 * i + word], ("r9", "r10", "r11", "r12")[2 * j + word]
                step.append(f"smlad %[a{2 * i + j}], {x}, {y}, %[a{2 * i + j}]")
    body: list[str | Repeat] = [Repeat(unroll, step)]
    end = {}
    if unroll != quads:
        body, end = ["1:", *body, "ldr r4, %[end]", "cmp %[xp], r4", "bne 1b"], {"xp:m": f"{16 * quads}"}
    return asm(
        operands, body, "xp=x yp=y", acc="a", end=end, clobbers=["r4", "r5", "r6", "r8", "r9", "r10", "r11", "r12"], kind="+"
    )
