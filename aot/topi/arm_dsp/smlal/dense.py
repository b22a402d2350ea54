"""Fully connected layers for cores without DSP instructions (Cortex-M3): blocks of one row x four channels, by SMLAL.

The trick: one 64-bit multiply-accumulate does two products, because the weights of two channels share a word, 2^23 apart.  A
block of two taps costs 6 instructions for eight products.

Flash: two bytes per weight.  Scratch: four bytes per input.
"""

from __future__ import annotations

from functools import cache
from math import prod

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import UNKNOWN_EXTENT, Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, Var, cast, imm
from aot.tir.function import FuncAttrs
from aot.tir.intrin import BlockText, TensorIntrin
from aot.topi.intrin.asm_text import Operands, Repeat, asm, block_of
from aot.topi.layer.fused import FusedLayer, LayerIo, describe, epilogue_each, match_layer, open_io, supports_epilogue
from aot.topi.layer.im2col import TapLoop, is_rows
from aot.topi.layer.requant import HighMultiply, channel_params, plan_high_multiply
from aot.topi.strategy import Group, Lowered, register_planned

BITS = 23
OFFSET = 1 << (BITS - 1)
"""Start value of the low lane, whose sum must stay within [-OFFSET, OFFSET)."""
CHANNELS = 4
STEP = 2
"""Taps per iteration: four words of weights, two words of data."""
STEP_INSTRUCTIONS = 6
_UNROLL = 16


def tap_loop(taps: int) -> TapLoop:
    """Return straight code for few taps, else a loop over 16; `taps` is a multiple of STEP."""
    return TapLoop(0, taps) if taps < 2 * _UNROLL else TapLoop(_UNROLL, taps % _UNROLL)


@cache
def smlal_pairs(loop: TapLoop) -> TensorIntrin:
    """acc[2] += the products of `taps` taps: 4 channels (two words per tap) by one row.

    Operands: w int32[2 * taps], x int32[taps], acc uint32[4] (two accumulators as low and high words), and taps, which `loop`
    must accept.  Two taps cost 6 instructions for eight products.
    """
    taps = Var("taps")
    b = IRBuilder(f"smlal_pairs_{loop.unroll}_{loop.rest}")
    w = b.input("w", (UNKNOWN_EXTENT,), "int32", align=4)
    x = b.input("x", (UNKNOWN_EXTENT,), "int32", align=4)
    acc = b.output("acc", (4,), "uint32")
    wide = b.local("wide", (2,), "int64")
    for i in range(2):
        b.store(wide, i, (cast("uint64", acc[2 * i + 1]) << imm(32, "uint64")) | cast("uint64", acc[2 * i]))
    with b.for_("k", taps if loop.unroll else loop.rest) as k:
        value = b.let("value", cast("int64", x[k]))
        for i in range(2):
            b.store(wide, i, wide[i] + cast("int64", w[2 * k + i]) * value)
    for i in range(2):
        b.store(acc, 2 * i, cast("uint32", wide[i]))
        b.store(acc, 2 * i + 1, cast("uint32", wide[i] >> imm(32, "int64")))
    return block_of(b, "arm_dsp", lambda ops: _emit(ops, loop), taps, requires="thumb2")


def _emit(operands: Operands, loop: TapLoop) -> BlockText:
    step = ["ldmia %[wp]!, {r4, r5, r6, r8}", "ldrd %[x0], %[x1], [%[xp]], #8"]
    step += [
        f"smlal %[a{i}l], %[a{i}h], {w}, %[x{t}]"
        for t, pair in enumerate((("r4", "r5"), ("r6", "r8")))
        for i, w in enumerate(pair)
    ]
    text: list[str | Repeat] = []
    if loop.unroll:
        text += ["1:", Repeat(loop.unroll // STEP, step), "cmp %[xp], %[end]", "bne 1b"]
    text += [Repeat(loop.rest // STEP, step)] if loop.rest else []
    names = ("a0l", "a0h", "a1l", "a1h")
    outs = [f'[{n}] "+r"({s})' for n, s in zip(names, operands["acc"].scalars, strict=True)]
    end = {"xp:r": f"4 * ({operands['taps'].value} - {loop.rest})"} if loop.unroll else {}
    spare, words = ("x0", "x1"), ["r4", "r5", "r6", "r8"]
    return asm(
        operands, text, "wp=w xp=x", end=end, first=outs, temporaries=spare, temporaries_first=True, clobbers=words, kind="+"
    )


def pair_sums(b: IRBuilder, acc: Buffer, pair: int) -> tuple[Expr, Expr]:
    """Return the sums of two channels; the first one is too large by OFFSET."""
    low, high = acc[2 * pair], acc[2 * pair + 1]
    first = b.let("first", cast("int32", low & imm((1 << BITS) - 1, "uint32")))
    return first, b.let("second", cast("int32", (low >> imm(BITS, "uint32")) | (high << imm(32 - BITS, "uint32"))))


MAX_ROWS = 2
"""Pointwise convolutions of more pixels are left to conv2d."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """A layer with its requantisation, and the words of weights that the kernel reads."""

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
        """The header: a start value per channel and the requantisation parameters that vary."""
        bias = self.layer.bias - np.where(np.arange(self.layer.channels) % 2 == 0, OFFSET, 0)
        return [2 * bias, *(f.values for f in self.requant.params if not f.uniform)]

    @property
    def block_words(self) -> int:
        return 2 * self.taps + CHANNELS * len(self.arrays)

    def stream(self) -> Array:
        """Return the stream, int32: per block of four channels the words of all taps, then the header of each channel."""
        channels = -(-self.layer.channels // CHANNELS) * CHANNELS
        matrix = self.layer.weight.reshape(self.layer.channels, -1)
        matrix = np.pad(matrix, ((0, channels - len(matrix)), (0, self.taps - self.depth)))
        words = (matrix[0::2] + (matrix[1::2] << BITS)).reshape(-1, 2, self.taps).transpose(0, 2, 1)
        numbers = np.stack([np.pad(a, (0, channels - a.size)) for a in self.arrays], axis=1)
        blocks = channels // CHANNELS
        joined = np.concatenate([words.reshape(blocks, -1), numbers.reshape(blocks, -1)], axis=1)
        return joined.reshape(-1).astype(np.int32)


def _plan(group: Group, target: Target) -> _Plan | None:
    """Accept sums within a lane and the short requantisation; with DSP only nine-bit weights, as others have better kernels."""
    layer = match_layer(group, wide=True)
    if layer is None or not target.has("thumb2") or not supports_epilogue(layer) or not is_rows(layer):
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
    whole, remainder = divmod(layer.channels, CHANNELS)
    with b.for_("m", rows) as m:
        number = m if layer.out_type.dtype == "int8" else rows - 1 - m
        with b.for_("k", depth, step=step) as k:
            for u in range(step):
                b.store(words, k + u, cast("int32", io.data.load("int8", number * depth + k + u)))
        with b.for_("n", whole) as n:
            _block(b, plan, io, (params, words), n=n, m=number, count=CHANNELS)
        if remainder:
            _block(b, plan, io, (params, words), n=imm(whole), m=number, count=remainder)
    loop = tap_loop(plan.taps)
    func = b.finish(FuncAttrs(kernel=describe("arm_dsp.dense_chain", unroll=loop.unroll), span=layer.span, macs=layer.macs))
    each = STEP_INSTRUCTIONS * plan.taps // STEP + (2 * (plan.taps // loop.unroll) if loop.unroll else 0)
    each += CHANNELS * (10 + epilogue_each(layer)) + 18
    code = 80 + (180 + 40 * len(layer.epilogue) + 13 * (loop.unroll + loop.rest)) * (bool(whole) + bool(remainder))
    return Lowered(func, io.constants, instructions=rows * (3 * depth + -(-layer.channels // CHANNELS) * each + 20), code=code)


def _block(b: IRBuilder, plan: _Plan, io: LayerIo, place: tuple[Buffer, Buffer], *, n: Expr, m: Expr, count: int) -> None:
    """Compute block `n` of four channels for row `m` and store `count` of them."""
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
        requant_params = channel_params(plan.requant, (params[first + row] for row in range(1, numbers)))
        value = plan.requant.emit_scaled(b, params[first] + sums[j] * 2, requant_params)
        io.store((m * plan.layer.channels + n * CHANNELS + j,), value)


for _anchor in ("nn.dense", "nn.conv2d"):
    register_planned("arm_dsp.dense_chain", _anchor, _plan, _lower, plevel=31)
