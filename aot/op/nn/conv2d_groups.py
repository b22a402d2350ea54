"""CONV_2D in groups: G times as many data channels as the filters have; output channel o reads those of group o / (O / G).

With one channel a group that is a depthwise convolution, whose weights lie in another order.  Otherwise it is a convolution of
each group's channels (or of those of two small groups), and the results side by side; so every pass and kernel for convolutions
applies.  The sums and their requantisation are those of the whole layer.  Oracles: `ConvPerChannel` and `Conv`, as for nn.conv2d.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aot.frontend.view import OperatorView
from aot.ir.type import QuantParams
from aot.op.common.quantized_layer import QuantizedLayer, finish_layer
from aot.op.convert import ConvertContext
from aot.op.nn.depthwise_conv2d import DepthwiseConv2DAttrs
from aot.op.tensor.concatenate import ConcatenateAttrs
from aot.op.tensor.strided_slice import slice_of
from aot.relay.expr import Constant, Expr, call, const, tensor_type


def convert_groups(
    ctx: ConvertContext, op: OperatorView, layer: QuantizedLayer, *, args: tuple[Expr, Constant], attrs: Any
) -> Expr:
    """From data [N, H, W, G*I] and weights [O, KH, KW, I], O a multiple of G; `attrs` are those of nn.conv2d."""
    data, weight = args
    if weight.type.shape[3] == 1:
        return _depthwise(ctx, op, layer, args=args, attrs=attrs)
    shape = tensor_type(data).shape
    if weight.type.shape[3] == 2 and shape[3] % 4 == 0:
        weight = _paired(weight, shape[3] // 2, zero=attrs.weight_zp)
    count, _, _, depth = weight.type.shape
    each = count * depth // shape[3]
    parts = []
    for g in range(shape[3] // depth):
        channels = slice(g * each, (g + 1) * each)
        positions = (*map(range, shape[:3]), range(g * depth, (g + 1) * depth))
        part = _weights(weight, channels)
        acc = call("nn.conv2d", [slice_of(ctx, op, data, positions), part], attrs, span=ctx.span(op))
        parts.append(finish_layer(ctx, op, acc, layer=layer, rounding="double", channels=channels))
    return call("concatenate", parts, ConcatenateAttrs(3), span=ctx.span(op))


def _paired(weight: Constant, groups: int, *, zero: int) -> Constant:
    """Two groups of two channels as one of four, with zeros for the other group's channels.

    Words of data instead of halfwords: half the time on a Cortex-M4 in spite of twice the products.
    """
    count, height, width, depth = weight.type.shape
    pairs = np.full((groups // 2, 2, count // groups, height, width, 2, depth), zero, weight.data.dtype)
    for side in range(2):
        pairs[:, side, ..., side, :] = weight.data.reshape(groups // 2, 2, count // groups, height, width, depth)[:, side]
    return const(pairs.reshape(count, height, width, 2 * depth), quant=weight.type.quant, dtype=weight.type.dtype)


def _weights(weight: Constant, channels: slice) -> Constant:
    """Those of some output channels."""
    quant = weight.type.quant
    if quant is not None and len(quant.scale) > 1:
        quant = QuantParams(quant.scale[channels], quant.zero_point[channels], quant.axis)
    return const(weight.data[channels], quant=quant, dtype=weight.type.dtype)


def _depthwise(ctx: ConvertContext, op: OperatorView, layer: QuantizedLayer, *, args: tuple[Expr, Constant], attrs: Any) -> Expr:
    """Groups of one channel: weights [1, KH, KW, O]."""
    data, weight = args
    quant = weight.type.quant
    if quant is not None:
        quant = QuantParams(quant.scale, quant.zero_point, 3 if quant.is_per_channel else None)
    moved = const(np.ascontiguousarray(weight.data.transpose(3, 1, 2, 0)), quant=quant, dtype=weight.type.dtype)
    multiplier = weight.type.shape[0] // tensor_type(data).shape[3]
    depthwise = DepthwiseConv2DAttrs(
        attrs.strides,
        attrs.padding,
        attrs.dilation,
        attrs.input_zp,
        attrs.pad_value,
        multiplier,
        attrs.weight_zp,
        attrs.acc_dtype,
    )
    acc = call("nn.depthwise_conv2d", [data, moved], depthwise, span=ctx.span(op))
    return finish_layer(ctx, op, acc, layer=layer, rounding="double")
