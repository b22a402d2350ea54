"""Shared by converters of convolutions and dense layers: integer, float32 and hybrid layers (float32 data, integer weights)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf, isfinite

import numpy as np

from aot.frontend.tflite.convert import Operator
from aot.frontend.tflite.retyped import LEGACY
from aot.ir.op import Array
from aot.ir.type import QuantParams, TensorType
from aot.numerics.fixed_point import precision, quantize_multiplier, quotient, reduced_multiplier
from aot.numerics.ties import Rescaling, as_fixed_point, cast_sums, rounded_once
from aot.op.common.layer import FLOAT_ACTIVATIONS, Padding
from aot.op.nn.conv import Conv2DFloatAttrs, DepthwiseConv2DFloatAttrs
from aot.op.qnn.quantize import (
    HYBRID,
    PARAMS,
    QUANTIZE,
    RANGE,
    CastSumsAttrs,
    ClipAttrs,
    DynamicParamsAttrs,
    DynamicQuantizeAttrs,
    HybridOutputAttrs,
    RequantizeAttrs,
)
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


def layer_operands(op: Operator) -> list[Expr]:
    """Data, weights and, if present, the bias."""
    operands = op.operands(0, 1)
    bias = op.input(2)
    if bias is None:
        return operands
    if op.type(2).dtype != "float32":
        op.refuse(f"a bias of {op.type(2).dtype} is not supported with float32 data")
    return [*operands, bias]


def convert_window(op: Operator, name: str, attrs_type: type[Conv2DFloatAttrs] | type[DepthwiseConv2DFloatAttrs]) -> Expr:
    """A call of `name` for a convolution whose weights are [?, KH, KW, ?]."""
    shape, weight = op.type(0).shape, op.type(1).shape
    if len(shape) != 4 or len(weight) != 4:
        op.refuse("data and weights must have four dimensions")
    strides = (op.option("stride_h"), op.option("stride_w"))
    dilation = (op.option("dilation_h_factor"), op.option("dilation_w_factor"))
    pads = explicit_padding(op.option("padding"), Window(shape[1:3], weight[1:3], strides, dilation))
    return op.call(name, layer_operands(op), attrs_type(strides, pads, dilation, *bounds(op)))


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
    """Whether the reference multiplies the sums by doubles; any double gives a result."""
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
    if layer.input_zp != 0 or layer.output.quant.zero_point[0] != 0:
        op.refuse("int16 with a non-zero zero point is not supported (TFLite rejects it too)", code="E1224")
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


def _rescaling(layer: QuantizedLayer, *, rounding: str, channels: slice) -> Rescaling:
    """The integers of the layer's multipliers."""
    pairs = [quantize_multiplier(m) for m in (layer.multipliers[channels] if len(layer.multipliers) > 1 else layer.multipliers)]
    if layer.wide:
        pairs, rounding = [(reduced_multiplier(m), s) for m, s in pairs], "single"
    return Rescaling(tuple(m for m, _ in pairs), tuple(s for _, s in pairs), rounding)


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
        acc = op.call("qnn.cast_sums", [acc], CastSumsAttrs(sums.limit, sums.bound, sums.sign))
        reals, largest = sums.reals, np.minimum(largest, sums.bound)
    return acc, rounded_once(reals, largest.tolist(), (low - zp, high - zp))


def finish_layer(op: Operator, acc: Call, *, layer: QuantizedLayer, rounding: str, channels: slice = slice(None)) -> Expr:
    """bias_add if there is a bias, requantize, clip if there is an activation.

    `channels`: the layer's output channels in `acc`; `rounding`: "double", or "once" with halves away from zero.
    """
    expr: Expr = acc
    if op.input(2) is not None:
        bias_type = op.type(2)
        if bias_type.dtype != "int32" and not layer.wide:
            op.refuse(f"a bias of {bias_type.dtype} is not supported with {op.type(0).dtype} data")
        expr = op.call("nn.bias_add", [expr, const(_layer_bias(op, layer)[channels])])
    quant = layer.output.quant
    assert quant is not None
    low, high = int_range(layer.output.dtype)
    zp, dtype = quant.zero_point[0], layer.output.dtype
    if rounding == "once":
        expr, by = _rescaling_once(op, expr, layer=layer)
    else:
        by = _rescaling(layer, rounding=rounding, channels=channels)
    attrs = RequantizeAttrs(by.multipliers, by.shifts, zp, low, high, by.rounding, dtype, quant, by.fraction)
    expr = op.call("qnn.requantize", [expr], attrs)
    lo, hi = op.fused_range(layer.output)
    if (lo, hi) != (low, high):
        expr = op.call("clip", [expr], ClipAttrs(lo, hi))
    return expr


_LARGEST_WEIGHT = float(np.finfo(np.float32).max)


# ---- conversion


def is_hybrid_layer(op: Operator) -> bool:
    """Whether data and result are float32 and the weights integers; the reference has no 4-bit weights for DEPTHWISE_CONV_2D."""
    kinds = (op.type(0).dtype, op.type(1).dtype, op.result_type().dtype)
    narrow = kinds == ("float32", "int4", "float32") and op.opcode != "DEPTHWISE_CONV_2D"
    return narrow or kinds == ("float32", "int8", "float32")


def is_symmetric_conv(op: Operator) -> bool:
    """Whether CONV_2D quantises its data symmetrically: with one weight scale (or equal ones) and one group."""
    weight = op.type(1)
    return weight.quant is not None and len(set(weight.quant.scale)) == 1 and weight.shape[3] == op.type(0).shape[3]


def convert_hybrid(
    op: Operator,
    layer: Callable[[Expr, Constant], Expr],
    *,
    data: Expr,
    channel_axis: int,
    asymmetric: bool,
    weight_first: bool = False,
) -> Expr:
    """The layer on `data`, quantised batch by batch; `channel_axis` is the axis of the weights' output channels.

    `layer(integers, weights)` gives the sums, int32 [B, ..., C].
    """
    scales, weight = hybrid_weights(op, channel_axis=channel_axis)
    ends = op.call(RANGE, [data])
    params = op.call(PARAMS, [ends], DynamicParamsAttrs(asymmetric))
    integers = op.call(QUANTIZE, [data, params], DynamicQuantizeAttrs(asymmetric))
    operands = [layer(integers, weight), params, const(scales)]
    bias = op.input(2)
    if bias is not None:
        if op.type(2).dtype != "float32":
            op.refuse(f"a bias of {op.type(2).dtype} is not supported with float32 data")
        operands.append(bias)
    lo, hi = bounds(op)
    if op.opcode != "FULLY_CONNECTED":  # convolutions always clamp to finite numbers
        lo, hi = -_LARGEST_WEIGHT if lo is None else lo, _LARGEST_WEIGHT if hi is None else hi
    return op.call(HYBRID, operands, HybridOutputAttrs(weight_first, lo, hi))


def hybrid_weights(op: Operator, *, channel_axis: int) -> tuple[Array, Constant]:
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
