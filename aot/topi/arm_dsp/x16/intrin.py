"""One row of 16-bit data by four channels."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from aot.tir.buffer import UNKNOWN_EXTENT
from aot.tir.builder import IRBuilder
from aot.tir.expr import cast
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.intrin.asm_text import AsmBlock, Repeat

CHANNELS = 4
MAX_UNROLL = 8

_WEIGHTS = ("r8", "r9", "r10", "r11")
_DATA = ("r12", "lr")


@cache
def smlad_1x4(pairs: int) -> TensorIntrin:
    """acc[c] += sum over k < pairs, j < 2 of x[2 k + j] * w[k, c, j].

    acc: int32[4] in registers; x: int16[2 pairs] and w: int16[pairs, 4, 2], both aligned to 4 bytes.  Sums have to fit.
    8 SMLAD, 2 LDM and LDRD for 16 multiply-accumulates.
    """
    b = IRBuilder(f"smlad_1x4_k{2 * pairs}")
    x = b.input("x", (UNKNOWN_EXTENT,), "int16", align=4)
    w = b.input("w", (UNKNOWN_EXTENT,), "int16", align=4)
    acc = b.output("acc", (CHANNELS,), "int32")
    with b.for_("k", pairs) as k:
        values = [b.let("x", cast("int32", x[k * 2 + j])) for j in range(2)]
        for c in range(CHANNELS):
            products = [values[j] * cast("int32", w[(k * CHANNELS + c) * 2 + j]) for j in range(2)]
            b.store(acc, c, acc[c] + (products[0] + products[1]))
    return TensorIntrin(f"arm_dsp.smlad_1x4_k{2 * pairs}", b.finish(), lambda ops: _emit(ops, pairs), requires="dsp")


def unroll_of(pairs: int) -> int:
    """Steps of two pairs in the body of the loop."""
    return max(u for u in range(1, MAX_UNROLL + 1) if (pairs // 2) % u == 0) if pairs > 1 else 0


def _emit(operands: Mapping[str, COperand], pairs: int) -> BlockText:
    load = f"ldmia %[w]!, {{{', '.join(_WEIGHTS)}}}"

    def products(x: str) -> list[str]:
        return [load, *(f"smlad %[a{c}], {w}, {x}, %[a{c}]" for c, w in enumerate(_WEIGHTS))]

    step = [f"ldrd {_DATA[0]}, {_DATA[1]}, [%[x]], #8", *products(_DATA[0]), *products(_DATA[1])]
    last = [f"ldr {_DATA[0]}, [%[x]], #4", *products(_DATA[0])] if pairs % 2 else []
    unroll = unroll_of(pairs)
    loops = pairs // 2 // unroll if unroll else 0
    text: list[str | Repeat] = []
    if loops > 1:
        text += [f"mov %[n], #{loops}", "1:", Repeat(unroll, step), "subs %[n], %[n], #1", "bne 1b"]
    elif unroll:
        text.append(Repeat(unroll, step))
    accs = operands["acc"].scalars
    return AsmBlock(
        [f"const void *aot_w = {operands['w'].pointer};", f"const void *aot_x = {operands['x'].pointer};", "uint32_t aot_n;"],
        [*text, *last],
        outs=[
            *(f'[a{c}] "+&r"({name})' for c, name in enumerate(accs)),
            '[w] "+&r"(aot_w)',
            '[x] "+&r"(aot_x)',
            '[n] "=&r"(aot_n)',
        ],
        clobbers=[*_WEIGHTS, *_DATA],
    ).emit()
