"""SVDF of TFLite: a fully connected layer whose outputs are filtered in time, one step a run.

feature = weights_feature * data; nn.svdf_memory puts it into the state, nn.svdf_time filters that; bias and activation follow.
Integers: the feature is rounded twice to the state's type, the sums to int8; the activation, always RELU, is left to the range of
the result.  Oracles: `svdf.cc` and `reference/svdf.h`; for int8 states, which LiteRT takes for int16, TFLM's `svdf_common.cc`.
"""

from __future__ import annotations

import numpy as np

from aot.frontend.view import OperatorView
from aot.ir.type import TensorType
from aot.numerics.fixed_point import quantize_multiplier
from aot.numerics.multipliers import real_multiplier
from aot.op.common.check import require_dtype, require_quant
from aot.op.convert import ConvertContext, from_tflite, operand, unsupported
from aot.op.math.arithmetic import BinaryAttrs
from aot.op.math.unary import UnaryAttrs
from aot.op.nn.dense import DenseAttrs
from aot.op.qnn.dynamic_quantize import PARAMS, QUANTIZE, RANGE, DynamicQuantizeAttrs
from aot.op.qnn.hybrid import NAME as HYBRID_OUTPUT
from aot.op.qnn.hybrid import HybridOutputAttrs
from aot.op.qnn.requantize import RequantizeAttrs
from aot.op.recurrent.dense_lanes import NAME as DENSE_LANES
from aot.op.recurrent.svdf_filter import MEMORY, TIME, SvdfMemoryAttrs, SvdfTimeAttrs
from aot.relay.expr import Expr, call, const
from aot.support.dtype import int_range

_BOUNDS: dict[str, tuple[float | None, float | None]] = {
    "NONE": (None, None),
    "RELU": (0.0, None),
    "RELU6": (0.0, 6.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
}


@from_tflite(
    "SVDF",
    "int8*int8 float32*int8 float32*float32",
    "add nn.dense nn.dense_lanes nn.svdf_memory nn.svdf_time qnn.dynamic_params qnn.dynamic_quantize qnn.dynamic_range"
    " qnn.hybrid_output",
    oracle="LiteRT; TFLM for int8 states",
)
def convert(ctx: ConvertContext, op: OperatorView) -> Expr:
    """Data [B, I], feature weights [F, I], time weights [F, M], bias [F / rank], state [B, F * M]."""
    _check_shapes(ctx, op)
    data, weight = ctx.input_type(op, 0), ctx.input_type(op, 1)
    require_dtype(ctx, op, data, {"int8", "float32"})
    require_dtype(ctx, op, weight, {"int8"} if data.dtype == "int8" else {"int8", "float32"}, what="a weight")
    return _convert_int8(ctx, op) if data.dtype == "int8" else _convert_float(ctx, op)


def _check_shapes(ctx: ConvertContext, op: OperatorView) -> None:
    """Feature weights, bias and rank that do not match; the state has been checked with the file."""
    data, weight, time = (ctx.input_type(op, i).shape for i in range(3))
    rank = op.option("rank")
    if len(data) != 2 or len(weight) != 2 or len(time) != 2 or (weight[1], time[0]) != (data[1], weight[0]):
        shapes = f"data {list(data)}, feature weights {list(weight)} and time weights {list(time)}"
        unsupported(ctx, op, f"{shapes} do not match", code="E1207")
    if rank < 1 or weight[0] % rank:
        unsupported(ctx, op, f"{weight[0]} filters are not a multiple of rank {rank}", code="E1122")
    if ctx.input(op, 3) is not None and ctx.input_type(op, 3).size != weight[0] // rank:
        unsupported(ctx, op, f"a bias of {ctx.input_type(op, 3).size} values for {weight[0] // rank} units", code="E1207")


def _convert_int8(ctx: ConvertContext, op: OperatorView) -> Expr:
    """dense + requantize give the feature, svdf_time + bias_add + requantize the result."""
    state, out, span = ctx.variable(op, 4), ctx.output_type(op), ctx.span(op)
    allowed = ("int16",) if ctx.oracle == "litert" and state.type.dtype != "int8" else ("int8", "int16")
    for i, what in ((2, "a weight in time"), (4, "a state")):
        require_dtype(ctx, op, ctx.input_type(op, i), {state.type.dtype} & set(allowed) or set(allowed), what=what)
    require_dtype(ctx, op, out, {"int8"}, what="the result")
    if op.option("fused_activation_function") != "RELU":
        unsupported(ctx, op, f"the fused activation {op.option('fused_activation_function')} is not supported with int8 data")
    (data_scale, data_zp), (weight_scale, _), (time_scale, _) = (require_quant(ctx, op, ctx.input_type(op, i)) for i in range(3))
    (state_scale, state_zp), (out_scale, _) = require_quant(ctx, op, state.type), require_quant(ctx, op, out)
    dtype = state.type.dtype
    acc = call("nn.dense", [operand(ctx, op, 0), operand(ctx, op, 1)], DenseAttrs(data_zp), span=span)
    feature = call("qnn.requantize", [acc], _rescaled(ctx, op, ((data_scale, weight_scale), (state_scale,)), dtype), span=span)
    state_zp = state_zp if dtype == "int8" else 0  # LiteRT takes int16 as symmetric whatever the file says
    state.assign(call(MEMORY, [state.read(), feature], SvdfMemoryAttrs(state_zp), span=span))
    sums = call(TIME, [state.read(), operand(ctx, op, 2)], SvdfTimeAttrs(op.option("rank"), state_zp), span=span)
    if (bias := ctx.input(op, 3)) is not None:
        require_dtype(ctx, op, ctx.input_type(op, 3), {"int32"}, what="a bias")
        sums = call("nn.bias_add", [sums, bias], span=span)
    return call("qnn.requantize", [sums], _rescaled(ctx, op, ((state_scale, time_scale), (out_scale,)), "int8", out), span=span)


def _rescaled(
    ctx: ConvertContext,
    op: OperatorView,
    scales: tuple[tuple[float, ...], tuple[float, ...]],
    dtype: str,
    out: TensorType | None = None,
) -> RequantizeAttrs:
    """Rounded twice, and clamped to the type; `scales` are factors and divisors."""
    multiplier, shift = quantize_multiplier(real_multiplier(op.opcode, "int8", *scales, oracle=ctx.oracle))
    quant = None if out is None else out.quant
    zero_point = quant.zero_point[0] if quant else 0
    return RequantizeAttrs((multiplier,), (shift,), zero_point, *int_range(dtype), "double", dtype, quant)


def _convert_float(ctx: ConvertContext, op: OperatorView) -> Expr:
    """Float32 data: weights of float32, or of int8 with data that is quantised as it comes."""
    state, span = ctx.variable(op, 4), ctx.span(op)
    activation = op.option("fused_activation_function")
    if activation not in _BOUNDS:
        unsupported(ctx, op, f"the fused activation {activation} is not supported")
    for type_, what in ((state.type, "a state"), (ctx.output_type(op), "the result")):
        require_dtype(ctx, op, type_, {"float32"}, what=what)
    is_hybrid = ctx.input_type(op, 1).dtype == "int8"
    require_dtype(ctx, op, ctx.input_type(op, 2), {ctx.input_type(op, 1).dtype}, what="a weight in time")
    feature, time = _hybrid(ctx, op) if is_hybrid else (_feature(ctx, op), operand(ctx, op, 2))
    state.assign(call(MEMORY, [state.read(), feature], SvdfMemoryAttrs(), span=span))
    result = call(TIME, [state.read(), time], SvdfTimeAttrs(op.option("rank")), span=span)
    if (bias := ctx.input(op, 3)) is not None:
        require_dtype(ctx, op, ctx.input_type(op, 3), {"float32"}, what="a bias")
        result = call("add", [result, bias], BinaryAttrs(), span=span)
    lo, hi = _BOUNDS[activation]
    return result if lo is None else call("relu", [result], UnaryAttrs(lo=lo, hi=hi), span=span)


def _feature(ctx: ConvertContext, op: OperatorView) -> Expr:
    return call(DENSE_LANES, [operand(ctx, op, 0), operand(ctx, op, 1)], span=ctx.span(op))


def _hybrid(ctx: ConvertContext, op: OperatorView) -> tuple[Expr, Expr]:
    """The feature by integers; the weights in time as the float32 values that the reference makes of them at its first run."""
    span, data = ctx.span(op), operand(ctx, op, 0)
    scale, time_scale = (np.float32(require_quant(ctx, op, ctx.input_type(op, i), what="a weight")[0]) for i in (1, 2))
    attrs = DynamicQuantizeAttrs(bool(op.option("asymmetric_quantize_inputs")))
    params = call(PARAMS, [call(RANGE, [data], span=span)], attrs, span=span)
    integers = call(QUANTIZE, [data, params], attrs, span=span)
    sums = call("nn.dense", [integers, const(ctx.constant(op, 1))], DenseAttrs(), span=span)
    feature = call(HYBRID_OUTPUT, [sums, params, const(np.array([scale], np.float32))], HybridOutputAttrs(), span=span)
    return feature, const(ctx.constant(op, 2).astype(np.float32) * time_scale)
