"""Converters of operators with windows: convolutions (also transposed, of volumes, and MediaPipe's) and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from aot.errors import UnsupportedError
from aot.frontend.tflite import layer as layers
from aot.frontend.tflite.convert import ACTIVATION_NAMES, Operator, converter, padding_name, steps_and_window, struct_options
from aot.frontend.tflite.retyped import legacy_uint8
from aot.ir.type import QuantParams, TensorType
from aot.op.common.layer import FLOAT_ACTIVATIONS, Bounds, PoolAttrs
from aot.op.math.arithmetic import BinaryAttrs
from aot.op.math.unary import UnaryAttrs
from aot.op.nn import conv as nn
from aot.op.nn.pool import ARGMAX, UNPOOLING, UnpoolAttrs
from aot.op.tensor import ConcatenateAttrs
from aot.relay.expr import Constant, Expr, const, tensor_type
from aot.support.dtype import is_float


@converter(
    "CONV_2D",
    "int8*int8 int8*int4 int16*int8 int16*int4 uint8*uint8 float32*int4 float32*int8 float32*float32",
    "nn.conv2d nn.conv2d_float qnn.dynamic_params qnn.dynamic_quantize qnn.dynamic_range qnn.hybrid_output",
)
@legacy_uint8
def _conv2d(op: Operator) -> Expr:
    """conv2d + bias_add + requantize (+ clip); with fewer weight channels than data channels, in groups."""
    if layers.is_float_layer(op):
        window = layers.image_window(op)
        return op.call(nn.CONV2D_FLOAT, layers.layer_operands(op), nn.Conv2DFloatAttrs(*window, *layers.bounds(op)))
    if layers.is_hybrid_layer(op):
        return _hybrid_conv2d(op)
    layer = layers.check_quantized_layer(op, channel_axis=0)
    groups, attrs = _conv2d_geometry(op)
    zp = layer.input_zp
    attrs = replace(attrs, input_zp=zp, pad_value=zp, weight_zp=layer.weight_zp, acc_dtype=layer.acc_dtype)
    data, weight = op.operand(0), layers.layer_weights(op, layer, channel_axis=0)
    if groups > 1:
        return _in_groups(op, layer, data, weight, attrs)
    return layers.finish_layer(op, op.call("nn.conv2d", [data, weight], attrs), layer)


def _conv2d_geometry(op: Operator) -> tuple[int, nn.Conv2DAttrs]:
    """The number of groups, and the window."""
    window, shape, weight = layers.image_window(op), op.type(0).shape, op.type(1).shape
    groups = shape[3] // max(weight[3], 1)
    if groups == 0 or shape[3] != groups * weight[3] or weight[0] % groups:
        op.refuse(f"{shape[3]} data channels, {weight[3]} and {weight[0]} of the weights do not form groups", code="E1207")
    return groups, nn.Conv2DAttrs(*window)


def _hybrid_conv2d(op: Operator) -> Expr:
    """Float32 data with integer weights: each image is quantised as a whole; groups side by side."""
    groups, attrs = _conv2d_geometry(op)
    shape = op.type(0).shape
    depth, symmetric = shape[3] // groups, layers.is_symmetric_conv(op)

    def layer(integers: Expr, weight: Constant) -> Expr:
        if groups == 1:
            return op.call("nn.conv2d", [integers, weight], attrs)
        parts = []
        for group, filters in enumerate(np.split(weight.data, groups)):
            channels = range(group * depth, (group + 1) * depth)
            data = op.slice_of(integers, (*map(range, shape[:3]), channels))
            parts.append(op.call("nn.conv2d", [data, const(filters)], attrs))
        return op.call("concatenate", parts, ConcatenateAttrs(3))

    return layers.convert_hybrid(op, layer, op.operand(0), channel_axis=0, asymmetric=not symmetric, weight_first=not symmetric)


# CONV_2D in groups: G times as many data channels as the filters have; output channel o reads those of group o / (O / G).
#
# With one channel per group this is a depthwise convolution, whose weights have another order.  Otherwise it is a convolution of
# each group's channels (or those of two small groups), with the results side by side, so that every pass and kernel for
# convolutions applies.  The sums are requantised like the whole layer's.  Oracles: `ConvPerChannel` and `Conv`, as for nn.conv2d.


def _in_groups(op: Operator, layer: layers.QuantizedLayer, data: Expr, weight: Constant, attrs: nn.Conv2DAttrs) -> Expr:
    """From data [N, H, W, G*I] and weights [O, KH, KW, I], O a multiple of G."""
    if weight.type.shape[3] == 1:
        return _groups_as_depthwise(op, layer, data, weight, attrs)
    shape = tensor_type(data).shape
    if weight.type.shape[3] == 2 and shape[3] % 4 == 0:
        weight = _paired_groups(weight, shape[3] // 2, zero=attrs.weight_zp)
    count, _, _, depth = weight.type.shape
    each = count * depth // shape[3]
    parts = []
    for g in range(shape[3] // depth):
        channels = slice(g * each, (g + 1) * each)
        positions = (*map(range, shape[:3]), range(g * depth, (g + 1) * depth))
        acc = op.call("nn.conv2d", [op.slice_of(data, positions), _group_weights(weight, channels)], attrs)
        parts.append(layers.finish_layer(op, acc, layer, channels=channels))
    return op.call("concatenate", parts, ConcatenateAttrs(3))


def _paired_groups(weight: Constant, groups: int, *, zero: int) -> Constant:
    """Two groups of two channels as one of four, with zeros for the other group's channels.

    It reads words of data instead of halfwords: half the time on a Cortex-M4 despite twice the products.
    """
    count, height, width, depth = weight.type.shape
    pairs = np.full((groups // 2, 2, count // groups, height, width, 2, depth), zero, weight.data.dtype)
    for side in range(2):
        pairs[:, side, ..., side, :] = weight.data.reshape(groups // 2, 2, count // groups, height, width, depth)[:, side]
    return const(pairs.reshape(count, height, width, 2 * depth), quant=weight.type.quant, dtype=weight.type.dtype)


def _group_weights(weight: Constant, channels: slice) -> Constant:
    """The weights of some output channels."""
    quant = weight.type.quant
    if quant is not None and len(quant.scale) > 1:
        quant = QuantParams(quant.scale[channels], quant.zero_point[channels], quant.axis)
    return const(weight.data[channels], quant=quant, dtype=weight.type.dtype)


def _groups_as_depthwise(op: Operator, layer: layers.QuantizedLayer, data: Expr, weight: Constant, attrs: nn.Conv2DAttrs) -> Expr:
    """Groups of one channel: weights [1, KH, KW, O]."""
    quant = weight.type.quant
    if quant is not None:
        quant = QuantParams(quant.scale, quant.zero_point, 3 if quant.is_per_channel else None)
    moved = const(np.ascontiguousarray(weight.data.transpose(3, 1, 2, 0)), quant=quant, dtype=weight.type.dtype)
    multiplier = weight.type.shape[0] // tensor_type(data).shape[3]
    window, zps = (attrs.strides, attrs.padding, attrs.dilation), (attrs.input_zp, attrs.pad_value)
    depthwise = nn.DepthwiseConv2DAttrs(*window, *zps, multiplier, attrs.weight_zp, attrs.acc_dtype)
    return layers.finish_layer(op, op.call("nn.depthwise_conv2d", [data, moved], depthwise), layer)


@converter(
    "DEPTHWISE_CONV_2D",
    "int8*int8 int8*int4 int16*int8 uint8*uint8 float32*int8 float32*float32",
    "nn.depthwise_conv2d nn.depthwise_conv2d_float qnn.dynamic_params qnn.dynamic_quantize qnn.dynamic_range qnn.hybrid_output",
)
@legacy_uint8
def _depthwise_conv2d(op: Operator) -> Expr:
    """depthwise_conv2d + bias_add + requantize (+ clip).

    The multiplier follows from the shapes, as in the reference; the option of that name is only a hint in old files.
    """
    if layers.is_float_layer(op):
        window = layers.image_window(op)
        return op.call(nn.DEPTHWISE_FLOAT, layers.layer_operands(op), nn.DepthwiseConv2DFloatAttrs(*window, *layers.bounds(op)))
    if layers.is_hybrid_layer(op):
        return _hybrid_depthwise(op)
    data = op.operand(0)
    layer = layers.check_quantized_layer(op, channel_axis=3)
    zp = layer.input_zp
    attrs = replace(_depthwise_window(op), input_zp=zp, pad_value=zp, weight_zp=layer.weight_zp, acc_dtype=layer.acc_dtype)
    weight = layers.layer_weights(op, layer, channel_axis=3)
    return layers.finish_layer(op, op.call("nn.depthwise_conv2d", [data, weight], attrs), layer)


def _depthwise_window(op: Operator) -> nn.DepthwiseConv2DAttrs:
    window, channels, filters = layers.image_window(op), op.type(0).shape[3], op.type(1).shape[3]
    multiplier, remainder = divmod(filters, channels)
    if remainder or multiplier == 0:
        op.refuse(f"{filters} weight channels are not a multiple of {channels} data channels", code="E1207")
    return nn.DepthwiseConv2DAttrs(*window, multiplier=multiplier)


def _hybrid_depthwise(op: Operator) -> Expr:
    """Float32 data with int8 weights: each image is quantised as a whole."""
    attrs = _depthwise_window(op)

    def layer(integers: Expr, weight: Constant) -> Expr:
        return op.call("nn.depthwise_conv2d", [integers, weight], attrs)

    return layers.convert_hybrid(op, layer, op.operand(0), channel_axis=3, asymmetric=True)


_TRANSPOSE_INPUTS = (2, 1, 3)
"""Positions of data, weights and bias among the operands; operand 0 is the shape of the result."""


def _transposed_size(op: Operator, image: Sequence[int], kernel: Sequence[int]) -> tuple[int, ...]:
    """The result's shape: operand 0.  If the model computes it at run time, the declared shape; or if that is open, the shape
    whose convolution has all of the data's pixels.
    """
    try:
        return tuple(map(int, op.constant(0).ravel()))
    except UnsupportedError:
        declared = op.result_shape()
    if declared is not None:
        return declared
    data, weight = op.type(2), op.type(1)
    strides, same = (op.option("stride_h"), op.option("stride_w")), op.option("padding") == "SAME"
    sizes = [n * s + (0 if same else max(k - s, 0)) for n, s, k in zip(image, strides, kernel, strict=True)]
    return (data.shape[0], *sizes, weight.shape[0])


@converter(
    "TRANSPOSE_CONV",
    "int8*int8 int8*int4 int16*int8 uint8*uint8 float32*int8 float32*float32",
    f"nn.conv2d_transpose {nn.FLOAT_TRANSPOSE} {nn.HYBRID_TRANSPOSE} qnn.dynamic_params qnn.dynamic_quantize qnn.dynamic_range",
)
@legacy_uint8
def _conv2d_transpose(op: Operator) -> Expr:
    """conv2d_transpose + bias_add + requantize (+ clip), conv2d_transpose_float, or the hybrid one of quantised data."""
    view = Operator(op.ctx, op.view, forms=op.forms, order=_TRANSPOSE_INPUTS)
    data, weight = view.type(0), view.type(1)
    if len(data.shape) != 4 or len(weight.shape) != 4:
        op.refuse("data and weights must have four dimensions")
    strides = (op.option("stride_h"), op.option("stride_w"))
    size = _transposed_size(op, data.shape[1:3], weight.shape[1:3])
    if len(size) != 4 or (size[0], size[3]) != (data.shape[0], weight.shape[0]):
        op.refuse(f"the size {size} does not match the result", code="E1120")
    cut = layers.explicit_padding(op.option("padding"), layers.Window(size[1:3], weight.shape[1:3], strides))[:2]
    if data.dtype == "float32" and op.result_type().dtype == "float32" and weight.dtype in ("float32", "int8"):
        clamp = Bounds(*layers.bounds(view))
        if weight.dtype == "int8":
            return op.call(
                nn.HYBRID_TRANSPOSE,
                layers.hybrid_operands(view, view.operand(0)),
                nn.HybridTransposeAttrs(strides, cut, size[1:3], clamp),
            )
        return op.call(nn.FLOAT_TRANSPOSE, layers.layer_operands(view), nn.FloatTransposeAttrs(strides, cut, size[1:3], clamp))
    layer = layers.check_quantized_layer(view, channel_axis=0)
    attrs = nn.Conv2DTransposeAttrs(strides, cut, size[1:3], layer.input_zp, layer.weight_zp, layer.acc_dtype)
    weights = layers.layer_weights(view, layer, channel_axis=0)
    return layers.finish_layer(view, op.call("nn.conv2d_transpose", [view.operand(0), weights], attrs), layer)


# Convolution2DTransposeBias: a transposed convolution on float32 whose sums start with the bias.
#
# Oracle: MediaPipe's `transpose_conv_bias.cc`, which has its own rule for what SAME cuts off.


def transpose_extent(size: int, kernel: int, stride: int, *, same: bool) -> tuple[int, int]:
    """(Rows of the result, rows cut off before the first one) for an image of `size` rows; the same for columns."""
    cut = max(0, kernel - (size - 1) % stride - 1) if same else 0
    return stride * (size - 1) + kernel - cut, cut // 2


@converter("CUSTOM:Convolution2DTransposeBias", "float32*float32", nn.FLOAT_TRANSPOSE, oracle="MediaPipe")
def _transpose_bias(op: Operator) -> Expr:
    """nn.conv2d_transpose_float on data, weights [O, KH, KW, I] and the bias."""
    data, weight, bias = (op.type(i, {"float32"}) for i in range(3))
    if (len(data.shape), len(weight.shape)) != (4, 4) or bias.shape != weight.shape[:1] or data.shape[3] != weight.shape[3]:
        op.refuse(f"{data}, {weight} and {bias} do not fit together", code="E1121")
    padding, width, height = struct_options(op, 3)
    steps_and_window(op, (height, width), (weight.shape[1], weight.shape[2]))
    same = padding_name(op, padding) == "SAME"
    axes = zip(data.shape[1:3], weight.shape[1:3], (height, width), strict=True)
    (rows, top), (columns, left) = (transpose_extent(n, k, s, same=same) for n, k, s in axes)
    if min(rows, columns) < 1:
        op.refuse(f"the result has {rows} rows and {columns} columns", code="E1121")
    attrs = nn.FloatTransposeAttrs((height, width), (top, left), (rows, columns), Bounds(), bias_first=True)
    return op.call(nn.FLOAT_TRANSPOSE, op.operands(0, 1, 2), attrs)


def _conv3d_numbers(op: Operator) -> tuple[nn.Triple, nn.Triple]:
    strides, dilation = (
        [op.option(f"{kind}_{a}{end}") for a in "dhw"] for kind, end in (("stride", ""), ("dilation", "_factor"))
    )
    return (strides[0], strides[1], strides[2]), (dilation[0], dilation[1], dilation[2])


def _finish_conv3d(op: Operator, result: Expr, *, bias: int) -> Expr:
    """The bias and the clamp of the fused activation."""
    if op.input(bias) is not None:
        op.require_dtype(op.type(bias), {"float32"}, what="a bias")
        result = op.call("add", [result, op.operand(bias)], BinaryAttrs())
    return layers.clamped(op, result)


def _conv3d_layer(op: Operator, data: int, weight: int) -> tuple[TensorType, TensorType]:
    types = op.type(data), op.type(weight)
    for type_, what in zip(types, ("data", "weights"), strict=True):
        op.require_dtype(type_, {"float32"}, what=what)
        if len(type_.shape) != 5 or not type_.size:
            op.refuse(f"{what} {type_} do not have five dimensions", code="E1207")
    if min(*_conv3d_numbers(op)[0], *_conv3d_numbers(op)[1]) < 1:
        op.refuse(f"strides and dilations {_conv3d_numbers(op)} are not positive", code="E1122")
    return types


@converter("CONV_3D", "float32", "add nn.conv3d relu")
def _conv3d(op: Operator) -> Expr:
    """nn.conv3d, the bias, the clamp."""
    (data, weight), (strides, dilation) = _conv3d_layer(op, 0, 1), _conv3d_numbers(op)
    if data.shape[4] != weight.shape[3]:
        op.refuse(f"{weight} do not match {data.shape[4]} channels", code="E1207")
    fits = [
        layers.fit_axis(op.option("padding"), data.shape[i + 1], weight.shape[i], stride=strides[i], dilation=dilation[i])
        for i in range(3)
    ]
    extents, before = [f[0] for f in fits], [f[1] for f in fits]
    if min(extents) < 1:
        op.refuse(f"a window {weight} does not fit {data}", code="E1207")
    attrs = nn.Conv3DAttrs(strides, dilation, (before[0], before[1], before[2]), (extents[0], extents[1], extents[2]))
    return _finish_conv3d(op, op.call("nn.conv3d", op.operands(0, 1), attrs), bias=2)


@converter("CONV_3D_TRANSPOSE", "float32", "add nn.conv3d_transpose relu")
def _conv3d_transpose(op: Operator) -> Expr:
    """nn.conv3d_transpose, the bias, the clamp; operand 0 is the result's shape."""
    (data, weight), (strides, dilation) = _conv3d_layer(op, 2, 1), _conv3d_numbers(op)
    shape = op.ints(0)
    ends = (data.shape[0], weight.shape[3], weight.shape[4])  # batch, channels of the result and of the data
    if len(shape) != 5 or (shape[0], shape[4], data.shape[4]) != ends or min(shape) < 1:
        op.refuse(f"{weight} do not give {shape} from {data}", code="E1207")
    before = []
    for axis in range(3):
        extent, start, _ = layers.fit_axis(
            op.option("padding"), shape[axis + 1], weight.shape[axis], stride=strides[axis], dilation=dilation[axis]
        )
        if extent != data.shape[axis + 1]:
            op.refuse(f"{data} does not result from {shape} with strides {strides}", code="E1207")
        before.append(start)
    attrs = nn.Conv3DTransposeAttrs(strides, dilation, (before[0], before[1], before[2]), (shape[1], shape[2], shape[3]))
    return _finish_conv3d(op, op.call("nn.conv3d_transpose", op.operands(2, 1), attrs), bias=3)


# Windows without weights: pooling, and MediaPipe's unpooling.


_Pair = tuple[int, int]


def _pool_window(op: Operator) -> tuple[_Pair, _Pair]:
    """The extents of the window, and the strides."""
    return (op.option("filter_height"), op.option("filter_width")), (op.option("stride_h"), op.option("stride_w"))


@converter("AVERAGE_POOL_2D", "int8 uint8 int16 float32", "nn.avg_pool2d")
@converter("MAX_POOL_2D", "int8 uint8 int16 float32", "nn.max_pool2d")
def _pool(op: Operator) -> Expr:
    """The pool, with the clamp of its fused activation (a separate operator for float32); input and output must have the same
    quantisation, as TFLite requires.
    """
    data, out = op.type(0, {"int8", "int16", "uint8", "float32"}), op.result_type()
    if len(data.shape) != 4:
        op.refuse("pooling needs four dimensions")
    limits = 0, 0
    if not is_float(data.dtype):
        if op.quant(data, may_be_zero=True)[0]:  # values of scale 0 are moved as they are
            op.require_same_quant(data, out)
        limits = op.fused_range(out)
    kernel, strides = _pool_window(op)
    if min(*kernel, *strides) < 1:
        op.refuse(f"a window of {kernel} with strides {strides} is not supported", code="E1122")
    padding = layers.explicit_padding(op.option("padding"), layers.Window(data.shape[1:3], kernel, strides))
    name = "nn.avg_pool2d" if op.opcode == "AVERAGE_POOL_2D" else "nn.max_pool2d"
    result = op.call(name, [op.operand(0)], PoolAttrs(kernel, strides, padding, *limits))
    return layers.clamped(op, result) if is_float(data.dtype) else result


@converter("L2_POOL_2D", "float32", "nn.avg_pool2d relu sqrt square")
def _l2_pool2d(op: Operator) -> Expr:
    """The squares, their mean, its root, and the clamp: `reference_ops::L2Pool`, in the same order."""
    data, (kernel, strides) = op.type(0, {"float32"}), _pool_window(op)
    if len(data.shape) != 4 or min(*kernel, *strides) < 1:
        op.refuse(f"a window of {kernel} with strides {strides} on {data} is not supported", code="E1122")
    padding = layers.explicit_padding(op.option("padding"), layers.Window(data.shape[1:3], kernel, strides))
    squares = op.call("square", [op.operand(0)], UnaryAttrs())
    means = op.call("nn.avg_pool2d", [squares], PoolAttrs(kernel, strides, padding, 0, 0))
    return layers.clamped(op, op.call("sqrt", [means], UnaryAttrs()))


@converter("CUSTOM:MaxPoolingWithArgmax2D", "float32", f"{ARGMAX} nn.max_pool2d relu", oracle="MediaPipe")
def _max_pool_argmax(op: Operator) -> list[Expr]:
    """The maxima, clamped by the activation, and their positions."""
    data = op.type(0, {"float32"})
    if len(data.shape) != 4:
        op.refuse("pooling needs four dimensions")
    padding, sx, sy, width, height, activation = struct_options(op, 6)
    steps_and_window(op, (sy, sx), (height, width))
    if activation not in ACTIVATION_NAMES:
        op.refuse(f"the fused activation {activation} is not supported")
    around = layers.explicit_padding(padding_name(op, padding), layers.Window(data.shape[1:3], (height, width), (sy, sx)))
    attrs = PoolAttrs((height, width), (sy, sx), around, 0, 0)
    x, (low, high) = op.operand(0), FLOAT_ACTIVATIONS[ACTIVATION_NAMES[activation]]
    maxima = op.call("relu", [op.call("nn.max_pool2d", [x], attrs)], UnaryAttrs(lo=low, hi=high))
    return [maxima, op.call(ARGMAX, [x], attrs)]


@converter("CUSTOM:MaxUnpooling2D", "float32", UNPOOLING, oracle="MediaPipe")
def _max_unpooling(op: Operator) -> Expr:
    """mediapipe.unpool; windows that overlap or leave gaps are refused."""
    for type_ in op.types(0, 1):
        op.require_dtype(type_, {"float32"})
    _, sx, sy, width, height = struct_options(op, 5)
    steps_and_window(op, (sy, sx), (height, width))
    if (sy, sx) != (height, width):
        op.refuse(f"strides {(sy, sx)} that differ from the window {(height, width)} are not supported")
    return op.call(UNPOOLING, op.operands(0, 1), UnpoolAttrs((height, width)))
