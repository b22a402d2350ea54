"""Depthwise convolution for Armv6-M: a window's taps for six pixels with four MULS each (aot/topi/layer/planes.py)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from aot.target.target import Target
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.arm_v6m.lanes import UNIFIED
from aot.topi.arm_v6m.requant import choose_requant, instructions
from aot.topi.intrin.asm_text import AsmBlock
from aot.topi.layer.fused import FusedLayer
from aot.topi.layer.planes import WORDS, LanePlanes, Machine, Requant, Taps, lower_lanes, plan_lanes, plane_sums
from aot.topi.strategy import Group, register_planned

MAX_OFFSET = 31
"""Largest offset of LDR, in words."""
TAP = 6 + 2 * WORDS
"""Instructions per tap."""


def mul_instructions(taps: Taps) -> int:
    """Instructions of `mul_plane`."""
    return TAP * taps.rows * taps.columns + 2 * (taps.rows - 1)


@cache
def mul_plane(taps: Taps) -> TensorIntrin:
    """`plane_sums` with LDR, MULS in place and ADD."""
    desc = plane_sums(taps)
    return TensorIntrin(f"arm_v6m.mul_{desc.name}", desc, lambda ops: _emit(ops, taps), requires="v6m")


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


def _two_products(layer: FusedLayer, target: Target) -> Requant:
    return choose_requant(layer.requant, layer.acc_low, layer.acc_high, target)


V6M = Machine("arm_v6m.depthwise", mul_plane, mul_instructions, MAX_OFFSET, _two_products, instructions, 50)


def _plan(group: Group, target: Target) -> LanePlanes | None:
    return plan_lanes(group, target, V6M) if target.has("v6m") else None


register_planned(V6M.kernel, "nn.depthwise_conv2d", _plan, lower_lanes, plevel=20)
