"""nn.dense_float: FULLY_CONNECTED of TFLite on float32.

out[m, o] = clamp(sum over k of data[m, k] * w[o, k] + bias[o]), in this order.
Oracle: `reference_ops::FullyConnected` of float.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from aot.frontend.view import OperatorView
from aot.ir.op import VARIABLE, Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.float_layer import Bounds, bounds, layer_operands, layer_types, np_layer, tir_layer
from aot.op.common.move import reshaped
from aot.op.convert import ConvertContext, unsupported
from aot.op.te_rule import F_TE, TeContext
from aot.relay.expr import Expr as RelayExpr
from aot.relay.expr import call
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


def convert_float(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """FULLY_CONNECTED whose data, weights and result are float32: rows, dense, the output's shape."""
    rows, shape = dense_shapes(ctx, op)
    data, *others = layer_operands(ctx, op)
    result = call(NAME, [reshaped(data, rows, ctx.span(op)), *others], Bounds(*bounds(ctx, op)), span=ctx.span(op))
    return reshaped(result, shape, ctx.span(op))


def dense_shapes(ctx: ConvertContext, op: OperatorView) -> tuple[tuple[int, int], tuple[int, ...]]:
    """FULLY_CONNECTED's data as rows, and the shape of its result: rows of channels, or with `keep_num_dims` as the data.

    Where the file fixes another shape of as many elements, it is that: TFLite Micro's kernels never look at it.
    """
    if op.option("weights_format") != "DEFAULT":
        unsupported(ctx, op, f"weight format {op.option('weights_format')} is not supported")
    data, weight, declared = ctx.input_type(op, 0).shape, ctx.input_type(op, 1).shape, ctx.output_shape(op)
    if len(weight) != 2:
        unsupported(ctx, op, f"weights of {len(weight)} dimensions", code="E1207")
    channels, depth = weight
    rows, rest = divmod(prod(data), depth)
    if rest or (declared is not None and rows * channels != prod(declared)):
        unsupported(ctx, op, f"data of {prod(data)} values does not match weights {list(weight)}", code="E1207")
    keep = op.option("keep_num_dims") and data[-1:] == (depth,)
    return (rows, depth), declared or ((*data[:-1], channels) if keep else (rows, channels))


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
