"""Convolutions that have one position along an axis, as they come of windows that move, in forms with faster kernels."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from aot.ir.op import Op
from aot.relay.construct import constructor
from aot.relay.expr import Call, Constant, Expr, Function, call, const, is_call, rewrite, tensor_type
from aot.relay.transform._moved import reshaped, with_span

_LAYERS = ("nn.conv2d", "nn.depthwise_conv2d")
_FOLLOWERS = ("nn.bias_add", "qnn.requantize", "qnn.lut", "clip")
"""What works on each element, with one constant for each channel."""


def narrow_windows(func: Function) -> Function:
    """`func` with the same results bit by bit, by two rules.

    A window with one position along an axis reads the same rows without dilation, once those between have been left out.  A
    convolution with one position in all is a fully connected layer, and the shape of its result can wait for what follows.
    """
    return rewrite(func, _rule)


def _rule(expr: Expr) -> Expr:
    if not isinstance(expr, Call) or not isinstance(expr.op, Op):
        return expr
    if expr.op.name in _LAYERS and isinstance(expr.args[1], Constant):
        return _dense(_undilated(expr))
    return _before_reshape(expr) if expr.op.name in _FOLLOWERS else expr


def _undilated(layer: Call) -> Call:
    """Without dilation along axes of one position and without padding."""
    data, weight = layer.args
    end, steps, dilation = list(tensor_type(data).shape), [1, 1, 1, 1], list(layer.attrs.dilation)
    for d in (0, 1):
        kernel = tensor_type(weight).shape[1 + d]
        if tensor_type(layer).shape[1 + d] == 1 and dilation[d] > 1 and not any(layer.attrs.padding[d::2]):
            end[1 + d] = (kernel - 1) * dilation[d] + 1
            steps[1 + d], dilation[d] = dilation[d], 1
    if steps == [1, 1, 1, 1]:
        return layer
    taken = constructor("strided_slice")(data, begin=(0, 0, 0, 0), end=tuple(end), strides=tuple(steps))
    taken = with_span(taken, replace(layer.span, tensor=-1))
    return call(layer.op.name, [taken, weight], replace(layer.attrs, dilation=tuple(dilation)), span=layer.span)  # type: ignore[union-attr]


def _dense(layer: Call) -> Expr:
    """nn.conv2d whose window is its whole image, as nn.dense."""
    data, weight = layer.args
    image, window = tensor_type(data).shape, tensor_type(weight).shape
    if not is_call(layer, "nn.conv2d") or image != (1, *window[1:]) or any(layer.attrs.padding):
        return layer
    assert isinstance(weight, Constant)
    depth, attrs = prod(image), layer.attrs
    matrix = const(weight.data.reshape(window[0], depth), quant=weight.type.quant, dtype=weight.type.dtype, span=weight.span)
    row = reshaped(data, (1, depth), replace(layer.span, tensor=-1))
    dense = constructor("nn.dense")(row, matrix, input_zp=attrs.input_zp, weight_zp=attrs.weight_zp, acc_dtype=attrs.acc_dtype)
    assert isinstance(dense, Call)
    return reshaped(replace(dense, span=layer.span), tensor_type(layer).shape, layer.span)


def _before_reshape(expr: Call) -> Expr:
    """f(reshape(x)) = reshape(f(x)) where the last axis, the channels, stays."""
    inner = expr.args[0]
    if not isinstance(inner, Call) or not is_call(inner, "reshape"):
        return expr
    data, shape = inner.args[0], tensor_type(expr).shape
    if not is_call(data, "nn.dense") and not _is_layer(data):
        return expr
    if tensor_type(data).shape[-1:] != shape[-1:]:
        return expr
    assert isinstance(expr.op, Op)
    return reshaped(call(expr.op, [data, *expr.args[1:]], expr.attrs, span=expr.span), shape, expr.span)


def _is_layer(expr: Expr) -> bool:
    """nn.dense and what follows it."""
    while isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.name in _FOLLOWERS:
        expr = expr.args[0]
    return is_call(expr, "nn.dense")
