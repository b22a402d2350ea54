"""Fully connected layers over one row with two bytes a weight, by four channels, see push/intrin.py.

Scratch: two bytes an input.  The weights are 256 times the model's, so that the sums requantise as those of dense_w8.
"""

from __future__ import annotations

from math import prod

from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, imm
from aot.tir.function import FuncAttrs
from aot.topi.arm_dsp.push.intrin import (
    ORDER,
    dot_instructions,
    dot_quads,
    dot_steps,
    scaled,
    start_values,
    unpack_quads,
)
from aot.topi.arm_dsp.w8.dense import ONE_BLOCK
from aot.topi.arm_dsp.w8.intrin import TAPS
from aot.topi.arm_dsp.w8.stream import QuadPlan, W8Stream, WordForm, arrange, best_requant, plan_w8
from aot.topi.arm_dsp.w8.window import is_rows, pack_unroll
from aot.topi.layer.fused import FusedLayer, describe, match_layer, tail_accepts, tail_instructions
from aot.topi.layer.io import LayerIo, open_io
from aot.topi.strategy import Group, Lowered, register_planned

CHANNELS = 4
PAIRS = WordForm(2, scaled, start_values)


@dataclass(frozen=True, slots=True)
class _Plan:
    layer: FusedLayer
    stream: W8Stream
    depth: int

    @property
    def quads(self) -> int:
        return -(-self.depth // TAPS)

    @property
    def blocks(self) -> list[int]:
        """Channels of each block."""
        return [self.stream.block] * self.stream.blocks + [self.stream.tail] * bool(self.stream.tail)


def plan(group: Group, target: Target) -> _Plan | None:
    """One row of at least four bytes, whose accumulators stay below 2^23 and requantise in the short form."""
    layer = match_layer(group)
    if layer is None or not target.has("dsp") or not tail_accepts(layer) or not is_rows(layer):
        return None
    depth = int(layer.weight[0].size)
    if prod(layer.out_type.shape[:-1]) != 1 or depth < TAPS or plan_w8(layer, target) is None:
        return None
    quads = -(-depth // TAPS)
    matrix = arrange(layer.weight.reshape(layer.channels, depth), 1, QuadPlan(quads, 1))
    ordered = matrix.reshape(layer.channels, quads, TAPS)[..., ORDER].reshape(layer.channels, -1)
    return _Plan(
        layer, W8Stream(ordered, layer.bias, best_requant(layer, target, common=False), block=CHANNELS, form=PAIRS), depth
    )


def lower(group: Group, _target: Target, name: str, found: _Plan) -> Lowered:
    layer, stream, depth = found.layer, found.stream, found.depth
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(depth,), out_shape=(layer.channels,))
    params = io.constant("params", stream.data(), "int32")
    words = b.scratch("words", (TAPS * found.quads,), "int16", align=4)
    whole = depth // TAPS
    b.block(unpack_quads(pack_unroll(whole)), io.data, words, imm(whole))
    if depth % TAPS:  # the last four bytes, some of them for the second time; see run_taps
        b.block(unpack_quads(1), region(io.data, depth - TAPS), region(words, TAPS * whole), imm(1))

    def block(n: Expr, count: int) -> None:
        start = stream.start(n)
        acc = b.local("acc", (count,), "int32")
        for j in range(count):
            b.store(acc, j, stream.bias(params, start, j))
        b.block(dot_quads(count, found.quads), words, stream.weights(params, start, count), acc)
        _finish(b, io, stream, [acc[j] for j in range(count)], (n, stream.fields(b, params, start, count=count)))

    with b.for_("n", stream.blocks) as n:
        block(n, stream.block)
    if stream.tail:
        block(imm(stream.blocks), stream.tail)
    steps = dot_steps(found.quads)
    kernel = describe("arm_dsp.dense_pairs", channels=stream.block, unroll=steps.words * steps.unroll)
    func = b.finish(FuncAttrs(kernel=kernel, span=layer.span, macs=layer.macs))
    return Lowered(func, io.constants, instructions=_instructions(found), code=_code(found))


def _finish(b: IRBuilder, io: LayerIo, stream: W8Stream, sums: list[Expr], place: tuple[Expr, object]) -> None:
    n, fields = place
    assert callable(fields)
    for j, value in enumerate(sums):
        io.store((n * stream.block + j,), stream.requant.emit_scaled(b, value, fields(j)))


def _instructions(found: _Plan) -> int:
    """From counts under QEMU."""
    stream = found.stream
    each = 4 - stream.shift_is_immediate + 1 + stream.fields_loaded + 2 * stream.requant.signed
    whole = found.depth // TAPS
    unpacking = 4 * whole + 2 * (whole // pack_unroll(whole)) + 20
    blocks = sum(dot_instructions(n, found.quads) + n * each + 8 for n in found.blocks) - ONE_BLOCK * (len(found.blocks) == 1)
    return unpacking + blocks + tail_instructions(found.layer)


def _code(found: _Plan) -> int:
    """Bytes."""
    steps = dot_steps(found.quads)
    sizes = {found.stream.block} | ({found.stream.tail} if found.stream.tail else set())
    return 90 + sum(4 * (steps.unroll * steps.words + steps.rest) * (2 + n) + 40 + 24 * n for n in sizes)


for _anchor in ("nn.dense", "nn.conv2d"):
    register_planned("arm_dsp.dense_pairs", _anchor, plan, lower, plevel=6, for_pushes=True)
