"""broadcast_to and tile: BROADCAST_TO and TILE of TFLite: the data repeated; the shape and the counts are constant.

Oracles: `reference_ops::BroadcastTo`, `kernels/tile.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.move import broadcast_index, tensors_of
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr


@dataclass(frozen=True, slots=True)
class BroadcastToAttrs:
    """The result's shape."""

    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TileAttrs:
    """How often the data come in each dimension."""

    reps: tuple[int, ...]


def infer_broadcast_to(types: Sequence[Type], attrs: BroadcastToAttrs) -> Type:
    """A tensor -> the same type in a shape that its own broadcasts to."""
    (data,) = tensors_of(types, 1)
    try:
        fits = np.broadcast_shapes(data.shape, attrs.shape) == attrs.shape
    except ValueError:
        fits = False
    if not fits:
        raise TypeRuleError(f"{data} does not broadcast to {list(attrs.shape)}")
    return TensorType(attrs.shape, data.dtype, data.quant)


def evaluate_broadcast_to(data: Array, *, attrs: BroadcastToAttrs, out_type: TensorType) -> Array:
    return np.ascontiguousarray(np.broadcast_to(data, attrs.shape))


def te_broadcast_to(_ctx: TeContext, args: Sequence[TensorFn], attrs: BroadcastToAttrs, out_type: TensorType) -> TensorFn:
    def rule(b: IRBuilder, *i: Expr) -> Expr:
        return args[0].at(b, broadcast_index(args[0], i))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


def infer_tile(types: Sequence[Type], attrs: TileAttrs) -> Type:
    """A tensor -> its extents times the counts."""
    (data,) = tensors_of(types, 1)
    if len(attrs.reps) != len(data.shape) or any(r < 0 for r in attrs.reps):
        raise TypeRuleError(f"tile of {data} by {attrs.reps}")
    return TensorType(tuple(n * r for n, r in zip(data.shape, attrs.reps, strict=True)), data.dtype, data.quant)


def evaluate_tile(data: Array, *, attrs: TileAttrs, out_type: TensorType) -> Array:
    return np.tile(data, attrs.reps)


def te_tile(_ctx: TeContext, args: Sequence[TensorFn], attrs: TileAttrs, out_type: TensorType) -> TensorFn:
    (data,) = args

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        return data.at(b, tuple(x if r == 1 else x % n for x, n, r in zip(i, data.shape, attrs.reps, strict=True)))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


# BROADCAST, not INJECTIVE: elements are read several times, so nothing that computes may be fused in front
register_op(
    "broadcast_to",
    1,
    arguments=[("data", "any", "the operand")],
    attrs_type=BroadcastToAttrs,
    pattern=OpPattern.BROADCAST,
    infer_type=infer_broadcast_to,
    evaluate=evaluate_broadcast_to,
    doc="BROADCAST_TO; constant shape",
)
register_op(
    "tile",
    1,
    arguments=[("data", "any", "the operand")],
    attrs_type=TileAttrs,
    pattern=OpPattern.BROADCAST,
    infer_type=infer_tile,
    evaluate=evaluate_tile,
    doc="TILE; constant multiples",
)
F_TE.set("broadcast_to", te_broadcast_to)
F_TE.set("tile", te_tile)
