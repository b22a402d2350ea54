"""SPACE_TO_DEPTH, DEPTH_TO_SPACE, SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND of TFLite: one transposition between two reshapes,
with a padding before or a slice after it; pure movement of data.

Oracles: `reference_ops::SpaceToDepth`, `DepthToSpace`, `SpaceToBatchND` (which pads with the zero point), `BatchToSpaceND`.
"""

from __future__ import annotations

from collections.abc import Sequence

from aot.frontend.view import OperatorView
from aot.ir.op import Array
from aot.ir.type import TensorType
from aot.op.common.check import require_dtype
from aot.op.common.move import MOVABLE, constant_ints, reshaped
from aot.op.convert import EVERY, ConvertContext, from_tflite, operand, unsupported
from aot.op.nn.pad import PadAttrs
from aot.op.tensor.strided_slice import slice_of
from aot.op.tensor.transpose import TransposeAttrs
from aot.relay.expr import Expr as RelayExpr
from aot.relay.expr import call, tensor_type


def _shuffled(
    ctx: ConvertContext, op: OperatorView, data: RelayExpr, *, split: Sequence[int], axes: Sequence[int], shape: Sequence[int]
) -> RelayExpr:
    """`data` seen as `split`, its dimensions permuted, seen as `shape`."""
    span = ctx.span(op)
    moved = call("transpose", [reshaped(data, split, span)], TransposeAttrs(tuple(axes)), span=span)
    return reshaped(moved, shape, span)


def _image(ctx: ConvertContext, op: OperatorView) -> tuple[TensorType, int]:
    """The operand's type, which has 4 dimensions, and the block size."""
    data, block = ctx.input_type(op, 0), int(op.option("block_size"))
    require_dtype(ctx, op, data, MOVABLE)
    if len(data.shape) != 4 or block < 1:
        unsupported(ctx, op, f"block size {block} does not suit {data}", code="E1129")
    return data, block


@from_tflite("SPACE_TO_DEPTH", EVERY, "transpose")
def convert_space_to_depth(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """[N, H*b, W*b, C] -> [N, H, W, b*b*C]."""
    data, b = _image(ctx, op)
    n, h, w, c = data.shape
    if h % b or w % b:
        unsupported(ctx, op, f"{h} x {w} does not divide into blocks of {b}", code="E1129")
    split, shape = (n, h // b, b, w // b, b, c), (n, h // b, w // b, b * b * c)
    return _shuffled(ctx, op, operand(ctx, op, 0), split=split, axes=(0, 1, 3, 2, 4, 5), shape=shape)


@from_tflite("DEPTH_TO_SPACE", EVERY, "transpose")
def convert_depth_to_space(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """[N, H, W, b*b*C] -> [N, H*b, W*b, C]."""
    data, b = _image(ctx, op)
    n, h, w, c = data.shape
    if c % (b * b):
        unsupported(ctx, op, f"{c} channels do not form blocks of {b}", code="E1129")
    split, shape = (n, h, w, b, b, c // (b * b)), (n, h * b, w * b, c // (b * b))
    return _shuffled(ctx, op, operand(ctx, op, 0), split=split, axes=(0, 1, 3, 2, 4, 5), shape=shape)


def _blocks(ctx: ConvertContext, op: OperatorView) -> tuple[TensorType, list[int], Array]:
    """The operand's type, the block of each spatial dimension and their (before, after) pairs."""
    data, blocks, pairs = ctx.input_type(op, 0), constant_ints(ctx, op, 1), ctx.constant(op, 2)
    require_dtype(ctx, op, data, MOVABLE)
    fits = len(data.shape) > len(blocks) and pairs.shape == (len(blocks), 2) and min(blocks, default=0) >= 1
    if not fits or (pairs < 0).any():
        unsupported(ctx, op, f"blocks {blocks} with {pairs.tolist()} of {data}", code="E1129")
    return data, blocks, pairs


@from_tflite("SPACE_TO_BATCH_ND", EVERY, "transpose")
def convert_space_to_batch(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """[N, S*b, C] -> [b*N, S, C] after a padding of S."""
    data, blocks, pairs = _blocks(ctx, op)
    x, rest = operand(ctx, op, 0), len(data.shape) - 1 - len(blocks)
    width = ((0, 0), *((int(a), int(b)) for a, b in pairs), *[(0, 0)] * rest)
    if any(map(any, width)):
        out = ctx.output_type(op)
        zero = out.quant.zero_point[0] if out.quant is not None else 0.0 if data.dtype == "float32" else 0
        x = call("nn.pad", [x], PadAttrs(width, zero), span=ctx.span(op))
    batch, *sizes = tensor_type(x).shape
    space, tail = sizes[: len(blocks)], sizes[len(blocks) :]
    if any(n % b for n, b in zip(space, blocks, strict=True)):
        unsupported(ctx, op, f"{space} does not divide into blocks of {blocks}", code="E1129")
    outer = [n // b for n, b in zip(space, blocks, strict=True)]
    split = [batch, *(k for pair in zip(outer, blocks, strict=True) for k in pair), *tail]
    inner_axes = [2 + 2 * i for i in range(len(blocks))]
    axes = [*inner_axes, 0, *(i - 1 for i in inner_axes), *range(1 + 2 * len(blocks), len(split))]
    count = batch
    for b in blocks:
        count *= b
    return _shuffled(ctx, op, x, split=split, axes=axes, shape=(count, *outer, *tail))


@from_tflite("BATCH_TO_SPACE_ND", EVERY, "transpose")
def convert_batch_to_space(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """[b*N, S, C] -> [N, S*b, C], of which the crops are cut off."""
    data, blocks, pairs = _blocks(ctx, op)
    count, *sizes = data.shape
    space, tail = sizes[: len(blocks)], sizes[len(blocks) :]
    batch = count
    for b in blocks:
        if batch % b:
            unsupported(ctx, op, f"a batch of {count} does not form blocks of {blocks}", code="E1129")
        batch //= b
    k = len(blocks)
    split = [*blocks, batch, *space, *tail]
    axes = [k, *(a for i in range(k) for a in (k + 1 + i, i)), *range(2 * k + 1, len(split))]
    grown = [n * b for n, b in zip(space, blocks, strict=True)]
    whole = _shuffled(ctx, op, operand(ctx, op, 0), split=split, axes=axes, shape=(batch, *grown, *tail))
    kept = [range(int(a), n - int(b)) for n, (a, b) in zip(grown, pairs, strict=True)]
    if any(r.stop < r.start for r in kept):
        unsupported(ctx, op, f"crops {pairs.tolist()} do not fit {grown}", code="E1127")
    return slice_of(ctx, op, whole, [range(batch), *kept, *map(range, tail)])
