"""Operators that arrange elements: reshape, transpose, concatenate, strided_slice."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError
from aot.ir.type import TensorType, Type
from aot.op.common.operator import Index, operator
from aot.te.tensor import TensorFn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, imm


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
