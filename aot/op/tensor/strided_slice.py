"""strided_slice: STRIDED_SLICE, SLICE, SPLIT, SPLIT_V and UNPACK of TFLite; pure movement of data.

Element i of the result is element begin + i * stride of the data, in each dimension.  What an operator with several results
yields is one strided_slice each; dimensions that appear or vanish (masks, UNPACK) are a reshape, which costs nothing.
Oracles: `reference_ops::StridedSlice`, `Slice`, `Split`, `Unpack`; begin, end, size and strides have to be constant, but for
a STRIDED_SLICE that picks one position of leading dimensions (`x[t]`, `x[t, 0]`): that is a gather_nd.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.move import tensors_of
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr


@dataclass(frozen=True, slots=True)
class StridedSliceAttrs:
    """First position, step (not 0) and extent in each dimension."""

    begin: tuple[int, ...]
    strides: tuple[int, ...]
    extents: tuple[int, ...]

    @property
    def ranges(self) -> list[range]:
        """The positions taken in each dimension."""
        return [range(b, b + s * n, s) for b, s, n in zip(self.begin, self.strides, self.extents, strict=True)]


def infer_type(types: Sequence[Type], attrs: StridedSliceAttrs) -> Type:
    """A tensor -> the same type with the slice's extents."""
    (data,) = tensors_of(types, 1)
    if not len(data.shape) == len(attrs.begin) == len(attrs.strides) == len(attrs.extents) or 0 in attrs.strides:
        raise TypeRuleError(f"strided_slice of {data} by {attrs}")
    for positions, size in zip(attrs.ranges, data.shape, strict=True):
        if len(positions) and not (0 <= positions[0] < size and 0 <= positions[-1] < size):
            raise TypeRuleError(f"strided_slice of {data} takes {positions}")
    return TensorType(attrs.extents, data.dtype, data.quant)


def evaluate(data: Array, *, attrs: StridedSliceAttrs, out_type: TensorType) -> Array:
    slices = tuple(slice(r.start, r.stop if r.stop >= 0 else None, r.step) for r in attrs.ranges)
    return np.ascontiguousarray(data[slices]).reshape(out_type.shape)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: StridedSliceAttrs, out_type: TensorType) -> TensorFn:
    def rule(b: IRBuilder, *i: Expr) -> Expr:
        return args[0].at(b, tuple(x * s + o for x, s, o in zip(i, attrs.strides, attrs.begin, strict=True)))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "strided_slice",
    1,
    arguments=[("data", "any", "the operand")],
    attrs_type=StridedSliceAttrs,
    pattern=OpPattern.INJECTIVE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="STRIDED_SLICE (all masks), SLICE, SPLIT, SPLIT_V, UNPACK; constant positions",
)
F_TE.set("strided_slice", te_rule)
