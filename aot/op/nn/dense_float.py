"""nn.dense_float: FULLY_CONNECTED of TFLite on float32.

out[m, o] = clamp(sum over k of data[m, k] * w[o, k] + bias[o]), in this order.
Oracle: `reference_ops::FullyConnected` of float.
"""

from __future__ import annotations

from collections.abc import Sequence

from aot.ir.op import VARIABLE, Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.float_layer import Bounds, layer_types, np_layer, tir_layer
from aot.op.te_rule import F_TE, TeContext
from aot.te.tensor import TensorFn, reduce_axis, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr

NAME = "nn.dense_float"


def infer_type(types: Sequence[Type], _attrs: Bounds) -> Type:
    """data [M, K], weight [O, K], bias [O] -> float32 [M, O]."""
    data, weight, *_ = layer_types(types, NAME, rank=2, channels=lambda w: w.shape[0])
    if data.shape[1] != weight.shape[1]:
        raise TypeRuleError(f"rows of {data.shape[1]} data values, but weights for {weight.shape[1]}")
    return TensorType((data.shape[0], weight.shape[0]), "float32")


def evaluate(data: Array, weight: Array, *bias: Array, attrs: Bounds, out_type: TensorType) -> Array:
    products = (data[:, k, None] * weight[:, k] for k in range(weight.shape[1]))
    return np_layer(products, bias, attrs=attrs, out_type=out_type)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: Bounds, out_type: TensorType) -> TensorFn:
    data, weight, *bias = args

    def rule(b: IRBuilder, m: Expr, o: Expr) -> Expr:
        axes = [reduce_axis(weight.shape[1], name="k")]
        return tir_layer(b, axes, lambda k: data.at(b, (m, k)) * weight.at(b, (o, k)), bias=bias, channel=o, attrs=attrs)

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    NAME,
    VARIABLE,
    arguments=[
        ("data", "float32 [M, K]", "rows of data"),
        ("weight", "float32 [O, K]", "one row for each output"),
        ("bias?", "float32 [O]", "what is added to each output channel"),
    ],
    attrs_type=Bounds,
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="FULLY_CONNECTED; float32",
)
F_TE.set(NAME, te_rule)
