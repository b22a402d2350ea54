"""Pointwise convolution of 5 to 8 input channels: blocks of two pixels x all channels.

The data of two pixels fit registers, so they are loaded and unpacked once; the weights and parameters of all output channels
stream past them.  This saves packing, which would dominate such short sums.

No scratch memory.  Flash: two bytes per weight (four taps per pair of words), pre-scaled so that all channels have the same
shift.
"""

from __future__ import annotations

from functools import cache
from math import prod

import numpy as np

from aot.ir.op import Array
from aot.support.dtype import int_range
from aot.target.target import Target
from aot.tir.buffer import UNKNOWN_EXTENT
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, cast, minimum
from aot.tir.intrin import BlockText, TensorIntrin
from aot.topi.intrin.asm_text import Operands, Repeat, asm, block_of
from aot.topi.intrin.scalar import SMMLA, saturate
from aot.topi.layer.fused import FusedLayer, lowered, match_for, open_io
from aot.topi.layer.im2col import is_rows
from aot.topi.layer.requant import HighMultiply, plan_high_multiply
from aot.topi.strategy import Group, Lowered, register_planned

PIXELS = 2
MAX_CHANNELS = 1024
"""STRB's offset to the second pixel has 12 bits."""


def plan(group: Group, target: Target) -> tuple[FusedLayer, HighMultiply] | None:
    """Accept rows of 5 to 8 bytes, at least two, no epilogue, the whole int8 range, the short requantisation without sign term.

    Accumulators of channel c are scaled by 2^p[c] with p[c] >= 2, so that all channels have the same shift; weights stay int16.
    """
    layer = match_for(group, target, "dsp", wide=True)
    if layer is None or layer.epilogue or not is_rows(layer):
        return None
    if prod(layer.out_type.shape[:-1]) < PIXELS or layer.weight[0].size not in DEPTHS or layer.channels > MAX_CHANNELS:
        return None
    right = -np.broadcast_to(np.asarray(layer.requant.shift, np.int64), (layer.channels,))
    prescale = int(right.max()) + 2 - right
    if (layer.requant.lo, layer.requant.hi) != int_range("int8") or int(prescale.max()) > 24:
        return None
    if int(np.abs(layer.weight.reshape(layer.channels, -1) << prescale.reshape(-1, 1)).max()) > int_range("int16")[1]:
        return None
    requant = plan_high_multiply(layer.requant, layer.acc_low, layer.acc_high, target=target, prescale=prescale)
    return None if requant is None or requant.signed or not requant.params[-1].uniform else (layer, requant)


def lower(group: Group, _target: Target, name: str, plan: tuple[FusedLayer, HighMultiply]) -> Lowered:
    """Lower to one block per pair of pixels, which computes all channels."""
    layer, requant = plan
    rows, depth, channels = prod(layer.out_type.shape[:-1]), int(layer.weight[0].size), layer.channels
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(rows * depth,), out_shape=(rows * channels,))
    params = io.constant("params", _stream(layer, requant), "int32")
    block = pixels_2(depth, channels, int(requant.params[-1].values[0]))
    with b.for_("t", -(-rows // PIXELS)) as t:
        # The last pair starts early enough to be complete; if the number of pixels is odd, one is computed twice.
        first = b.let("pixel", minimum(t * PIXELS, rows - PIXELS)) if rows % PIXELS else t * PIXELS
        b.block(block, region(io.data, first * depth), params, region(io.out, first * channels))
    unroll = channel_unroll(channels)
    each = 18 * channels + (3 * channels // unroll if unroll != channels else 0) + 26
    return lowered(io, layer, "arm_dsp.conv2d_smlad", -(-rows // PIXELS) * each, 100 + 72 * unroll, pixels=PIXELS)


def _stream(layer: FusedLayer, requant: HighMultiply) -> Array:
    scale = requant.prescale
    weights = layer.weight.reshape(layer.channels, -1) << scale.reshape(-1, 1)
    multiplier, constant, _ = (f.values for f in requant.params)
    return records(weights, layer.bias << scale, multiplier, constant)


register_planned("arm_dsp.conv2d_smlad", "nn.conv2d", plan, lower, plevel=25)


DEPTHS = range(5, 9)
"""Taps: two words of data, the second of which may overlap the first."""

RECORD = 7
"""Words per channel: weights 0, bias, weights 1 to 3, multiplier, constant."""

_ORDER = ((0, 2), (1, 3), (4, 6), (5, 7))
"""The data bytes (of two words) in the halves of the four weight words, in the order of SXTB16."""


def byte_taps(depth: int) -> list[int]:
    """Return the tap in each byte of the two data words; -1 for bytes of the second word that are in the first too."""
    return [0, 1, 2, 3, *(t if t >= 4 else -1 for t in range(depth - 4, depth))]


def records(weights: Array, bias: Array, multiplier: Array, constant: Array) -> Array:
    """Return int32[O * RECORD] from pre-scaled weights [O, K] and numbers [O]."""
    taps = byte_taps(weights.shape[1])
    placed = [np.where(t >= 0, weights[:, max(t, 0)], 0) for t in taps]
    words = [(placed[low] & 0xFFFF) | ((placed[high] & 0xFFFF) << 16) for low, high in _ORDER]
    columns = [words[0], bias, *words[1:], multiplier, constant]
    stream: Array = (np.stack(columns, axis=1).astype(np.int64) & 0xFFFFFFFF).astype(np.uint32).view(np.int32).reshape(-1)
    return stream


def channel_unroll(channels: int) -> int:
    return max(u for u in (4, 3, 2, 1) if channels % u == 0)


@cache
def pixels_2(depth: int, channels: int, shift: int) -> TensorIntrin:
    """out[p, c] = ssat8((hi32(acc * multiplier) + constant) >> shift), acc = bias + sum of weights * x[p], for two pixels.

    Operands: x int8[2 * depth] at any address; params int32[channels * RECORD] from `records`; out int8[2 * channels].  Per
    channel: 8 SMLAD, 5 loads and 6 instructions for the two results.
    """
    b = IRBuilder(f"pixels_2_k{depth}_c{channels}_s{shift}")
    x = b.input("x", (2 * depth,), "int8")
    params = b.input("params", (UNKNOWN_EXTENT,), "int32", align=4)
    out = b.output("out", (2 * channels,), "int8")
    bytes_ = [0, 1, 2, 3, *range(depth - 4, depth)]
    with b.for_("c", channels) as c, b.for_("p", 2, kind="unroll") as p:
        total: Expr = cast("uint32", params[c * RECORD + 1])
        for word, halves in enumerate(_ORDER):
            for half, byte in enumerate(halves):
                weight = params.load("int16", (c * RECORD + (word + bool(word))) * 2 + half)
                total = total + cast("uint32", cast("int32", weight) * cast("int32", x[p * depth + bytes_[byte]]))
        acc = b.let("acc", cast("int32", total))
        high = SMMLA(acc, params[c * RECORD + 5], params[c * RECORD + 6])
        b.store(out, p * channels + c, saturate("ssat", 8, shift)(high))
    return block_of(b, "arm_dsp", lambda ops: _emit(ops, depth, channels, shift))


def _emit(operands: Operands, depth: int, channels: int, shift: int) -> BlockText:
    """Emit pixels_2 in all 14 registers: a1 holds the data's address at first, the end of the loop is a word in memory."""
    load = [
        "ldr %[p0], [%[a1]]",
        f"ldr %[p2], [%[a1], #{depth - 4}]",
        f"ldr %[q0], [%[a1], #{depth}]",
        f"ldr %[q2], [%[a1], #{2 * depth - 4}]",
    ]
    for pixel in "pq":
        for word in (0, 2):
            load.append(f"sxtb16 %[{pixel}{word + 1}], %[{pixel}{word}], ror #8")
            load.append(f"sxtb16 %[{pixel}{word}], %[{pixel}{word}]")
    unroll = channel_unroll(channels)
    loop = unroll != channels
    end = ["ldr %[w0], %[end]", "cmp %[wp], %[w0]", "bne 1b"] if loop else []
    registers = [*(f"{v}{i}" for v in "pq" for i in range(4)), "a0", "w0", "w1"]
    text: list[str | Repeat] = [*load, *(["1:"] if loop else []), Repeat(unroll, _channel(channels, shift)), *end]
    last = {"wp:m": f"{4 * RECORD * channels}"} if loop else {}
    return asm(operands, text, "a1=x wp=params >out", end=last, temporaries=registers, temporaries_first=True, kind="+")


def _channel(channels: int, shift: int) -> list[str]:
    return [
        "ldrd %[w0], %[a0], [%[wp]], #8",
        "smlad %[a1], %[q0], %[w0], %[a0]",
        "smlad %[a0], %[p0], %[w0], %[a0]",
        "ldrd %[w0], %[w1], [%[wp]], #8",
        "smlad %[a0], %[p1], %[w0], %[a0]",
        "smlad %[a1], %[q1], %[w0], %[a1]",
        "smlad %[a0], %[p2], %[w1], %[a0]",
        "smlad %[a1], %[q2], %[w1], %[a1]",
        "ldr %[w0], [%[wp]], #4",
        "smlad %[a0], %[p3], %[w0], %[a0]",
        "smlad %[a1], %[q3], %[w0], %[a1]",
        "ldrd %[w0], %[w1], [%[wp]], #8",
        "smmla %[a0], %[a0], %[w0], %[w1]",
        "smmla %[a1], %[a1], %[w0], %[w1]",
        f"ssat %[a0], #8, %[a0], asr #{shift}",
        f"ssat %[a1], #8, %[a1], asr #{shift}",
        f"strb %[a1], [%[out], #{channels}]",
        "strb %[a0], [%[out]], #1",
    ]
