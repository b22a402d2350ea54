"""nn.dense: FULLY_CONNECTED of TFLite.

acc[m, o] = sum over k of (w[o, k] - weight_zp) * (data[m, k] - input_zp).  Oracle: TFLite's reference kernel
`FullyConnected`, which rounds once, halves away from zero, where its convolutions round twice; TFLite Micro rounds twice here
too (`--oracle tflm`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, reduce_axis, sum, tensor_fn, wrapping
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast


@dataclass(frozen=True, slots=True)
class DenseAttrs:
    """Zero points still to be subtracted."""

    input_zp: int = 0
    weight_zp: int = 0
    acc_dtype: str = "int32"


def infer_type(types: Sequence[Type], attrs: DenseAttrs) -> Type:
    """data [M, K], weight [O, K] -> attrs.acc_dtype [M, O]."""
    data, weight = types
    if not isinstance(data, TensorType) or not isinstance(weight, TensorType) or len(data.shape) != 2 or len(weight.shape) != 2:
        raise TypeRuleError(f"dense takes 2-D data and weights, not {data} and {weight}")
    if data.shape[1] != weight.shape[1]:
        raise TypeRuleError(f"rows of {data.shape[1]} data values, but weights for {weight.shape[1]}")
    return TensorType((data.shape[0], weight.shape[0]), attrs.acc_dtype)


def evaluate(data: Array, weight: Array, *, attrs: DenseAttrs, out_type: TensorType) -> Array:
    x = data.astype(np.float64) - attrs.input_zp
    w = weight.astype(np.float64) - attrs.weight_zp
    result: Array = (x @ w.T).astype(np.int64).astype(out_type.dtype)
    return result


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: DenseAttrs, out_type: TensorType) -> TensorFn:
    data, weight = args
    wide = wrapping(attrs.acc_dtype)

    def rule(b: IRBuilder, m: Expr, o: Expr) -> Expr:
        def term(k: Expr) -> Expr:
            w, x = cast("int32", weight.at(b, (o, k))) - attrs.weight_zp, cast("int32", data.at(b, (m, k))) - attrs.input_zp
            return cast(wide, w) * cast(wide, x)

        return cast(attrs.acc_dtype, sum(b, [reduce_axis(weight.shape[1], name="k")], term, dtype=wide))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "nn.dense",
    2,
    arguments=[("data", "int8, int16 [M, K]", "rows of data"), ("weight", "int8, int4 [O, K]", "one row for each output")],
    attrs_type=DenseAttrs,
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="FULLY_CONNECTED; int8, int16 x int8, int8 and int16 x int4, uint8; one rounding (TFLite) or two (TFLite Micro)",
)
F_TE.set("nn.dense", te_rule)
