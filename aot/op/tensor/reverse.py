"""reverse and reverse_sequence: REVERSE_V2 and REVERSE_SEQUENCE of TFLite; pure movement of data.

reverse turns whole dimensions round; reverse_sequence turns the first lengths[n] elements of one dimension round, n being the
index in another.  Lengths beyond the dimension count as its extent, negative ones as 0, so that no data can make the device reach
anything else.  (The reference checks the first length alone; it writes outside its tensor where another one is too large.)
Oracles: `reference_ops::Reverse`, `ReverseSequence`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import F_DOMAIN, Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.move import tensors_of
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, clamp, imm, select


@dataclass(frozen=True, slots=True)
class ReverseAttrs:
    """The dimensions to turn round."""

    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReverseSequenceAttrs:
    """The dimension to turn round, and the one whose index chooses the length."""

    seq_axis: int
    batch_axis: int


def infer_reverse(types: Sequence[Type], attrs: ReverseAttrs) -> Type:
    """A tensor -> the same type."""
    (data,) = tensors_of(types, 1)
    if any(not 0 <= a < len(data.shape) for a in attrs.axes):
        raise TypeRuleError(f"reverse of axes {attrs.axes} of {data}")
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
        raise TypeRuleError(f"reverse_sequence of {data} by {lengths} along {attrs}")
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
    """Lengths are those of the dimension, and not negative."""
    data, _ = tensors_of(types, 2)
    return {1: (0, data.shape[attrs.seq_axis])}


F_DOMAIN.set("reverse_sequence", domain_reverse_sequence)
