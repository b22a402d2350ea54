"""Operators that arrange elements: reshape, transpose, concatenate, slices, padding, repetition, reversal."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError
from aot.ir.type import TensorType, Type
from aot.numerics.fixed_point import named
from aot.op.common.operator import Index, operator
from aot.op.common.tensors import broadcast_index
from aot.te.tensor import TensorFn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, clamp, imm, logical_and, select


# reshape: RESHAPE, EXPAND_DIMS and SQUEEZE of TFLite: other dimensions over the same bytes, at no cost at run time.
#
# Oracle: TFLite copies the bytes.
@operator(
    "reshape",
    "RESHAPE, EXPAND_DIMS, SQUEEZE; no instruction at run time",
    [("data", "any", "the operand")],
    OpPattern.INJECTIVE,
    is_view=True,
)
class ReshapeAttrs:
    """The new dimensions, all known."""

    newshape: tuple[int, ...]

    def infer_type(self, data: TensorType) -> Type:
        """A tensor -> the same elements in `newshape`."""
        if prod(self.newshape) != data.size or any(n < 0 for n in self.newshape):
            raise TypeRuleError(f"reshape of {data} to {list(self.newshape)} is not valid")
        return TensorType(self.newshape, data.dtype, data.quant)

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        return data.reshape(self.newshape)

    def element(self, b: IRBuilder, i: Index, data: TensorFn, *, out_type: TensorType) -> Expr:
        flat: Expr = imm(0)
        for extent, index in zip(out_type.shape, i, strict=True):
            flat = flat * extent + index
        source: list[Expr] = []
        for extent in reversed(data.shape[1:]):
            source.append(flat % extent)
            flat = flat / extent
        return data.at(b, tuple(reversed([*source, flat])) if data.shape else ())


# transpose: TRANSPOSE of TFLite with a constant permutation; only moves data.
#
# Oracle: `reference_ops::Transpose`: dimension i of the result is dimension axes[i] of the data.
@operator("transpose", "TRANSPOSE; constant permutation", [("data", "any", "the operand")], OpPattern.INJECTIVE)
class TransposeAttrs:
    """A permutation of the dimensions."""

    axes: tuple[int, ...]

    def infer_type(self, data: TensorType) -> Type:
        """A tensor -> the same elements with permuted dimensions."""
        if sorted(self.axes) != list(range(len(data.shape))):
            raise TypeRuleError(f"transpose of {data} by {self.axes} is not valid")
        return TensorType(tuple(data.shape[a] for a in self.axes), data.dtype, data.quant)

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        return np.ascontiguousarray(np.transpose(data, self.axes))

    def element(self, b: IRBuilder, i: Index, data: TensorFn, *, out_type: TensorType) -> Expr:
        return data.at(b, tuple(i[self.axes.index(axis)] for axis in range(len(data.shape))))


# concatenate: CONCATENATION of TFLite along one axis; only moves data.
#
# Oracle: `reference_ops::Concatenation`; TFLite requires
# the same quantisation for all int8 operands and the result.  Legacy uint8 operands with another quantisation go through a table
# with the results of `ConcatenationWithScaling`.
@operator(
    "concatenate",
    "CONCATENATION",
    [("*tensors", "any", "the parts, of one type but for the extent of the axis")],
    OpPattern.INJECTIVE,
)
class ConcatenateAttrs:
    """The axis, not negative."""

    axis: int

    def infer_type(self, first: TensorType, *others: TensorType) -> Type:
        """Tensors that differ only in the extent of `axis` -> their extents added."""
        if not 0 <= self.axis < len(first.shape):
            raise TypeRuleError(f"concatenate of {first} along axis {self.axis} is not valid")
        for t in others:
            if t.dtype != first.dtype or len(t.shape) != len(first.shape):
                raise TypeRuleError(f"concatenate of {first} and {t} is not valid")
            if any(a != b for i, (a, b) in enumerate(zip(t.shape, first.shape, strict=True)) if i != self.axis):
                raise TypeRuleError(f"concatenate of {first} and {t} along axis {self.axis} is not valid")
        total = sum(t.shape[self.axis] for t in (first, *others))
        shape = (*first.shape[: self.axis], total, *first.shape[self.axis + 1 :])
        return TensorType(shape, first.dtype, first.quant)

    def evaluate(self, *tensors: Array, out_type: TensorType) -> Array:
        return np.concatenate(tensors, axis=self.axis)

    def element(self, b: IRBuilder, i: Index, *args: TensorFn, out_type: TensorType) -> Expr:
        axis = self.axis
        # branches instead of selects: what `at` appends must not run outside its tensor
        value = b.local("value", (1,), out_type.dtype)

        def choose(tensors: Sequence[TensorFn], begin: int) -> None:
            first, others = tensors[0], tensors[1:]
            index = (*i[:axis], i[axis] - begin, *i[axis + 1 :])
            if not others:
                b.store(value, 0, first.at(b, index))
                return
            end = begin + first.shape[axis]
            with b.if_(i[axis] < end):
                b.store(value, 0, first.at(b, index))
            with b.else_():
                choose(others, end)

        choose([t for t in args if t.shape[axis]], 0)
        return value[0]


# strided_slice: STRIDED_SLICE, SLICE, SPLIT, SPLIT_V and UNPACK of TFLite; only moves data.
#
# Element i of the result is element begin + i * stride of the data, in each dimension.  An operator with several results becomes
# one strided_slice each; dimensions that appear or vanish (masks, UNPACK) are a reshape, which costs nothing.
# Oracles: `reference_ops::StridedSlice`, `Slice`, `Split`, `Unpack`; begin, end, size and strides must be constant, except for
# a STRIDED_SLICE that picks one position of leading dimensions (`x[t]`, `x[t, 0]`): that is a gather_nd.
@operator(
    "strided_slice",
    "STRIDED_SLICE (all masks), SLICE, SPLIT, SPLIT_V, UNPACK; constant positions",
    [("data", "any", "the operand")],
    OpPattern.INJECTIVE,
)
class StridedSliceAttrs:
    """First position, step (not 0) and extent in each dimension."""

    begin: tuple[int, ...]
    strides: tuple[int, ...]
    extents: tuple[int, ...]

    @property
    def ranges(self) -> list[range]:
        """The selected positions per dimension."""
        return [range(b, b + s * n, s) for b, s, n in zip(self.begin, self.strides, self.extents, strict=True)]

    def infer_type(self, data: TensorType) -> Type:
        """A tensor -> the same type with the slice's extents."""
        if not len(data.shape) == len(self.begin) == len(self.strides) == len(self.extents) or 0 in self.strides:
            raise TypeRuleError(f"strided_slice of {data} by {self} is not valid")
        for positions, size in zip(self.ranges, data.shape, strict=True):
            if len(positions) and not (0 <= positions[0] < size and 0 <= positions[-1] < size):
                raise TypeRuleError(f"strided_slice of {data} reads {positions}")
        return TensorType(self.extents, data.dtype, data.quant)

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        slices = tuple(slice(r.start, r.stop if r.stop >= 0 else None, r.step) for r in self.ranges)
        return np.ascontiguousarray(data[slices]).reshape(out_type.shape)

    def element(self, b: IRBuilder, i: Index, data: TensorFn, *, out_type: TensorType) -> Expr:
        return data.at(b, tuple(x * s + o for x, s, o in zip(i, self.strides, self.begin, strict=True)))


# nn.pad: PAD and PADV2 of TFLite with constant amounts; only moves data.
#
# Oracle: `reference_ops::Pad`: PAD fills with the zero point of the output (0 if it has none), PADV2 with its third operand.
@operator("nn.pad", "PAD, PADV2; constant amounts", [("data", "any", "the operand")], OpPattern.INJECTIVE)
class PadAttrs:
    """(before, after) per dimension; `pad_value` in the data's own type."""

    pad_width: tuple[tuple[int, int], ...]
    pad_value: int | float = 0

    def infer_type(self, data: TensorType) -> Type:
        """A tensor -> the same type, each extent grown by its pair."""
        if len(data.shape) != len(self.pad_width):
            raise TypeRuleError(f"pad by {self.pad_width} of {data} is not valid")
        if any(before < 0 or after < 0 for before, after in self.pad_width):
            raise TypeRuleError(f"negative padding {self.pad_width}")
        shape = tuple(n + before + after for n, (before, after) in zip(data.shape, self.pad_width, strict=True))
        return TensorType(shape, data.dtype, data.quant)

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        return np.pad(data, self.pad_width, constant_values=self.pad_value)

    def element(self, b: IRBuilder, i: Index, data: TensorFn, *, out_type: TensorType) -> Expr:
        source, conditions = [], []
        for index, (before, after), extent in zip(i, self.pad_width, data.shape, strict=True):
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
        value = b.local("value", (1,), out_type.dtype, init=self.pad_value)
        with b.if_(condition):
            b.store(value, 0, data.at(b, tuple(source)))
        return value[0]


# mirror_pad: MIRROR_PAD of TFLite with constant amounts; only moves data.
#
# The data are mirrored before and after themselves, with (SYMMETRIC) or without (REFLECT) their edge.
# Oracle: `kernels/mirror_pad.cc`.
@operator("mirror_pad", "MIRROR_PAD; constant amounts", [("data", "any", "the operand")], OpPattern.INJECTIVE)
class MirrorPadAttrs:
    """(before, after) per dimension; whether the edge is repeated."""

    pad_width: tuple[tuple[int, int], ...]
    symmetric: bool

    @property
    def skipped(self) -> int:
        """Elements at the edge that are not repeated."""
        return 0 if self.symmetric else 1

    def infer_type(self, data: TensorType) -> Type:
        """A tensor -> the same type, each extent grown by its pair, which must not exceed the elements that can be mirrored."""
        if len(data.shape) != len(self.pad_width):
            raise TypeRuleError(f"mirror_pad by {self.pad_width} of {data} is not valid")
        for n, pair in zip(data.shape, self.pad_width, strict=True):
            if min(pair) < 0 or max(pair) > n - self.skipped:
                raise TypeRuleError(f"mirror_pad by {pair} of {n} elements is not valid")
        return TensorType(
            tuple(n + sum(pair) for n, pair in zip(data.shape, self.pad_width, strict=True)), data.dtype, data.quant
        )

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        return np.pad(data, self.pad_width, mode="symmetric" if self.symmetric else "reflect")

    def element(self, b: IRBuilder, i: Index, data: TensorFn, *, out_type: TensorType) -> Expr:
        source = []
        for index, (before, after), n in zip(i, self.pad_width, data.shape, strict=True):
            position = index - before
            if before:
                position = select(index < before, imm(before - 1 + self.skipped) - index, position)
            if after:
                last = imm(before + 2 * n - 1 - self.skipped) - index
                position = select(index < before + n, position, last)
            source.append(named(b, "source", position))
        return data.at(b, tuple(source))


# full: FILL of TFLite: one value everywhere.  The shape must be constant, the value need not be.
#
# Oracle: `reference_ops::Fill`.
@operator(
    "full", "FILL, ZEROS_LIKE; constant shape", [("value", "any, one element", "what every element becomes")], OpPattern.BROADCAST
)
class FullAttrs:
    """The result's shape."""

    shape: tuple[int, ...]

    def infer_type(self, value: TensorType) -> Type:
        """One element -> that type in `shape`."""
        if value.shape != (1,) or any(n < 0 for n in self.shape):
            raise TypeRuleError(f"full of {value} in {list(self.shape)} is not valid")
        return TensorType(self.shape, value.dtype, value.quant)

    def evaluate(self, value: Array, *, out_type: TensorType) -> Array:
        return np.full(self.shape, value[0])

    def element(self, b: IRBuilder, _: Index, value: TensorFn, *, out_type: TensorType) -> Expr:
        return value.at(b, (imm(0),))


# broadcast_to and tile: BROADCAST_TO and TILE of TFLite: the data repeated; the shape and the counts are constant.
#
# Both are BROADCAST, not INJECTIVE: elements are read several times, so producers must not be fused into them.
# Oracles: `reference_ops::BroadcastTo`, `kernels/tile.cc`.
@operator("broadcast_to", "BROADCAST_TO; constant shape", [("data", "any", "the operand")], OpPattern.BROADCAST)
class BroadcastToAttrs:
    """The result's shape."""

    shape: tuple[int, ...]

    def infer_type(self, data: TensorType) -> Type:
        """A tensor -> the same type in a shape to which its own broadcasts."""
        try:
            fits = np.broadcast_shapes(data.shape, self.shape) == self.shape
        except ValueError:
            fits = False
        if not fits:
            raise TypeRuleError(f"{data} does not broadcast to {list(self.shape)}")
        return TensorType(self.shape, data.dtype, data.quant)

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        return np.ascontiguousarray(np.broadcast_to(data, self.shape))

    def element(self, b: IRBuilder, i: Index, data: TensorFn, *, out_type: TensorType) -> Expr:
        return data.at(b, broadcast_index(data, i))


@operator("tile", "TILE; constant multiples", [("data", "any", "the operand")], OpPattern.BROADCAST)
class TileAttrs:
    """The number of repetitions per dimension."""

    reps: tuple[int, ...]

    def infer_type(self, data: TensorType) -> Type:
        """A tensor -> its extents times the counts."""
        if len(self.reps) != len(data.shape) or any(r < 0 for r in self.reps):
            raise TypeRuleError(f"tile of {data} by {self.reps} is not valid")
        return TensorType(tuple(n * r for n, r in zip(data.shape, self.reps, strict=True)), data.dtype, data.quant)

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        return np.tile(data, self.reps)

    def element(self, b: IRBuilder, i: Index, data: TensorFn, *, out_type: TensorType) -> Expr:
        return data.at(b, tuple(x if r == 1 else x % n for x, n, r in zip(i, data.shape, self.reps, strict=True)))


# reverse and reverse_sequence: REVERSE_V2 and REVERSE_SEQUENCE of TFLite; only move data.
#
# reverse reverses whole dimensions; reverse_sequence reverses the first lengths[n] elements of one dimension, n being the
# index in another.  Lengths beyond the dimension count as its extent, negative ones as 0, so that no data can make the device
# access anything else.  (The reference checks only the first length; it writes outside its tensor if another one is too
# large.)  Oracles: `reference_ops::Reverse`, `ReverseSequence`.
@operator("reverse", "REVERSE_V2; constant axes", [("data", "any", "the operand")], OpPattern.INJECTIVE)
class ReverseAttrs:
    """The dimensions to reverse."""

    axes: tuple[int, ...]

    def infer_type(self, data: TensorType) -> Type:
        """A tensor -> the same type."""
        if any(not 0 <= a < len(data.shape) for a in self.axes):
            raise TypeRuleError(f"reverse of axes {self.axes} of {data} is not valid")
        return data

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        return np.ascontiguousarray(np.flip(data, self.axes))

    def element(self, b: IRBuilder, i: Index, data: TensorFn, *, out_type: TensorType) -> Expr:
        sizes = zip(i, out_type.shape, strict=True)
        return data.at(b, tuple(imm(n - 1) - x if k in self.axes else x for k, (x, n) in enumerate(sizes)))


@operator(
    "reverse_sequence",
    "REVERSE_SEQUENCE; lengths at run time",
    [("data", "any", "the sequences"), ("lengths", "int32, int64 [batch]", "how much of each is reversed")],
    OpPattern.INJECTIVE,
)
class ReverseSequenceAttrs:
    """The dimension to reverse, and the one whose index selects the length."""

    seq_axis: int
    batch_axis: int

    def infer_type(self, data: TensorType, lengths: TensorType) -> Type:
        """A tensor and int32 or int64 lengths [extent of batch_axis] -> the tensor's type."""
        rank = len(data.shape)
        fits = 0 <= self.seq_axis < rank and 0 <= self.batch_axis < rank and self.seq_axis != self.batch_axis
        if not fits or lengths.shape != (data.shape[self.batch_axis],) or lengths.dtype not in ("int32", "int64"):
            raise TypeRuleError(f"reverse_sequence of {data} by {lengths} along {self} is not valid")
        return data

    def evaluate(self, data: Array, lengths: Array, *, out_type: TensorType) -> Array:
        out = data.copy()
        moved_in, moved_out = (np.moveaxis(a, (self.batch_axis, self.seq_axis), (0, 1)) for a in (data, out))
        for n, length in enumerate(np.clip(lengths, 0, data.shape[self.seq_axis])):
            moved_out[n, :length] = moved_in[n, :length][::-1]
        return out

    def element(self, b: IRBuilder, i: Index, data: TensorFn, lengths: TensorFn, *, out_type: TensorType) -> Expr:
        axis = self.seq_axis
        length = b.let("length", cast("int32", clamp(lengths.at(b, (i[self.batch_axis],)), 0, data.shape[axis])))
        source = b.let("source", select(i[axis] < length, length - 1 - i[axis], i[axis]))
        return data.at(b, (*i[:axis], source, *i[axis + 1 :]))

    def domain(self, data: TensorType, _: TensorType) -> dict[int, tuple[float, float]]:
        """Lengths are between 0 and the dimension's extent."""
        return {1: (0, data.shape[self.seq_axis])}
