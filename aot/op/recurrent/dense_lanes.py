"""nn.dense_lanes: rows times a float32 matrix in the order of the reference's recurrent kernels (`aot.op.common.lanes`).

out[m, o] = lanes over k of weight[o, k] * data[m, k].  Oracle: `tensor_utils::MatrixBatchVectorMultiplyAccumulate` of float.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.lanes import np_lane_sum, tir_lane_sum
from aot.op.te_rule import F_TE, TeContext
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr

NAME = "nn.dense_lanes"


def infer_type(types: Sequence[Type], _attrs: Any) -> Type:
    """data [M, K], weight [O, K] -> float32 [M, O]."""
    found = [t for t in types if isinstance(t, TensorType) and t.dtype == "float32" and len(t.shape) == 2]
    if len(found) != 2 or found[0].shape[1] != found[1].shape[1]:
        raise TypeRuleError(f"{NAME} takes rows and a matrix of float32, not {', '.join(map(str, types))}")
    return TensorType((found[0].shape[0], found[1].shape[0]), "float32")


def evaluate(data: Array, weight: Array, *, attrs: Any, out_type: TensorType) -> Array:
    with np.errstate(all="ignore"):
        return np.float32(0) + np_lane_sum(weight[None] * data[:, None, :])


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], _attrs: Any, out_type: TensorType) -> TensorFn:
    data, weight = args

    def rule(b: IRBuilder, m: Expr, o: Expr) -> Expr:
        return tir_lane_sum(b, weight.shape[1], lambda k: weight.at(b, (o, k)) * data.at(b, (m, k)))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    NAME,
    2,
    arguments=[("data", "float32 [M, K]", "rows of data"), ("weight", "float32 [O, K]", "one row for each output")],
    attrs_type=None,
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="matrix products of SVDF; float32, in the order of four partial sums",
)
F_TE.set(NAME, te_rule)
