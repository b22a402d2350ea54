"""Operators that arrange elements: reshape, transpose, concatenate, strided_slice."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from aot.ir.op import VARIABLE, Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.te_rule import F_TE, TeContext
from aot.op.common.tensors import tensors_of
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, imm

# reshape: RESHAPE, EXPAND_DIMS and SQUEEZE of TFLite: other dimensions over the same bytes, at no cost at run time.
#
# Oracle: TFLite copies the bytes.


@dataclass(frozen=True, slots=True)
class ReshapeAttrs:
    """The new dimensions, all known."""

    newshape: tuple[int, ...]


def infer_reshape(types: Sequence[Type], attrs: ReshapeAttrs) -> Type:
    """A tensor -> the same elements in `newshape`."""
    (data,) = types
    if not isinstance(data, TensorType) or prod(attrs.newshape) != data.size or any(n < 0 for n in attrs.newshape):
        raise TypeRuleError(f"reshape of {data} to {list(attrs.newshape)} is not valid")
    return TensorType(attrs.newshape, data.dtype, data.quant)


def evaluate_reshape(data: Array, *, attrs: ReshapeAttrs, out_type: TensorType) -> Array:
    return data.reshape(attrs.newshape)


def te_reshape(_ctx: TeContext, args: Sequence[TensorFn], attrs: ReshapeAttrs, out_type: TensorType) -> TensorFn:
    (data,) = args

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        flat: Expr = imm(0)
        for extent, index in zip(out_type.shape, i, strict=True):
            flat = flat * extent + index
        source: list[Expr] = []
        for extent in reversed(data.shape[1:]):
            source.append(flat % extent)
            flat = flat / extent
        return data.at(b, tuple(reversed([*source, flat])) if data.shape else ())

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "reshape",
    1,
    arguments=[("data", "any", "the operand")],
    attrs_type=ReshapeAttrs,
    pattern=OpPattern.INJECTIVE,
    infer_type=infer_reshape,
    evaluate=evaluate_reshape,
    doc="RESHAPE, EXPAND_DIMS, SQUEEZE; no instruction at run time",
    is_view=True,
)
F_TE.set("reshape", te_reshape)


# transpose: TRANSPOSE of TFLite with a constant permutation; only moves data.
#
# Oracle: `reference_ops::Transpose`: dimension i of the result is dimension axes[i] of the data.


@dataclass(frozen=True, slots=True)
class TransposeAttrs:
    """A permutation of the dimensions."""

    axes: tuple[int, ...]


def infer_transpose(types: Sequence[Type], attrs: TransposeAttrs) -> Type:
    """A tensor -> the same elements with permuted dimensions."""
    (data,) = types
    if not isinstance(data, TensorType) or sorted(attrs.axes) != list(range(len(data.shape))):
        raise TypeRuleError(f"transpose of {data} by {attrs.axes} is not valid")
    return TensorType(tuple(data.shape[a] for a in attrs.axes), data.dtype, data.quant)


def evaluate_transpose(data: Array, *, attrs: TransposeAttrs, out_type: TensorType) -> Array:
    return np.ascontiguousarray(np.transpose(data, attrs.axes))


def te_transpose(_ctx: TeContext, args: Sequence[TensorFn], attrs: TransposeAttrs, out_type: TensorType) -> TensorFn:
    (data,) = args

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        return data.at(b, tuple(i[attrs.axes.index(axis)] for axis in range(len(data.shape))))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "transpose",
    1,
    arguments=[("data", "any", "the operand")],
    attrs_type=TransposeAttrs,
    pattern=OpPattern.INJECTIVE,
    infer_type=infer_transpose,
    evaluate=evaluate_transpose,
    doc="TRANSPOSE; constant permutation",
)
F_TE.set("transpose", te_transpose)


# concatenate: CONCATENATION of TFLite along one axis; only moves data. # Oracle: `reference_ops::Concatenation`; TFLite requires
# the same quantisation for all int8 operands and the result.  Legacy uint8 operands with another quantisation go through a table
# with the results of `ConcatenationWithScaling`.


@dataclass(frozen=True, slots=True)
class ConcatenateAttrs:
    """The axis, not negative."""

    axis: int


def infer_concatenate(types: Sequence[Type], attrs: ConcatenateAttrs) -> Type:
    """Tensors that differ only in the extent of `axis` -> their extents added."""
    first = types[0] if types else None
    if not isinstance(first, TensorType) or not 0 <= attrs.axis < len(first.shape):
        raise TypeRuleError(f"concatenate of {first} along axis {attrs.axis} is not valid")
    total = 0
    for t in types:
        if not isinstance(t, TensorType) or t.dtype != first.dtype or len(t.shape) != len(first.shape):
            raise TypeRuleError(f"concatenate of {first} and {t} is not valid")
        if any(a != b for i, (a, b) in enumerate(zip(t.shape, first.shape, strict=True)) if i != attrs.axis):
            raise TypeRuleError(f"concatenate of {first} and {t} along axis {attrs.axis} is not valid")
        total += t.shape[attrs.axis]
    shape = (*first.shape[: attrs.axis], total, *first.shape[attrs.axis + 1 :])
    return TensorType(shape, first.dtype, first.quant)


def evaluate_concatenate(*tensors: Array, attrs: ConcatenateAttrs, out_type: TensorType) -> Array:
    return np.concatenate(tensors, axis=attrs.axis)


def te_concatenate(_ctx: TeContext, args: Sequence[TensorFn], attrs: ConcatenateAttrs, out_type: TensorType) -> TensorFn:
    axis = attrs.axis

    def rule(b: IRBuilder, *i: Expr) -> Expr:
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

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "concatenate",
    VARIABLE,
    arguments=[("*tensors", "any", "the parts, of one type but for the extent of the axis")],
    attrs_type=ConcatenateAttrs,
    pattern=OpPattern.INJECTIVE,
    infer_type=infer_concatenate,
    evaluate=evaluate_concatenate,
    doc="CONCATENATION",
)
F_TE.set("concatenate", te_concatenate)


# strided_slice: STRIDED_SLICE, SLICE, SPLIT, SPLIT_V and UNPACK of TFLite; only moves data.
#
# Element i of the result is element begin + i * stride of the data, in each dimension.  An operator with several results becomes
# one strided_slice each; dimensions that appear or vanish (masks, UNPACK) are a reshape, which costs nothing.
# Oracles: `reference_ops::StridedSlice`, `Slice`, `Split`, `Unpack`; begin, end, size and strides must be constant, except for
# a STRIDED_SLICE that picks one position of leading dimensions (`x[t]`, `x[t, 0]`): that is a gather_nd.


@dataclass(frozen=True, slots=True)
class StridedSliceAttrs:
    """First position, step (not 0) and extent in each dimension."""

    begin: tuple[int, ...]
    strides: tuple[int, ...]
    extents: tuple[int, ...]

    @property
    def ranges(self) -> list[range]:
        """The selected positions per dimension."""
        return [range(b, b + s * n, s) for b, s, n in zip(self.begin, self.strides, self.extents, strict=True)]


def infer_strided_slice(types: Sequence[Type], attrs: StridedSliceAttrs) -> Type:
    """A tensor -> the same type with the slice's extents."""
    (data,) = tensors_of(types, 1)
    if not len(data.shape) == len(attrs.begin) == len(attrs.strides) == len(attrs.extents) or 0 in attrs.strides:
        raise TypeRuleError(f"strided_slice of {data} by {attrs} is not valid")
    for positions, size in zip(attrs.ranges, data.shape, strict=True):
        if len(positions) and not (0 <= positions[0] < size and 0 <= positions[-1] < size):
            raise TypeRuleError(f"strided_slice of {data} reads {positions}")
    return TensorType(attrs.extents, data.dtype, data.quant)


def evaluate_strided_slice(data: Array, *, attrs: StridedSliceAttrs, out_type: TensorType) -> Array:
    slices = tuple(slice(r.start, r.stop if r.stop >= 0 else None, r.step) for r in attrs.ranges)
    return np.ascontiguousarray(data[slices]).reshape(out_type.shape)


def te_strided_slice(_ctx: TeContext, args: Sequence[TensorFn], attrs: StridedSliceAttrs, out_type: TensorType) -> TensorFn:
    def rule(b: IRBuilder, *i: Expr) -> Expr:
        return args[0].at(b, tuple(x * s + o for x, s, o in zip(i, attrs.strides, attrs.begin, strict=True)))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "strided_slice",
    1,
    arguments=[("data", "any", "the operand")],
    attrs_type=StridedSliceAttrs,
    pattern=OpPattern.INJECTIVE,
    infer_type=infer_strided_slice,
    evaluate=evaluate_strided_slice,
    doc="STRIDED_SLICE (all masks), SLICE, SPLIT, SPLIT_V, UNPACK; constant positions",
)
F_TE.set("strided_slice", te_strided_slice)
