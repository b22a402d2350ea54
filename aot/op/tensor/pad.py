"""Operators that pad, fill, repeat and reverse."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import F_DOMAIN, Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.numerics.fixed_point import named
from aot.op.common.te_rule import F_TE, TeContext
from aot.op.common.tensors import broadcast_index, tensors_of
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, clamp, imm, logical_and, select

# nn.pad: PAD and PADV2 of TFLite with constant amounts; only moves data.
#
# Oracle: `reference_ops::Pad`: PAD fills with the zero point of the output (0 if it has none), PADV2 with its third operand.


@dataclass(frozen=True, slots=True)
class PadAttrs:
    """(before, after) per dimension; `pad_value` in the data's own type."""

    pad_width: tuple[tuple[int, int], ...]
    pad_value: int | float = 0


def infer_pad(types: Sequence[Type], attrs: PadAttrs) -> Type:
    """A tensor -> the same type, each extent grown by its pair."""
    (data,) = types
    if not isinstance(data, TensorType) or len(data.shape) != len(attrs.pad_width):
        raise TypeRuleError(f"pad by {attrs.pad_width} of {data} is not valid")
    if any(before < 0 or after < 0 for before, after in attrs.pad_width):
        raise TypeRuleError(f"negative padding {attrs.pad_width}")
    shape = tuple(n + before + after for n, (before, after) in zip(data.shape, attrs.pad_width, strict=True))
    return TensorType(shape, data.dtype, data.quant)


def evaluate_pad(data: Array, *, attrs: PadAttrs, out_type: TensorType) -> Array:
    return np.pad(data, attrs.pad_width, constant_values=attrs.pad_value)


def te_pad(_ctx: TeContext, args: Sequence[TensorFn], attrs: PadAttrs, out_type: TensorType) -> TensorFn:
    (data,) = args

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        source, conditions = [], []
        for index, (before, after), extent in zip(i, attrs.pad_width, data.shape, strict=True):
            source.append(index - before)
            if before:
                conditions.append(index >= before)
            if after:
                conditions.append(index < before + extent)
        if not conditions:
            return data.at(b, i)
        condition = conditions[0]
        for other in conditions[1:]:
            condition = logical_and(condition, other)
        # a branch instead of a select: what `data.at` appends must not run outside the image
        value = b.local("value", (1,), out_type.dtype, init=attrs.pad_value)
        with b.if_(condition):
            b.store(value, 0, data.at(b, tuple(source)))
        return value[0]

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "nn.pad",
    1,
    arguments=[("data", "any", "the operand")],
    attrs_type=PadAttrs,
    pattern=OpPattern.INJECTIVE,
    infer_type=infer_pad,
    evaluate=evaluate_pad,
    doc="PAD, PADV2; constant amounts",
)
F_TE.set("nn.pad", te_pad)


# mirror_pad: MIRROR_PAD of TFLite with constant amounts; only moves data.
#
# The data are mirrored before and after themselves, with (SYMMETRIC) or without (REFLECT) their edge.
# Oracle: `kernels/mirror_pad.cc`.


@dataclass(frozen=True, slots=True)
class MirrorPadAttrs:
    """(before, after) per dimension; whether the edge is repeated."""

    pad_width: tuple[tuple[int, int], ...]
    symmetric: bool

    @property
    def skipped(self) -> int:
        """Elements at the edge that are not repeated."""
        return 0 if self.symmetric else 1


def infer_mirror_pad(types: Sequence[Type], attrs: MirrorPadAttrs) -> Type:
    """A tensor -> the same type, each extent grown by its pair, which must not exceed the elements that can be mirrored."""
    (data,) = tensors_of(types, 1)
    if len(data.shape) != len(attrs.pad_width):
        raise TypeRuleError(f"mirror_pad by {attrs.pad_width} of {data} is not valid")
    for n, pair in zip(data.shape, attrs.pad_width, strict=True):
        if min(pair) < 0 or max(pair) > n - attrs.skipped:
            raise TypeRuleError(f"mirror_pad by {pair} of {n} elements is not valid")
    return TensorType(tuple(n + sum(pair) for n, pair in zip(data.shape, attrs.pad_width, strict=True)), data.dtype, data.quant)


def evaluate_mirror_pad(data: Array, *, attrs: MirrorPadAttrs, out_type: TensorType) -> Array:
    return np.pad(data, attrs.pad_width, mode="symmetric" if attrs.symmetric else "reflect")


def te_mirror_pad(_ctx: TeContext, args: Sequence[TensorFn], attrs: MirrorPadAttrs, out_type: TensorType) -> TensorFn:
    (data,) = args

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        source = []
        for index, (before, after), n in zip(i, attrs.pad_width, data.shape, strict=True):
            position = index - before
            if before:
                position = select(index < before, imm(before - 1 + attrs.skipped) - index, position)
            if after:
                last = imm(before + 2 * n - 1 - attrs.skipped) - index
                position = select(index < before + n, position, last)
            source.append(named(b, "source", position))
        return data.at(b, tuple(source))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "mirror_pad",
    1,
    arguments=[("data", "any", "the operand")],
    attrs_type=MirrorPadAttrs,
    pattern=OpPattern.INJECTIVE,
    infer_type=infer_mirror_pad,
    evaluate=evaluate_mirror_pad,
    doc="MIRROR_PAD; constant amounts",
)
F_TE.set("mirror_pad", te_mirror_pad)


# full: FILL of TFLite: one value everywhere.  The shape must be constant, the value need not be.
#
# Oracle: `reference_ops::Fill`.


@dataclass(frozen=True, slots=True)
class FullAttrs:
    """The result's shape."""

    shape: tuple[int, ...]


def infer_full(types: Sequence[Type], attrs: FullAttrs) -> Type:
    """One element -> that type in `shape`."""
    (value,) = tensors_of(types, 1)
    if value.shape != (1,) or any(n < 0 for n in attrs.shape):
        raise TypeRuleError(f"full of {value} in {list(attrs.shape)} is not valid")
    return TensorType(attrs.shape, value.dtype, value.quant)


def evaluate_full(value: Array, *, attrs: FullAttrs, out_type: TensorType) -> Array:
    return np.full(attrs.shape, value[0])


def te_full(_ctx: TeContext, args: Sequence[TensorFn], attrs: FullAttrs, out_type: TensorType) -> TensorFn:
    def rule(b: IRBuilder, *_: Expr) -> Expr:
        return args[0].at(b, (imm(0),))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "full",
    1,
    arguments=[("value", "any, one element", "what every element becomes")],
    attrs_type=FullAttrs,
    pattern=OpPattern.BROADCAST,
    infer_type=infer_full,
    evaluate=evaluate_full,
    doc="FILL, ZEROS_LIKE; constant shape",
)
F_TE.set("full", te_full)


# broadcast_to and tile: BROADCAST_TO and TILE of TFLite: the data repeated; the shape and the counts are constant.
#
# Oracles: `reference_ops::BroadcastTo`, `kernels/tile.cc`.


@dataclass(frozen=True, slots=True)
class BroadcastToAttrs:
    """The result's shape."""

    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TileAttrs:
    """The number of repetitions per dimension."""

    reps: tuple[int, ...]


def infer_broadcast_to(types: Sequence[Type], attrs: BroadcastToAttrs) -> Type:
    """A tensor -> the same type in a shape to which its own broadcasts."""
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
        raise TypeRuleError(f"tile of {data} by {attrs.reps} is not valid")
    return TensorType(tuple(n * r for n, r in zip(data.shape, attrs.reps, strict=True)), data.dtype, data.quant)


def evaluate_tile(data: Array, *, attrs: TileAttrs, out_type: TensorType) -> Array:
    return np.tile(data, attrs.reps)


def te_tile(_ctx: TeContext, args: Sequence[TensorFn], attrs: TileAttrs, out_type: TensorType) -> TensorFn:
    (data,) = args

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        return data.at(b, tuple(x if r == 1 else x % n for x, n, r in zip(i, data.shape, attrs.reps, strict=True)))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


# BROADCAST, not INJECTIVE: elements are read several times, so producers must not be fused into it
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


# reverse and reverse_sequence: REVERSE_V2 and REVERSE_SEQUENCE of TFLite; only move data.
#
# reverse reverses whole dimensions; reverse_sequence reverses the first lengths[n] elements of one dimension, n being the
# index in another.  Lengths beyond the dimension count as its extent, negative ones as 0, so that no data can make the device
# access anything else.  (The reference checks only the first length; it writes outside its tensor if another one is too
# large.)  Oracles: `reference_ops::Reverse`, `ReverseSequence`.


@dataclass(frozen=True, slots=True)
class ReverseAttrs:
    """The dimensions to reverse."""

    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReverseSequenceAttrs:
    """The dimension to reverse, and the one whose index selects the length."""

    seq_axis: int
    batch_axis: int


def infer_reverse(types: Sequence[Type], attrs: ReverseAttrs) -> Type:
    """A tensor -> the same type."""
    (data,) = tensors_of(types, 1)
    if any(not 0 <= a < len(data.shape) for a in attrs.axes):
        raise TypeRuleError(f"reverse of axes {attrs.axes} of {data} is not valid")
    return data


def evaluate_reverse(data: Array, *, attrs: ReverseAttrs, out_type: TensorType) -> Array:
    return np.ascontiguousarray(np.flip(data, attrs.axes))


def te_reverse(_ctx: TeContext, args: Sequence[TensorFn], attrs: ReverseAttrs, out_type: TensorType) -> TensorFn:
    def rule(b: IRBuilder, *i: Expr) -> Expr:
        sizes = zip(i, out_type.shape, strict=True)
        return args[0].at(b, tuple(imm(n - 1) - x if k in attrs.axes else x for k, (x, n) in enumerate(sizes)))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


def infer_reverse_sequence(types: Sequence[Type], attrs: ReverseSequenceAttrs) -> Type:
    """A tensor and int32 or int64 lengths [extent of batch_axis] -> the tensor's type."""
    data, lengths = tensors_of(types, 2)
    rank = len(data.shape)
    fits = 0 <= attrs.seq_axis < rank and 0 <= attrs.batch_axis < rank and attrs.seq_axis != attrs.batch_axis
    if not fits or lengths.shape != (data.shape[attrs.batch_axis],) or lengths.dtype not in ("int32", "int64"):
        raise TypeRuleError(f"reverse_sequence of {data} by {lengths} along {attrs} is not valid")
    return data


def evaluate_reverse_sequence(data: Array, lengths: Array, *, attrs: ReverseSequenceAttrs, out_type: TensorType) -> Array:
    out = data.copy()
    moved_in, moved_out = (np.moveaxis(a, (attrs.batch_axis, attrs.seq_axis), (0, 1)) for a in (data, out))
    for n, length in enumerate(np.clip(lengths, 0, data.shape[attrs.seq_axis])):
        moved_out[n, :length] = moved_in[n, :length][::-1]
    return out


def te_reverse_sequence(_ctx: TeContext, args: Sequence[TensorFn], attrs: ReverseSequenceAttrs, out_type: TensorType) -> TensorFn:
    data, lengths = args
    axis = attrs.seq_axis

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        length = b.let("length", cast("int32", clamp(lengths.at(b, (i[attrs.batch_axis],)), 0, data.shape[axis])))
        source = b.let("source", select(i[axis] < length, length - 1 - i[axis], i[axis]))
        return data.at(b, (*i[:axis], source, *i[axis + 1 :]))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "reverse",
    1,
    arguments=[("data", "any", "the operand")],
    attrs_type=ReverseAttrs,
    pattern=OpPattern.INJECTIVE,
    infer_type=infer_reverse,
    evaluate=evaluate_reverse,
    doc="REVERSE_V2; constant axes",
)
register_op(
    "reverse_sequence",
    2,
    arguments=[("data", "any", "the sequences"), ("lengths", "int32, int64 [batch]", "how much of each is reversed")],
    attrs_type=ReverseSequenceAttrs,
    pattern=OpPattern.INJECTIVE,
    infer_type=infer_reverse_sequence,
    evaluate=evaluate_reverse_sequence,
    doc="REVERSE_SEQUENCE; lengths at run time",
)
F_TE.set("reverse", te_reverse)
F_TE.set("reverse_sequence", te_reverse_sequence)


def domain_reverse_sequence(types: Sequence[Type], attrs: ReverseSequenceAttrs) -> dict[int, tuple[float, float]]:
    """Lengths are between 0 and the dimension's extent."""
    data, _ = tensors_of(types, 2)
    return {1: (0, data.shape[attrs.seq_axis])}


F_DOMAIN.set("reverse_sequence", domain_reverse_sequence)
