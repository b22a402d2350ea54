"""Layers: what converters of convolutions and dense layers share (integer, float32 and hybrid layers: float32 data, integer
weights), and the converters of FULLY_CONNECTED and BATCH_MATMUL.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from math import inf, isfinite, prod
from typing import TypeGuard

import numpy as np

from aot.frontend.tflite.convert import EITHER, Blocks, Operator, converter
from aot.frontend.tflite.retyped import LEGACY, legacy_uint8
from aot.ir.op import Array
from aot.ir.type import QuantParams, TensorType
from aot.numerics.fixed_point import precision, quantize_multiplier, quotient, reduced_multiplier
from aot.numerics.ties import Rescaling, as_fixed_point, cast_sums, rounded_once
from aot.op.common.layer import FLOAT_ACTIVATIONS, Padding
from aot.op.math.unary import UnaryAttrs
from aot.op.nn import dense as nn
from aot.op.qnn import quantize as qnn
from aot.op.tensor import ReshapeAttrs
from aot.relay.expr import Call, Constant, Expr, Var, const, post_order, tensor_type
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range

FLOAT_LAYER = ("float32", "float32", "float32")


def is_float_layer(op: Operator) -> bool:
    """Whether data, weights and result are float32."""
    return (op.type(0).dtype, op.type(1).dtype, op.result_type().dtype) == FLOAT_LAYER


def bounds(op: Operator) -> tuple[float, float]:
    """The clamp of the fused activation."""
    activation = op.option("fused_activation_function")
    if activation not in FLOAT_ACTIVATIONS:
        op.refuse(f"the fused activation {activation} is not supported")
    return FLOAT_ACTIVATIONS[activation]


def clamped(op: Operator, result: Expr) -> Expr:
    """A float32 result with the fused activation."""
    low, high = bounds(op)
    return op.call("relu", [result], UnaryAttrs(lo=low, hi=high))


def _float_bias(op: Operator) -> list[Expr]:
    """The bias of a layer with float32 data, if it is present."""
    bias = op.input(2)
    if bias is not None and op.type(2).dtype != "float32":
        op.refuse(f"a bias of {op.type(2).dtype} is not supported with float32 data")
    return [] if bias is None else [bias]


def layer_operands(op: Operator) -> list[Expr]:
    """Data, weights and, if present, the bias."""
    return [*op.operands(0, 1), *_float_bias(op)]


# Shared by CONV_2D, DEPTHWISE_CONV_2D and FULLY_CONNECTED: their quantisation, bias and activation.


@dataclass(frozen=True, slots=True)
class QuantizedLayer:
    """The integers of one layer: zero points, the output's parameters and the real multiplier of each channel (or one for all).

    `flipped`: the channels with a negative weight scale in the file (as in MCUNet).  Their weights and bias are negated and their
    multipliers positive here, which leaves every product, and so every rounding, unchanged.

    `wide`: the reference sums in 64 bits (int16 data with a 64-bit bias or none); its convolutions then multiply by reduced
    multipliers and round once.  `acc_dtype` is int64 only if such a sum can exceed 32 bits.
    """

    input_zp: int
    weight_zp: int
    output: TensorType
    multipliers: tuple[float, ...]
    flipped: tuple[int, ...] = ()
    wide: bool = False
    acc_dtype: str = "int32"


_LAYER_KINDS = frozenset({("int8", "int8", "int8"), ("int8", "int4", "int8"), ("int16", "int8", "int16")})
"""(data, weights, result); uint8 comes as int8 (aot.frontend.tflite.retyped)."""
_SIXTEEN_BY_FOUR = ("int16", "int4", "int16")
"""For CONV_2D and FULLY_CONNECTED only: the reference's other kernels do not unpack such weights."""


def layer_multipliers(op: Operator, data: TensorType, weight: QuantParams, out: QuantParams) -> tuple[float, ...]:
    """One multiplier per weight scale."""
    assert data.quant is not None
    kind = "uint8" if LEGACY in op.forms else "per channel" if len(weight.scale) > 1 else data.dtype
    scale = data.quant.scale[0]
    how = precision(op.opcode, kind, oracle=op.oracle)
    reals = tuple(quotient((scale, s), out.scale[:1], how) for s in weight.scale)
    return reals if _rounds_once(op) else tuple(map(as_fixed_point, reals))


def _rounds_once(op: Operator) -> bool:
    """Whether the reference multiplies the sums by doubles, with halves away from zero; any double gives a result."""
    return op.opcode == "FULLY_CONNECTED" and op.oracle == "litert"


def check_quantized_layer(op: Operator, *, channel_axis: int) -> QuantizedLayer:
    """Refuse what is not in `_LAYER_KINDS` with known parameters; weight scales are per tensor or per index of `channel_axis`."""
    data, weight, out = op.type(0), op.type(1), op.result_type()
    kinds = (data.dtype, weight.dtype, out.dtype)
    if kinds not in _LAYER_KINDS and not (kinds == _SIXTEEN_BY_FOUR and op.opcode in ("CONV_2D", "FULLY_CONNECTED")):
        op.refuse(f"{kinds[0]} data with {kinds[1]} weights giving {kinds[2]} is not supported")
    if data.quant is None or weight.quant is None or out.quant is None:
        op.refuse("quantisation parameters are missing", code="E1206")
    if len(weight.shape) <= channel_axis:
        op.refuse(f"weights of {len(weight.shape)} dimensions are not supported", code="E1207")
    scales = len(weight.quant.scale)
    if scales not in (1, weight.shape[channel_axis]) or (scales > 1 and weight.quant.axis != channel_axis):
        op.refuse(f"{scales} weight scales along axis {weight.quant.axis} do not match the weights", code="E1223")
    if any(z != weight.quant.zero_point[0] for z in weight.quant.zero_point):
        op.refuse("per-channel weight zero points are not supported", code="E1223")
    _check_lost(op, weight.quant)
    reals = layer_multipliers(op, data, weight.quant, out.quant)
    if not _rounds_once(op) and not all(abs(m) < MULTIPLIER_LIMIT for m in reals):
        op.refuse(f"the scales give a multiplier of {max(map(abs, reals)):g}; the maximum is 2^31", code="E1226")
    flipped = tuple(c for c, m in enumerate(reals) if m < 0)
    if flipped and weight.quant.zero_point[0] != 0:
        op.refuse("negative weight scales with a zero point are not supported", code="E1224")
    positive = tuple(map(abs, reals))
    layer = QuantizedLayer(data.quant.zero_point[0], weight.quant.zero_point[0], out, positive, flipped)
    return _accumulation(op, layer, channel_axis=channel_axis) if data.dtype == "int16" else layer


def _check_lost(op: Operator, weight: QuantParams) -> None:
    """Refuse per-tensor weights without a usable scale, as the reference does when it compares scales."""
    scale = weight.scale[0]
    if not (op.opcode == "FULLY_CONNECTED" or LEGACY in op.forms) or len(weight.scale) > 1 or isfinite(scale):
        return
    if scale != inf or op.input(2) is not None:
        op.refuse(f"weights with the single scale {scale:g} (TFLite rejects them too)", code="E1226")


def _accumulation(op: Operator, layer: QuantizedLayer, *, channel_axis: int) -> QuantizedLayer:
    """How sums of int16 data are accumulated, by the type of the bias and the largest sum that the weights allow."""
    assert layer.output.quant is not None
    _check_bias(op)
    op.require_symmetric("int16", layer.input_zp, layer.output.quant.zero_point[0])
    wide = op.input(2) is None or op.type(2).dtype == "int64"
    fits = bool((largest_sums(op, layer, channel_axis=channel_axis) < 1 << 31).all())
    return replace(layer, wide=wide, acc_dtype="int64" if wide and not fits else "int32")


def _check_bias(op: Operator) -> None:
    """Refuse an int32 bias that the reference's kernels for int16 data read as int64, half of it beyond its end."""
    if op.input(2) is None or op.type(2).dtype != "int32":
        return
    if op.oracle == "tflm":
        if op.opcode in ("DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"):
            op.refuse("TFLM reads the int32 bias as int64; use an int64 bias in int16 layers", code="E1228")
    elif op.opcode != "DEPTHWISE_CONV_2D" and op.option("quantized_bias_type") == "FLOAT32":  # the schema's default
        right = "" if op.opcode == "TRANSPOSE_CONV" else ", or --oracle tflm, which uses the tensor's type"
        advice = f'use an int64 bias or quantized_bias_type="INT32" in this layer{right}'
        op.refuse(f"LiteRT reads the int32 bias as int64; {advice}", code="E1228")


def largest_sums(op: Operator, layer: QuantizedLayer, *, channel_axis: int) -> Array:
    """int64 [C]: a bound for the magnitude of each channel's sum, including the bias."""
    low, high = int_range(op.type(0).dtype)
    weight = _magnitudes(op, layer)
    largest: Array = weight.sum(axis=tuple(a for a in range(weight.ndim) if a != channel_axis))
    largest = largest * max(layer.input_zp - low, high - layer.input_zp)
    if op.input(2) is not None:
        largest = largest + np.abs(op.constant(2).astype(np.int64)).reshape(-1)
    return largest


def _magnitudes(op: Operator, layer: QuantizedLayer) -> Array:
    """int64: the magnitude of each weight less its zero point; the maximum for weights computed at run time."""
    running = running_weights(op)
    if running is None:
        return np.abs(op.constant(1).astype(np.int64) - layer.weight_zp)
    low, high = int_range(tensor_type(running).dtype)
    return np.full(tensor_type(running).shape, max(high - layer.weight_zp, layer.weight_zp - low), np.int64)


MULTIPLIER_LIMIT = 2.0**31
"""From this shift on, the result leaves an int32 and is undefined in the reference."""


def running_weights(op: Operator) -> Expr | None:
    """Weights of FULLY_CONNECTED that are computed at run time, in their declared type; None if they are constant."""
    expr = op.input(1)
    if expr is None or op.opcode != "FULLY_CONNECTED" or op.type(1).dtype == "int4":
        return None
    return expr if any(isinstance(e, Var) for e in post_order(expr)) else None


def layer_weights(op: Operator, layer: QuantizedLayer, *, channel_axis: int) -> Constant:
    """The weights, negated in flipped channels."""
    data = op.constant(1)
    if layer.flipped:
        index = (slice(None),) * channel_axis + (list(layer.flipped),)
        lowest, _ = int_range(op.type(1).dtype)
        if (data[index] == lowest).any():
            op.refuse(f"a negative weight scale with a weight of {lowest} is not supported", code="E1226")
        data = data.copy()
        data[index] *= -1
    type_ = op.type(1)
    quant = type_.quant if type_.quant is not None and all(map(isfinite, type_.quant.scale)) else None
    # kernels for int16 data use one byte per weight
    dtype = "int8" if op.type(0).dtype == "int16" else type_.dtype
    return const(data, quant=quant, dtype=dtype)


def _layer_bias(op: Operator, layer: QuantizedLayer) -> Array:
    """The bias in the accumulator's type, [C], negated in flipped channels (modulo 2^32, as the reference's additions are)."""
    data = op.constant(2).reshape(-1)
    if layer.flipped:
        if data.size <= layer.flipped[-1]:
            op.refuse(f"a bias of {data.size} values", code="E1207")
        data = data.copy()
        data[list(layer.flipped)] *= -1
    return data.astype(layer.acc_dtype)


def _rescaling(layer: QuantizedLayer, channels: slice) -> Rescaling:
    """The integers of the layer's multipliers, rounded twice, or if its sums are wide once."""
    pairs = [quantize_multiplier(m) for m in (layer.multipliers[channels] if len(layer.multipliers) > 1 else layer.multipliers)]
    multipliers = tuple(reduced_multiplier(m) if layer.wide else m for m, _ in pairs)
    return Rescaling(multipliers, tuple(s for _, s in pairs), "single" if layer.wide else "double")


def _rescaling_once(op: Operator, acc: Expr, *, layer: QuantizedLayer) -> tuple[Expr, Rescaling]:
    """The sums, with those replaced whose products exceed an int32, and the integers of the layer's multipliers."""
    assert layer.output.quant is not None
    low, high = int_range(layer.output.dtype)
    zp, largest, reals = layer.output.quant.zero_point[0], largest_sums(op, layer, channel_axis=0), layer.multipliers
    if layer.acc_dtype == "int32":  # a larger sum wraps
        largest = np.minimum(largest, (1 << 31) - 1)
    added = zp + 128 if LEGACY in op.forms else zp
    sums = cast_sums(reals, largest.tolist(), zero_point=added, dtype=layer.acc_dtype)
    if sums is not None:
        acc = op.call("qnn.cast_sums", [acc], qnn.CastSumsAttrs(sums.limit, sums.bound, sums.sign))
        reals, largest = sums.reals, np.minimum(largest, sums.bound)
    return acc, rounded_once(reals, largest.tolist(), (low - zp, high - zp))


def finish_layer(op: Operator, acc: Call, layer: QuantizedLayer, *, channels: slice = slice(None)) -> Expr:
    """bias_add if there is a bias, requantize, clip if there is an activation; `channels`: the output channels in `acc`."""
    expr: Expr = acc
    if op.input(2) is not None:
        bias_type = op.type(2)
        if bias_type.dtype != "int32" and not layer.wide:
            op.refuse(f"a bias of {bias_type.dtype} is not supported with {op.type(0).dtype} data")
        expr = op.call("nn.bias_add", [expr, const(_layer_bias(op, layer)[channels])])
    quant = layer.output.quant
    assert quant is not None
    limits, dtype = int_range(layer.output.dtype), layer.output.dtype
    expr, by = _rescaling_once(op, expr, layer=layer) if _rounds_once(op) else (expr, _rescaling(layer, channels))
    attrs = qnn.RequantizeAttrs(by.multipliers, by.shifts, quant.zero_point[0], *limits, by.rounding, dtype, quant, by.fraction)
    expr = op.call("qnn.requantize", [expr], attrs)
    clamp = op.fused_range(layer.output)
    return expr if clamp == limits else op.call("clip", [expr], qnn.ClipAttrs(*clamp))


# Float32 data with integer weights: the data are quantised at run time.


def is_hybrid_layer(op: Operator) -> bool:
    """Whether data and result are float32 and the weights integers; the reference has no 4-bit weights for DEPTHWISE_CONV_2D."""
    kinds = (op.type(0).dtype, op.type(1).dtype, op.result_type().dtype)
    narrow = kinds == ("float32", "int4", "float32") and op.opcode != "DEPTHWISE_CONV_2D"
    return narrow or kinds == ("float32", "int8", "float32")


def is_symmetric_conv(op: Operator) -> bool:
    """Whether CONV_2D quantises its data symmetrically: with one weight scale (or equal ones) and one group."""
    weight = op.type(1)
    return weight.quant is not None and len(set(weight.quant.scale)) == 1 and weight.shape[3] == op.type(0).shape[3]


def quantized_data(op: Operator, data: Expr, *, asymmetric: bool) -> tuple[Expr, Expr]:
    """Float32 data as integers, each batch by itself, and how they are quantised."""
    params = op.call(qnn.PARAMS, [op.call(qnn.RANGE, [data])], qnn.DynamicParamsAttrs(asymmetric))
    return op.call(qnn.QUANTIZE, [data, params], qnn.DynamicQuantizeAttrs(asymmetric)), params


_LARGEST = float(np.finfo(np.float32).max)


def convert_hybrid(
    op: Operator,
    layer: Callable[[Expr, Constant], Expr],
    data: Expr,
    *,
    channel_axis: int,
    asymmetric: bool,
    weight_first: bool = False,
) -> Expr:
    """The layer on `data`, quantised batch by batch; `channel_axis` is the axis of the weights' output channels.

    `layer(integers, weights)` gives the sums, int32 [B, ..., C].
    """
    scales, weight = _hybrid_weights(op, channel_axis=channel_axis)
    integers, params = quantized_data(op, data, asymmetric=asymmetric)
    operands = [layer(integers, weight), params, const(scales), *_float_bias(op)]
    lo, hi = bounds(op)
    if op.opcode != "FULLY_CONNECTED":  # convolutions always clamp to finite numbers
        lo, hi = -_LARGEST if lo is None else lo, _LARGEST if hi is None else hi
    return op.call(qnn.HYBRID, operands, qnn.HybridOutputAttrs(weight_first, lo, hi))


def hybrid_operands(op: Operator, data: Expr) -> list[Expr]:
    """Operands of an operator that is a whole hybrid layer: data, their quantisation, weights, their scales, the bias."""
    scales, weight = _hybrid_weights(op, channel_axis=0)
    return [*quantized_data(op, data, asymmetric=True), weight, const(scales), *_float_bias(op)]


def _hybrid_weights(op: Operator, *, channel_axis: int) -> tuple[Array, Constant]:
    """Weight scales, float32 [1] or [C], and the weights."""
    type_ = op.type(1)
    if type_.quant is None:
        op.refuse(f"weights of {type_.dtype} have no quantisation parameters", code="E1206")
    count = len(type_.quant.scale)
    if count not in (1, type_.shape[channel_axis]) or (count > 1 and type_.quant.axis != channel_axis):
        op.refuse(f"{count} weight scales along axis {type_.quant.axis} do not match the weights", code="E1223")
    if any(type_.quant.zero_point):
        op.refuse("integer weights with a zero point are not supported with float32 data", code="E1224")
    scales = np.asarray(type_.quant.scale, np.float32)
    # equal scales along the axis are merged; the integer kernels for int16 data use one byte per weight
    return (scales[:1] if len(set(type_.quant.scale)) == 1 else scales), const(op.constant(1), dtype="int8")


# Windows.


@dataclass(frozen=True, slots=True)
class Window:
    """A window sliding over an image; everything is (vertical, horizontal)."""

    image: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...] = (1, 1)


def fit_axis(scheme: str, size: int, kernel: int, *, stride: int, dilation: int = 1) -> tuple[int, int, int]:
    """ComputeOutSize and ComputePaddingWithOffset along one axis: (output size, padding before, after).

    If the total is odd, the larger half comes after.
    """
    effective = (kernel - 1) * dilation + 1
    if scheme == "SAME":
        out = -(-size // stride)
    elif scheme == "VALID":
        out = (size + stride - effective) // stride
    else:
        raise ValueError(scheme)
    total = max((out - 1) * stride + effective - size, 0)
    return out, total // 2, total - total // 2


def explicit_padding(scheme: str, window: Window) -> Padding:
    """SAME or VALID as numbers of rows and columns."""
    (top, bottom), (left, right) = (
        fit_axis(scheme, window.image[i], window.kernel[i], stride=window.strides[i], dilation=window.dilation[i])[1:]
        for i in range(2)
    )
    return top, left, bottom, right


def image_window(op: Operator) -> tuple[tuple[int, int], Padding, tuple[int, int]]:
    """Strides, padding and dilation of a convolution of an image by weights [?, KH, KW, ?]."""
    shape, weight = op.type(0).shape, op.type(1).shape
    if len(shape) != 4 or len(weight) != 4:
        op.refuse("data and weights must have four dimensions")
    strides = (op.option("stride_h"), op.option("stride_w"))
    dilation = (op.option("dilation_h_factor"), op.option("dilation_w_factor"))
    return strides, explicit_padding(op.option("padding"), Window(shape[1:3], weight[1:3], strides, dilation)), dilation


# FULLY_CONNECTED and BATCH_MATMUL.


@converter(
    "FULLY_CONNECTED",
    "int8*int8 int8*int4 int16*int8 int16*int4 uint8*uint8 float32*int4 float32*int8 float32*float32",
    "nn.dense nn.dense_float qnn.dense_blockwise qnn.dynamic_params qnn.dynamic_quantize qnn.dynamic_range qnn.hybrid_output",
    oracle=EITHER,
)
@legacy_uint8
def _dense(op: Operator) -> Expr:
    """reshape to rows, dense + bias_add + requantize (+ clip), reshape to the output's shape."""
    blocks = op.ctx.blocks(op.view, 1)
    if blocks is not None:
        return _hybrid_dense(_NoScale(op.ctx, op.view)) if op.ctx.to_the_letter else _blockwise(op, blocks)
    if is_float_layer(op):
        rows, shape = _dense_shapes(op)
        data, *others = layer_operands(op)
        return op.reshaped(op.call(nn.DENSE_FLOAT, [op.reshaped(data, rows), *others], nn.DenseFloatAttrs(*bounds(op))), shape)
    if is_hybrid_layer(op):
        return _hybrid_dense(op)
    data = op.operand(0)
    layer = check_quantized_layer(op, channel_axis=0)
    rows, shape = _dense_shapes(op)
    attrs = nn.DenseAttrs(layer.input_zp, layer.weight_zp, layer.acc_dtype)
    weight = running_weights(op)
    if weight is None:
        weight = layer_weights(op, layer, channel_axis=0)
    elif layer.flipped:
        op.refuse("weights computed at run time with a negative scale are not supported", code="E1226")
    acc = op.call("nn.dense", [op.reshaped(data, rows), weight], attrs)
    return op.reshaped(finish_layer(op, acc, layer), shape)


class _NoScale(Operator):
    """Weights with per-block scales as LiteRT's reference kernel sees them: with a single scale that nobody has set."""

    def type(self, i: int, allowed: Collection[str] | None = None, *, what: str = "data") -> TensorType:
        type_ = super().type(i, allowed, what=what)
        return replace(type_, quant=QuantParams((0.0,), (0,))) if i == 1 else type_


def _hybrid_dense(op: Operator) -> Expr:
    """Float32 data with integer weights: rows, each quantised separately, and the output's shape."""
    rows, shape = _dense_shapes(op)

    def layer(integers: Expr, weight: Constant) -> Expr:
        return op.call("nn.dense", [integers, weight], nn.DenseAttrs())

    asymmetric = bool(op.option("asymmetric_quantize_inputs"))
    data = op.reshaped(op.operand(0), rows)
    return op.reshaped(convert_hybrid(op, layer, data, channel_axis=0, asymmetric=asymmetric), shape)


def _dense_shapes(op: Operator) -> tuple[tuple[int, int], tuple[int, ...]]:
    """FULLY_CONNECTED's data as rows, and the shape of its result: rows of channels, or with `keep_num_dims` like the data.

    If the file declares another shape with as many elements, that one is used: TFLite Micro's kernels ignore it.
    """
    if op.option("weights_format") != "DEFAULT":
        op.refuse(f"weight format {op.option('weights_format')} is not supported")
    data, weight, declared = op.type(0).shape, op.type(1).shape, op.result_shape()
    if len(weight) != 2:
        op.refuse(f"weights of {len(weight)} dimensions are not supported", code="E1207")
    channels, depth = weight
    rows, remainder = divmod(prod(data), depth)
    if remainder or (declared is not None and rows * channels != prod(declared)):
        op.refuse(f"data of {prod(data)} values does not match weights {list(weight)}", code="E1207")
    keep = op.option("keep_num_dims") and data[-1:] == (depth,)
    return (rows, depth), declared or ((*data[:-1], channels) if keep else (rows, channels))


def _blockwise(op: Operator, blocks: Blocks) -> Expr:
    """Rows, each quantised by itself, qnn.dense_blockwise, and the output's shape."""
    data, weight = op.type(0), op.type(1)
    if (data.dtype, weight.dtype, op.result_type().dtype) != ("float32", "int4", "float32"):
        op.refuse(f"blockwise quantisation of {weight.dtype} weights for {data.dtype} data is not supported", code="E1220")
    if op.option("fused_activation_function") != "NONE":
        op.refuse("blockwise quantisation with a fused activation is not supported (TFLite rejects it too)")
    if blocks.size % 2 or blocks.size > nn.MOST:
        op.refuse(f"blocks of {blocks.size} weights are not supported; only even numbers up to {nn.MOST}", code="E1220")
    rows, shape = _dense_shapes(op)
    data_and_params = quantized_data(op, op.reshaped(op.operand(0), rows), asymmetric=True)
    args = [*data_and_params, const(nn.packed(op.constant(1))), const(blocks.scales), *_float_bias(op)]
    return op.reshaped(op.call(nn.BLOCKWISE, args, nn.DenseBlockwiseAttrs(blocks.size)), shape)


_MATMUL_KINDS = (("int8", "int8", "int8"), ("int16", "int16", "int16"), ("int16", "int8", "int16"))


@converter("BATCH_MATMUL", "int8 int16 float32", "nn.batch_matmul")
def _batch_matmul(op: Operator) -> Expr:
    """batch_matmul, + requantize for integers; a fully connected layer if the right side is one constant matrix."""
    a, b, out = op.type(0), op.type(1), op.result_type()
    kind = (a.dtype, b.dtype, out.dtype)
    adj_x, adj_y = bool(op.option("adj_x")), bool(op.option("adj_y"))
    left, right = op.operands(0, 1)
    if kind == ("float32",) * 3:
        attrs = nn.BatchMatmulAttrs(adj_x, adj_y, acc_dtype="float32")
        if _is_one_matrix(right) and right.stored is None and not adj_x:
            dense = op.call(
                "nn.dense_float", [_matmul_rows(op, left, a), _matmul_weights(right, adj_y=adj_y)], nn.DenseFloatAttrs()
            )
            return op.call("reshape", [dense], ReshapeAttrs(attrs.infer_type(a, b).shape))
        return op.call("nn.batch_matmul", [left, right], attrs)
    if kind not in _MATMUL_KINDS:
        op.refuse(f"{kind[0]} by {kind[1]} giving {kind[2]} is not supported", code="E1202")
    (scale_a, a_zp), (scale, zp) = op.quant(a, may_be_zero=True), op.quant(out, what="the result")
    # the reference ignores per-channel scales: its multiplier is then 0
    per_channel = b.quant is not None and len(b.quant.scale) > 1 and not any(b.quant.zero_point)
    scale_b, b_zp = (0.0, 0) if per_channel else op.quant(b, may_be_zero=True)
    op.require_symmetric(a.dtype, a_zp, b_zp, zp)
    depth = nn.matrix_of(a.shape, adj_x)[1]
    acc_dtype = "int64" if a.dtype == "int16" and -int_range(b.dtype)[0] * depth << 15 >= 1 << 31 else "int32"
    multiplier, shift = op.multiplier(a.dtype, (scale_a, scale_b), (scale,))
    rounding = "double"
    if a.dtype == "int16":
        multiplier, rounding = reduced_multiplier(multiplier), "single"
    requant = qnn.RequantizeAttrs((multiplier,), (shift,), zp, *int_range(out.dtype), rounding, out.dtype, out.quant)
    if _is_one_matrix(right) and not adj_x:
        weights = _matmul_weights(right, adj_y=adj_y, quant=b.quant)
        acc = op.call("nn.dense", [_matmul_rows(op, left, a), weights], nn.DenseAttrs(a_zp, b_zp, acc_dtype))
        shape = nn.BatchMatmulAttrs(adj_x, adj_y).infer_type(a, b).shape
        return op.call("reshape", [op.call("qnn.requantize", [acc], requant)], ReshapeAttrs(shape))
    acc = op.call("nn.batch_matmul", [left, right], nn.BatchMatmulAttrs(adj_x, adj_y, a_zp, b_zp, acc_dtype))
    return op.call("qnn.requantize", [acc], requant)


def _is_one_matrix(right: Expr) -> TypeGuard[Constant]:
    """Whether the right side is a constant with no leading dimensions other than 1."""
    return isinstance(right, Constant) and right.data.size == right.data.shape[-1] * right.data.shape[-2]


def _matmul_rows(op: Operator, left: Expr, a: TensorType) -> Expr:
    """All rows of all matrices of the left side."""
    return op.call("reshape", [left], ReshapeAttrs((int(np.prod(a.shape[:-1])), a.shape[-1])))


def _matmul_weights(right: Constant, *, adj_y: bool, quant: QuantParams | None = None) -> Constant:
    """The matrix in the form of a fully connected layer: [N, K]."""
    matrix = right.data.reshape(right.data.shape[-2:])
    return const(np.ascontiguousarray(matrix if adj_y else matrix.T), quant=quant)
