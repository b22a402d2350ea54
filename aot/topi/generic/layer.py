"""What the generic kernels of convolutions and fully connected layers share: channel blocks, accumulators, epilogue."""

from __future__ import annotations

from collections.abc import Callable

from aot.op.te_rule import TeContext
from aot.relay.expr import tensor_type
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm
from aot.tir.function import FuncAttrs
from aot.topi.layer.fused import EVERY_KIND, FusedLayer, match_layer, tail_accepts, tail_instructions
from aot.topi.layer.io import open_io
from aot.topi.layer.requant import plan_requantize
from aot.topi.layer.stream import ChannelBlock, ChannelStream, WeightFormat
from aot.topi.strategy import Group, Lowered


def accepts_layer(group: Group, _target: Target) -> bool:
    """Any layer with any tail that can be read at the output's index."""
    layer = match_layer(group, EVERY_KIND)
    return layer is not None and tail_accepts(layer)


@dataclass(frozen=True, slots=True)
class LayerBuffers:
    """The parameters of a layer's PrimFunc and how its results are finished and stored."""

    data: Buffer
    out: Buffer
    params: Buffer
    ctx: TeContext
    store: Callable[[tuple[Expr, ...], Expr, tuple[Expr, ...]], None]
    """(output indices, accumulator, requantisation fields): requantise, run the tail, store."""


def open_layer(
    b: IRBuilder,
    group: Group,
    layer: FusedLayer,
    stream: ChannelStream,
    *,
    data_shape: tuple[int, ...],
    out_shape: tuple[int, ...],
) -> LayerBuffers:
    """Declare the buffers of a layer that reads its numbers from `stream`."""
    io = open_io(b, group, layer, data_shape=data_shape, out_shape=out_shape)
    params = io.constant("params", stream.data(), "int8")

    def store(indices: tuple[Expr, ...], acc: Expr, fields: tuple[Expr, ...]) -> None:
        io.store(indices, stream.requant.emit(b, acc, fields))

    return LayerBuffers(io.data, io.out, params, io.ctx, store)


def make_stream(layer: FusedLayer, target: Target, *, block: int) -> ChannelStream:
    """The stream of a layer whose weights are given as [O, ...] or, for depthwise, [KH, KW, O]."""
    requant = plan_requantize(layer.requant, layer.acc_low, layer.acc_high, target)
    weights = layer.weight
    depthwise = weights.shape[-1] == layer.channels and layer.anchor.op.name == "nn.depthwise_conv2d"  # type: ignore[union-attr]
    matrix = weights.reshape(-1, layer.channels) if depthwise else weights.reshape(layer.channels, -1).T
    zp = layer.anchor.attrs.weight_zp
    stored = WeightFormat(layer.weight_dtype, 0 if matrix.min() >= -128 and matrix.max() <= 127 else zp)
    return ChannelStream(matrix, layer.bias, requant, block=block, stored=stored)


def accumulators(b: IRBuilder, layer: FusedLayer, shape: tuple[int, ...]) -> Buffer:
    """Registers for sums; 64 bits wide only where a sum can leave 32."""
    return b.local("acc", shape, tensor_type(layer.anchor).dtype)


def product(acc: Buffer, x: Expr, w: Expr) -> Expr:
    """x*w in the type of the accumulators."""
    return cast(acc.dtype, x) * cast(acc.dtype, w)


def channel_blocks(b: IRBuilder, stream: ChannelStream, body: Callable[[ChannelBlock], None]) -> None:
    """Run `body` for each block: one loop over the full blocks, then the smaller last one."""
    size = stream.block_bytes(stream.block)
    if stream.full_blocks == 1:
        body(ChannelBlock(imm(0), stream.block, imm(0)))
    else:
        with b.for_("n", stream.full_blocks) as n:
            body(ChannelBlock(n * stream.block, stream.block, n * size))
    if stream.tail:
        body(ChannelBlock(imm(stream.full_blocks * stream.block), stream.tail, imm(stream.full_blocks * size)))


NOT_INT8 = 0.75
"""Instructions that halfwords of data or packed weights cost more for each multiply-accumulate."""

REQUANTISE_V6M = 55
"""For each result on cores with eight low registers (Armv6-M), its store included, with software for 64-bit products."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Instructions without the tail: of all multiply-accumulates and results on larger cores; of each multiply-accumulate on
    Armv6-M.
    """

    thumb2: float
    v6m: float

    def on(self, target: Target, layer: FusedLayer) -> int:
        """Of the layer."""
        more = NOT_INT8 * (layer.data_type.dtype != "int8" or layer.weight_dtype != "int8")
        if target.has("v6m"):
            return int((self.v6m + more) * layer.macs + REQUANTISE_V6M * layer.out_type.size) + tail_instructions(layer)
        return int(self.thumb2 + more * layer.macs) + tail_instructions(layer)


def block_sizes(stream: ChannelStream) -> list[int]:
    """Channels of each block."""
    return [stream.block] * stream.full_blocks + [stream.tail] * bool(stream.tail)


def finish(
    b: IRBuilder, buffers: LayerBuffers, layer: FusedLayer, target: Target, *, kernel: str, cost: Cost, code: int
) -> Lowered:
    """The kernel that the builder holds, with its constants."""
    func = b.finish(FuncAttrs(kernel=kernel, span=layer.span, macs=layer.macs))
    return Lowered(func, dict(buffers.ctx.constants), cost.on(target, layer), code)


def unroll_factor(depth: int, *, limit: int = 4) -> int:
    """The largest power of two up to `limit` that divides `depth`."""
    factor = limit
    while depth % factor:
        factor //= 2
    return factor
