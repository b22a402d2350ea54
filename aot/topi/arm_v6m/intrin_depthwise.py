"""The taps of a depthwise window for six pixels, in a plane whose words hold two pixels each: see lanes.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from aot.support.dataclass import dataclass
from aot.tir.buffer import UNKNOWN_EXTENT
from aot.tir.builder import IRBuilder
from aot.tir.expr import Var, cast
from aot.tir.function import PrimFunc
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.arm_v6m.lanes import UNIFIED, WORDS
from aot.topi.intrin.asm_text import AsmBlock

MAX_OFFSET = 31
"""Words that LDR reaches."""
TAP = 6 + 2 * WORDS
"""Instructions."""


@dataclass(frozen=True, slots=True)
class Taps:
    """`rows` by `columns` of them, `dilation` columns apart; `stride`: columns between neighbouring outputs."""

    rows: int
    columns: int
    stride: int
    dilation: int

    @property
    def reach(self) -> int:
        """Words from the first one of a row to its last one."""
        return (self.columns - 1) * self.dilation + self.stride


def mul_instructions(taps: Taps) -> int:
    """Of `mul_plane`."""
    return TAP * taps.rows * taps.columns + 2 * (taps.rows - 1)


@cache
def mul_plane(taps: Taps) -> TensorIntrin:
    """`plane_sums` by LDR, MULS in place and ADD."""
    desc = plane_sums(taps)
    return TensorIntrin(f"arm_v6m.mul_{desc.name}", desc, lambda ops: _emit(ops, taps), requires="v6m")


@cache
def plane_sums(taps: Taps) -> PrimFunc:
    """acc[4] += sums over the window of weights times words of the plane.

    Operands: w int8[taps]; x int32, words of the plane from the first output's window on, of which word i is pixel i + 2^11 *
    pixel (i + stride); acc uint32[4]; `second`: words between the windows of the first and the fourth output; `pitch`: words
    between rows of the window.
    """
    second, pitch = Var("second"), Var("pitch")
    b = IRBuilder(f"plane_{taps.rows}x{taps.columns}_s{taps.stride}_d{taps.dilation}")
    w = b.input("w", (taps.rows * taps.columns,), "int8")
    x = b.input("x", (UNKNOWN_EXTENT,), "int32", align=4)
    acc = b.output("acc", (WORDS,), "uint32")
    with b.for_("ky", taps.rows) as ky, b.for_("kx", taps.columns) as kx:
        weight = b.let("weight", cast("uint32", cast("int32", w[ky * taps.columns + kx])))
        at = b.let("at", ky * pitch + kx * taps.dilation)
        for i in range(WORDS):
            place = at + (i % 2) * taps.stride
            b.store(acc, i, acc[i] + weight * cast("uint32", x[place + second if i >= 2 else place]))
    return replace(b.finish(), scalars=(second, pitch))


def _emit(operands: Mapping[str, COperand], taps: Taps) -> BlockText:
    text = [UNIFIED]
    for ky in range(taps.rows):
        text += ["add %[x], %[pitch]", "add %[y], %[pitch]"] if ky else []
        for kx in range(taps.columns):
            text += [f"movs r4, #{ky * taps.columns + kx}", "ldrsb r4, [%[w], r4]"]
            for i in range(WORDS):
                offset = 4 * (kx * taps.dilation + (i % 2) * taps.stride)
                text.append(f"ldr r{i}, [%[{'xy'[i // 2]}], #{offset}]")
            for i in range(WORDS):
                text += [f"muls r{i}, r4, r{i}", f"add %[a{i}], r{i}"]
    pitch = ['[pitch] "h"(aot_pitch)'] if taps.rows > 1 else []
    return AsmBlock(
        [
            f"const void *aot_x = {operands['x'].pointer};",
            f"const void *aot_y = (const int32_t *)aot_x + {operands['second'].value};",
            f"const void *const aot_w = {operands['w'].pointer};",
            *([f"const int32_t aot_pitch = 4 * {operands['pitch'].value};"] if pitch else []),
        ],
        text,
        outs=[*(f'[a{i}] "+h"({s})' for i, s in enumerate(operands["acc"].scalars)), '[x] "+l"(aot_x)', '[y] "+l"(aot_y)'],
        ins=['[w] "l"(aot_w)', *pitch],
        clobbers=["r0", "r1", "r2", "r3", "r4"],
    ).emit()
