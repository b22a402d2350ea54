"""Convolution to one or two channels, such as the map of an attention or of a mask: four windows at a time, taps in pairs.

The other kernels take four channels at a time, of which such a layer has none or half.  The rows that a window covers are kept as
16-bit numbers less the padding value, zeros around them, in a ring of scratch memory; each row is widened once.
Weights take two bytes each in flash.
"""

from __future__ import annotations

import numpy as np

from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, imm, minimum
from aot.tir.function import FuncAttrs
from aot.topi.arm_dsp.few.intrin import MOST_STEP, PIXELS, Run, code_bytes, dot_4, instructions
from aot.topi.arm_dsp.few.ring import Ring
from aot.topi.arm_dsp.w8.window import is_rows
from aot.topi.generic.layers import remove_padding_value
from aot.topi.layer.fused import FusedLayer, describe, match_layer, tail_accepts, tail_instructions
from aot.topi.layer.io import LayerIo, open_io
from aot.topi.layer.requant import Requant, plan_requantize
from aot.topi.strategy import Group, Lowered, register_planned

MOST_CHANNELS = 2


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """The layer, its requantisation, a row of its window, and the rows that windows are taken from."""

    layer: FusedLayer
    requant: Requant
    run: Run
    ring: Ring


def plan(group: Group, target: Target) -> Plan | None:
    """Layers whose windows have no gaps between columns, and whose rows are not too long."""
    matched = match_layer(group, wide=True) if target.has("dsp") else None
    if matched is None or matched.channels > MOST_CHANNELS or matched.weight.ndim != 4 or not tail_accepts(matched):
        return None
    if is_rows(matched):  # rows of one tap are a matter of dense_w8_direct
        return None
    layer, zp = remove_padding_value(matched)
    _, _, kw, depth = layer.weight.shape
    (_, step), dilation = layer.attrs.strides, layer.attrs.dilation
    if (dilation[1] > 1 and kw > 1) or step * depth > MOST_STEP:
        return None
    ring = Ring.of(layer, zp)
    requant = plan_requantize(layer.requant, layer.acc_low, layer.acc_high, target)
    return Plan(layer, requant, Run((kw * depth + 1) // 2, step * depth), ring) if ring else None


def lower(group: Group, _target: Target, name: str, found: Plan) -> Lowered:
    layer, run, ring = found.layer, found.run, found.ring
    count, height, width, channels = layer.out_type.shape
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(layer.data_type.size,), out_shape=layer.out_type.shape)
    weights = io.constant("weights", _stream(layer, run), "int16")
    rows = ring.open(b)
    with b.for_("i", count) as i, b.for_("y", height) as y:
        ring.fill(b, io.data, rows, image=i, y=y)
        first = b.let("first", y * layer.attrs.strides[0] % ring.span)
        with b.for_("t", -(-width // PIXELS)) as t:
            x = t * PIXELS if width % PIXELS == 0 or width < PIXELS else b.let("x", minimum(t * PIXELS, width - PIXELS))
            for c in range(channels):
                _tile(b, found, io, (weights, rows), first=first, place=(i, y, x), channel=c)
    func = b.finish(FuncAttrs(kernel=describe("arm_dsp.conv2d_few", pixels=PIXELS), span=layer.span, macs=layer.macs))
    tiles = count * height * -(-width // PIXELS)
    total = tiles * _tile_instructions(found) + count * ring.fill_instructions() + tail_instructions(layer)
    total += ring.open_instructions()
    return Lowered(func, io.constants, instructions=total, code=360 + channels * (code_bytes(run) + 140))


def _stream(layer: FusedLayer, run: Run) -> np.ndarray[tuple[int, ...], np.dtype[np.int16]]:
    """int16 [channels, rows of the window, taps of a row, an even number]."""
    channels, kh, kw, depth = layer.weight.shape
    lines = layer.weight.reshape(channels, kh, kw * depth)
    return np.pad(lines, ((0, 0), (0, 0), (0, 2 * run.pairs - kw * depth))).astype(np.int16).reshape(-1)


def _tile_instructions(found: Plan) -> int:
    """Of `_tile` for all channels."""
    layer, width = found.layer, int(found.layer.out_type.shape[2])
    kh = int(layer.weight.shape[1])
    row = 0 if kh == 1 else 9 if width <= PIXELS else 14
    return layer.channels * (kh * (instructions(found.run) + row) + 7 * min(PIXELS, width) + 4)


def _tile(
    b: IRBuilder,
    found: Plan,
    io: LayerIo,
    buffers: tuple[Buffer, Buffer],
    *,
    first: Expr,
    place: tuple[Expr, Expr, Expr],
    channel: int,
) -> None:
    """Four windows (fewer are stored of narrow images) for one channel; `first`: where the window's first row is in the ring."""
    layer, run = found.layer, found.run
    (weights, rows), (image, y, x) = buffers, place
    kh, down = layer.weight.shape[1], layer.attrs.dilation[0]
    acc = b.local("acc", (PIXELS,), "int32", init=imm(int(layer.bias[channel])))
    with b.for_("ky", kh) as ky:
        row = b.let("row", first + ky * down)
        at = found.ring.row(row) + x * run.step
        w = region(weights, (channel * kh + ky) * (2 * run.pairs))
        b.block(dot_4(run), region(rows, at), w, acc)
    fields = tuple(imm(int(f.values[channel])) for f in found.requant.fields)
    count = min(PIXELS, layer.out_type.shape[2])
    places = [(image, y, x + p, imm(channel)) for p in range(count)]
    io.store_all(places, (found.requant.emit(b, acc[p], fields) for p in range(count)))


register_planned("arm_dsp.conv2d_few", "nn.conv2d", plan, lower, plevel=19)
