"""mirror_pad: MIRROR_PAD of TFLite with constant amounts; pure movement of data.

Before and after the data they come mirrored, with (SYMMETRIC) or without (REFLECT) their edge.
Oracle: `kernels/mirror_pad.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.numerics.fixed_point import named
from aot.op.common.move import tensors_of
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, imm, select


@dataclass(frozen=True, slots=True)
class MirrorPadAttrs:
    """(before, after) for each dimension; whether the edge is repeated."""

    pad_width: tuple[tuple[int, int], ...]
    symmetric: bool

    @property
    def skipped(self) -> int:
        """Elements at the edge that are not repeated."""
        return 0 if self.symmetric else 1


def infer_type(types: Sequence[Type], attrs: MirrorPadAttrs) -> Type:
    """A tensor -> the same type, each extent grown by its pair, which is no larger than what there is to mirror."""
    (data,) = tensors_of(types, 1)
    if len(data.shape) != len(attrs.pad_width):
        raise TypeRuleError(f"mirror_pad by {attrs.pad_width} of {data}")
    for n, pair in zip(data.shape, attrs.pad_width, strict=True):
        if min(pair) < 0 or max(pair) > n - attrs.skipped:
            raise TypeRuleError(f"mirror_pad by {pair} of {n} elements")
    return TensorType(tuple(n + sum(pair) for n, pair in zip(data.shape, attrs.pad_width, strict=True)), data.dtype, data.quant)


def evaluate(data: Array, *, attrs: MirrorPadAttrs, out_type: TensorType) -> Array:
    return np.pad(data, attrs.pad_width, mode="symmetric" if attrs.symmetric else "reflect")


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: MirrorPadAttrs, out_type: TensorType) -> TensorFn:
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
    infer_type=infer_type,
    evaluate=evaluate,
    doc="MIRROR_PAD; constant amounts",
)
F_TE.set("mirror_pad", te_rule)
