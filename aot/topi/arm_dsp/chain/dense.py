"""Fully connected layers by SMLAL on cores without DSP instructions (Cortex-M3): one row by four channels, see intrin_dense.py.

Weights take two bytes each.  Scratch: four bytes an input.
"""

from __future__ import annotations

from math import prod

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, cast, imm
from aot.tir.function import FuncAttrs
from aot.topi.arm_dsp.chain.intrin_dense import (
    BITS,
    CHANNELS,
    OFFSET,
    STEP,
    STEP_INSTRUCTIONS,
    pair_sums,
    smlal_pairs,
    tap_loop,
)
from aot.topi.arm_dsp.w8.window import is_rows
from aot.topi.layer.fused import FusedLayer, describe, match_layer, tail_accepts, tail_each
from aot.topi.layer.io import LayerIo, open_io
from aot.topi.layer.requant import HighMultiply, plan_high_multiply
from aot.topi.strategy import Group, Lowered, register_planned

MAX_ROWS = 2
"""Pointwise convolutions of more pixels belong to conv2d."""


@dataclass(frozen=True, slots=True)
class _Plan:
    layer: FusedLayer
    requant: HighMultiply

    @property
    def depth(self) -> int:
        return int(self.layer.weight[0].size)

    @property
    def taps(self) -> int:
        return self.depth + self.depth % STEP

    @property
    def arrays(self) -> list[Array]:
        """Numbers of each channel: a start value and the fields of the requantisation, but for uniform ones."""
        bias = self.layer.bias - np.where(np.arange(self.layer.channels) % 2 == 0, OFFSET, 0)
        return [2 * bias, *(f.values for f in self.requant.fields if not f.uniform)]

    @property
    def block_words(self) -> int:
        return 2 * self.taps + CHANNELS * len(self.arrays)

    def stream(self) -> Array:
        """int32: of each block of four channels the words of all taps, then the numbers of each channel."""
        channels = -(-self.layer.channels // CHANNELS) * CHANNELS
        matrix = self.layer.weight.reshape(self.layer.channels, -1)
        matrix = np.pad(matrix, ((0, channels - len(matrix)), (0, self.taps - self.depth)))
        words = (matrix[0::2] + (matrix[1::2] << BITS)).reshape(-1, 2, self.taps).transpose(0, 2, 1)
        numbers = np.stack([np.pad(a, (0, channels - a.size)) for a in self.arrays], axis=1)
        blocks = channels // CHANNELS
        joined = np.concatenate([words.reshape(blocks, -1), numbers.reshape(blocks, -1)], axis=1)
        return joined.reshape(-1).astype(np.int32)


def _plan(group: Group, target: Target) -> _Plan | None:
    """Sums that stay within a lane, requantised in the short form; with DSP only nine-bit weights: other kernels are better."""
    layer = match_layer(group, wide=True)
    if layer is None or not target.has("thumb2") or not tail_accepts(layer) or not is_rows(layer):
        return None
    if target.has("dsp") and match_layer(group) is not None:
        return None
    if layer.weight.ndim > 2 and prod(layer.out_type.shape[:-1]) > MAX_ROWS:
        return None
    if 128 * int(np.abs(layer.weight.reshape(layer.channels, -1)).sum(axis=1).max()) >= OFFSET:
        return None
    if int(np.abs(layer.bias).max()) >= 1 << 29:
        return None
    requant = plan_high_multiply(layer.requant, layer.acc_low, layer.acc_high, target=target, prescale=1)
    return None if requant is None else _Plan(layer, requant)


def _lower(group: Group, _target: Target, name: str, plan: _Plan) -> Lowered:
    layer, depth = plan.layer, plan.depth
    rows = prod(layer.out_type.shape[:-1])
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(rows * depth,), out_shape=(rows * layer.channels,))
    params = io.constant("params", plan.stream(), "int32")
    words = b.scratch("words", (plan.taps,), "int32")
    if plan.taps > depth:
        b.store(words, depth, 0)
    step = max(u for u in (4, 3, 2, 1) if depth % u == 0)
    whole, rest = divmod(layer.channels, CHANNELS)
    with b.for_("m", rows) as m:
        number = m if layer.out_type.dtype == "int8" else rows - 1 - m
        with b.for_("k", depth, step=step) as k:
            for u in range(step):
                b.store(words, k + u, cast("int32", io.data.load("int8", number * depth + k + u)))
        with b.for_("n", whole) as n:
            _block(b, plan, io, (params, words), n=n, m=number, count=CHANNELS)
        if rest:
            _block(b, plan, io, (params, words), n=imm(whole), m=number, count=rest)
    loop = tap_loop(plan.taps)
    func = b.finish(FuncAttrs(kernel=describe("arm_dsp.dense_chain", unroll=loop.unroll), span=layer.span, macs=layer.macs))
    each = STEP_INSTRUCTIONS * plan.taps // STEP + (2 * (plan.taps // loop.unroll) if loop.unroll else 0)
    each += CHANNELS * (10 + tail_each(layer)) + 18
    code = 80 + (180 + 40 * len(layer.tail) + 13 * (loop.unroll + loop.rest)) * (bool(whole) + bool(rest))
    return Lowered(func, io.constants, instructions=rows * (3 * depth + -(-layer.channels // CHANNELS) * each + 20), code=code)


def _block(b: IRBuilder, plan: _Plan, io: LayerIo, place: tuple[Buffer, Buffer], *, n: Expr, m: Expr, count: int) -> None:
    """Block `n` of four channels for row `m`, of which `count` are stored."""
    params, words = place
    base = b.let("base", n * plan.block_words)
    acc = b.local("acc", (4,), "uint32")
    for i in range(2):
        b.store(acc, 2 * i, imm(OFFSET, "uint32"))
        b.store(acc, 2 * i + 1, imm(0, "uint32"))
    b.block(smlal_pairs(tap_loop(plan.taps)), region(params, base), words, acc, imm(plan.taps))
    sums = [*pair_sums(b, acc, 0), *pair_sums(b, acc, 1)]
    numbers = len(plan.arrays)
    for j in range(count):
        first = base + (2 * plan.taps + numbers * j)
        rows = iter(range(1, numbers))
        fields = tuple(imm(int(f.values[0])) if f.uniform else params[first + next(rows)] for f in plan.requant.fields)
        value = plan.requant.emit_scaled(b, params[first] + sums[j] * 2, fields)
        io.store((m * plan.layer.channels + n * CHANNELS + j,), value)


for _anchor in ("nn.dense", "nn.conv2d"):
    register_planned("arm_dsp.dense_chain", _anchor, _plan, _lower, plevel=31)
