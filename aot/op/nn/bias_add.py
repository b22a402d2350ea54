"""nn.bias_add: an int32 bias for each index of the last axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.te_rule import F_TE, TeContext
from aot.te.tensor import TensorFn, tensor_fn, wrapping
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast


def infer_type(types: Sequence[Type], _attrs: Any) -> Type:
    """data [..., C] and bias [C] of one integer type -> the type of data."""
    data, bias = types
    if not isinstance(data, TensorType) or not isinstance(bias, TensorType):
        raise TypeRuleError("bias_add takes tensors")
    if bias.shape != (data.shape[-1],) or bias.dtype != data.dtype:
        raise TypeRuleError(f"a bias of {bias} does not match {data}")
    return data


def evaluate(data: Array, bias: Array, *, attrs: Any, out_type: TensorType) -> Array:
    return (data.astype(np.int64) + bias).astype(data.dtype)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], _attrs: Any, out_type: TensorType) -> TensorFn:
    data, bias = args
    dtype, wide = out_type.dtype, wrapping(out_type.dtype)

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        return cast(dtype, cast(wide, data.at(b, i)) + cast(wide, bias.at(b, i[-1:])))

    return tensor_fn(out_type.shape, dtype, rule)


register_op(
    "nn.bias_add",
    2,
    arguments=[("data", "int32, int64 [..., C]", "the sums of a layer"), ("bias", "as data [C]", "one value for each channel")],
    attrs_type=None,
    pattern=OpPattern.BROADCAST,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="adds a bias to each channel; part of convolutions and fully connected layers",
)
F_TE.set("nn.bias_add", te_rule)
