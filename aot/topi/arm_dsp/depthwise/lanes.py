"""Depthwise convolution for cores with SMLAL but without DSP instructions (Cortex-M3) by 32-bit sums: windows beyond 3 x 3 too.

The kernel of Armv6-M (aot/topi/arm_v6m/depthwise.py) with MLA, which leaves words in their registers for the next tap, and with
requantisation by SMULL.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np

from aot.target.target import Target
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.arm_v6m.depthwise import Machine, PlanePlan, lower_planes, plan_planes
from aot.topi.arm_v6m.intrin_depthwise import Taps, plane_sums
from aot.topi.arm_v6m.requant import OtherForm, Requant
from aot.topi.intrin.asm_text import AsmBlock
from aot.topi.layer.fused import FusedLayer
from aot.topi.layer.requant import HighMultiply, plan_requantize
from aot.topi.layer.threshold import plan_uniform
from aot.topi.strategy import Group, register_planned

LEAST_SCALE, MOST_SCALE = 4, 14
"""Bits by which sums are scaled for a common shift, most first."""
REACH = 1000
"""Words that LDR reaches."""


def _sliding(taps: Taps) -> bool:
    """Whether the second word of a tap is the first one of the next."""
    return taps.stride == taps.dilation or taps.columns == 1


def mla_instructions(taps: Taps) -> int:
    """Of `mla_plane`."""
    row = 7 * taps.columns + 2 if _sliding(taps) else 9 * taps.columns
    return taps.rows * row + 2 * (taps.rows - 1)


@cache
def mla_plane(taps: Taps) -> TensorIntrin:
    """`plane_sums` by LDR and MLA."""
    desc = plane_sums(taps)
    return TensorIntrin(f"arm_dsp.mla_{desc.name}", desc, lambda ops: _emit(ops, taps), requires="thumb2")


def _row(taps: Taps, ky: int) -> list[str]:
    x, y = ["x0", "x1"], ["y0", "y1"]
    text = [f"ldr %[{n}], [%[{n[0]}]]" for n in (x[0], y[0])] if _sliding(taps) else []
    for kx in range(taps.columns):
        first = 4 * kx * taps.dilation
        second = first + 4 * taps.stride
        if not _sliding(taps):
            text += [f"ldr %[{n}], [%[{n[0]}], #{first}]" for n in (x[0], y[0])]
        text += [f"ldrsb %[v], [%[w], #{ky * taps.columns + kx}]"]
        text += [f"ldr %[{n}], [%[{n[0]}], #{second}]" for n in (x[1], y[1])]
        text += [f"mla %[a{i}], %[{n}], %[v], %[a{i}]" for i, n in enumerate((*x, *y))]
        if _sliding(taps):
            x, y = x[::-1], y[::-1]
    return text


def _emit(operands: Mapping[str, COperand], taps: Taps) -> BlockText:
    text: list[str] = []
    for ky in range(taps.rows):
        text += ["add %[x], %[pitch]", "add %[y], %[pitch]"] if ky else []
        text += _row(taps, ky)
    pitch = ['[pitch] "r"(aot_pitch)'] if taps.rows > 1 else []
    spare = ("x0", "x1", "y0", "y1", "v")
    return AsmBlock(
        [
            f"const void *aot_x = {operands['x'].pointer};",
            f"const void *aot_y = (const int32_t *)aot_x + {operands['second'].value};",
            f"const void *const aot_w = {operands['w'].pointer};",
            *([f"const int32_t aot_pitch = 4 * {operands['pitch'].value};"] if pitch else []),
            f"uint32_t {', '.join(f'aot_{n}' for n in spare)};",
        ],
        text,
        outs=[
            *(f'[a{i}] "+r"({s})' for i, s in enumerate(operands["acc"].scalars)),
            *('[x] "+r"(aot_x)', '[y] "+r"(aot_y)'),
            *(f'[{n}] "=&r"(aot_{n})' for n in spare),
        ],
        ins=['[w] "r"(aot_w)', *pitch],
    ).emit()


def _requantise(layer: FusedLayer, target: Target) -> Requant:
    """With one shift for all channels where that is exact, which takes care of the rounding too."""
    low, high = layer.acc_low, layer.acc_high
    most = min(30 - int(np.maximum(np.abs(low), np.abs(high) + 1).max()).bit_length(), MOST_SCALE)
    options = (plan_uniform(layer.requant, low, high, target=target, prescale=scale) for scale in range(most, LEAST_SCALE, -1))
    shared = next((form for form in options if form is not None), None)
    if shared is not None:
        return OtherForm(shared, np.zeros_like(layer.bias))
    return OtherForm(plan_requantize(layer.requant, layer.acc_low, layer.acc_high, target), np.zeros_like(layer.bias))


def _result_cost(requant: Requant) -> int:
    if not isinstance(requant, OtherForm) or not isinstance(requant.form, HighMultiply):
        return 25
    return 5 + 3 * requant.form.rounded + requant.form.signed


M3 = Machine("arm_dsp.depthwise_lanes", mla_plane, mla_instructions, REACH, _requantise, _result_cost, 15)


def _plan(group: Group, target: Target) -> PlanePlan | None:
    return plan_planes(group, target, M3) if target.has("thumb2") and not target.has("dsp") else None


register_planned(M3.kernel, "nn.depthwise_conv2d", _plan, lower_planes, plevel=25)
