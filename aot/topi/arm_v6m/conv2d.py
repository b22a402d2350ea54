"""Convolution and pointwise convolution for Armv6-M: six output pixels by one channel, three pixels in two 32-bit sums.

Armv6-M multiplies 32 by 32 bits to 32 bits, one product per instruction.  Pixels that share words get six multiply-accumulates
out of four MULS and four ADD (the arithmetic is in aot/topi/layer/planes.py).  Six pixels are packed into words once, and used
for all channels.

Scratch memory: 16 bytes per tap; for small padded images also a padded copy.  Weights stay one byte each, channels are filled up
to a multiple of 16.
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
from aot.topi.arm_v6m.lanes import SIX, STRIDE, TAP, mul_lanes, tap_loop
from aot.topi.arm_v6m.requant import choose_requant, instructions
from aot.topi.layer.fused import FusedLayer, describe, epilogue_each, match_layer, open_io, supports_epilogue
from aot.topi.layer.im2col import TapSource, border_groups, first_pixel, is_rows
from aot.topi.layer.planes import BITS, LIMIT, WORDS, Numbers, Requant, three_sums
from aot.topi.strategy import Group, Lowered, register_planned

PIXELS = SIX.pixels


@dataclass(frozen=True, slots=True)
class _Plan:
    """`segments` runs of `length` taps, each short enough that its sums fit the lanes."""

    layer: FusedLayer
    requant: Requant
    segments: int
    length: int

    @property
    def taps(self) -> int:
        return self.segments * self.length

    @property
    def bias(self) -> Array:
        return self.layer.bias - self.requant.base

    @property
    def whole(self) -> bool:
        """Whether sums may start with the bias and still fit the lanes."""
        low, high = (a - self.requant.base for a in (self.layer.acc_low, self.layer.acc_high))
        return self.segments == 1 and bool((low >= -LIMIT).all()) and bool((high < LIMIT).all())


def _plan(group: Group, target: Target) -> _Plan | None:
    layer = match_layer(group)
    if layer is None or not target.has("v6m") or not supports_epilogue(layer) or prod(layer.out_type.shape[:-1]) < PIXELS:
        return None
    matrix = layer.weight.reshape(layer.channels, -1)
    segments, length = plan_segments(matrix)
    return _Plan(layer, choose_requant(layer.requant, layer.acc_low, layer.acc_high, target), segments, length)


def plan_segments(matrix: Array) -> tuple[int, int]:
    """The fewest segments of weights [O, K] with 128 * (sum of |w|) < LIMIT in each, and their length."""
    depth = matrix.shape[1]
    for count in range(1, depth + 1):
        length = -(-depth // count)
        padded = np.pad(np.abs(matrix), ((0, 0), (0, count * length - depth)))
        if 128 * int(padded.reshape(-1, count, length).sum(axis=2).max()) < LIMIT:
            return count, length
    raise AssertionError("one tap always fits")


def pack_weights(matrix: Array, taps: int) -> Array:
    """[O, K] as int8 [blocks of STRIDE channels][taps][STRIDE]."""
    padded = np.pad(matrix, ((0, -matrix.shape[0] % STRIDE), (0, taps - matrix.shape[1])))
    return np.ascontiguousarray(padded.reshape(-1, STRIDE, taps).transpose(0, 2, 1)).reshape(-1).astype(np.int8)


def _lower(group: Group, _target: Target, name: str, plan: _Plan) -> Lowered:
    layer = plan.layer
    rows = prod(layer.out_type.shape[:-1])
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(prod(layer.data_type.shape),), out_shape=(rows * layer.channels,))
    source = TapSource(b, layer, io, plan.taps, SIX)
    start = plan.bias * (1 + (1 << BITS)) if plan.whole else plan.bias
    numbers = Numbers(b, io, start, plan.requant)
    weights = io.constant("weights", pack_weights(layer.weight.reshape(layer.channels, -1), plan.taps), "int8")
    with b.for_("t", -(-rows // PIXELS)) as tile:
        first = first_pixel(b, layer, tile * PIXELS, last=imm(rows - PIXELS), even=rows % PIXELS == 0)
        source.pack(first)
        at = b.let("at", first * layer.channels)
        with b.for_("c", layer.channels) as c:
            w = b.let("w", (c >> 4) * (STRIDE * plan.taps) + (c & (STRIDE - 1)))
            sums = _sums(b, plan, source.words, weights, w=w, start=numbers.start(c))
            requant_params = numbers.requant_params(c)
            places = [(at + c + p * layer.channels,) for p in range(PIXELS)]
            for place, value in zip(places, sums, strict=True):
                io.store(place, plan.requant.emit(b, value, requant_params))
    kernel = describe("arm_v6m.conv2d", segments=plan.segments)
    func = b.finish(FuncAttrs(kernel=kernel, span=layer.span, macs=layer.macs))
    return Lowered(func, io.constants, instructions=_instructions(plan, rows), code=_code(plan))


def _sums(b: IRBuilder, plan: _Plan, words: Buffer, weights: Buffer, *, w: Expr, start: Expr) -> list[Expr]:
    """A channel's sum for each pixel, bias included."""
    loop = tap_loop(plan.length)

    def segment(init: Expr, skipped: Expr) -> list[Expr]:
        acc = b.local("acc", (WORDS,), "uint32", init=None)
        for i in range(WORDS):
            b.store(acc, i, init)
        x = region(words, skipped * WORDS)
        b.block(mul_lanes(loop), region(weights, w + skipped * STRIDE), x, acc, plan.length)
        return [*three_sums(b, acc, 0), *three_sums(b, acc, 2)]

    if plan.whole:
        return segment(b.let("start", cast("uint32", start)), imm(0))
    total = b.local("total", (PIXELS,), "int32", init=0)
    for p in range(PIXELS):
        b.store(total, p, start)
    if plan.segments == 1:
        return [total[p] + value for p, value in enumerate(segment(imm(0, "uint32"), imm(0)))]
    with b.for_("segment", plan.segments) as s:
        for p, value in enumerate(segment(imm(0, "uint32"), s * plan.length)):
            b.store(total, p, total[p] + value)
    return [total[p] for p in range(PIXELS)]


def _instructions(plan: _Plan, rows: int) -> int:
    """Instructions per call (from counts under QEMU)."""
    layer, loop = plan.layer, tap_loop(plan.length)
    tiles = -(-rows // PIXELS)
    block = TAP * plan.length + (2 * (plan.length // loop.unroll) if loop.unroll else 0) + 30
    each = plan.segments * block + PIXELS * (instructions(plan.requant) + epilogue_each(layer)) + 24
    pack = 26 * plan.taps + 40 + (0 if is_rows(layer) else 80 + 40 * layer.weight.shape[1])
    return tiles * (pack + layer.channels * each) + 50 * plan.taps * border_groups(layer, PIXELS)


def _code(plan: _Plan) -> int:
    """Bytes of code."""
    loop, layer = tap_loop(plan.length), plan.layer
    window = 0 if is_rows(layer) else 900 if any(layer.attrs.padding) else 300
    return 700 + 2 * TAP * (loop.unroll + loop.rest) + window + 400 * len(layer.epilogue)


register_planned("arm_v6m.conv2d", "nn.conv2d", _plan, _lower, plevel=20)
