"""Shrink the windows of convolutions whose outer rows or columns contribute nothing, or only a constant."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from aot.ir.op import Op, TypeRuleError
from aot.ir.transform import PassContext, function_pass
from aot.ir.type import TensorType
from aot.relay.analysis.channel_intervals import effective_weight
from aot.relay.analysis.interval import Int64, full_range
from aot.relay.analysis.window import axis_coverage, sums_fit, tap_values
from aot.relay.expr import Call, Constant, Expr, Function, call, is_call, rewrite, tensor_type
from aot.relay.transform._layer import cut, merged_bias, with_bias
from aot.relay.transform._uses import Uses
from aot.support.dataclass import dataclass
from aot.support.dtype import is_int

_CONVOLUTIONS = frozenset({"nn.conv2d", "nn.depthwise_conv2d"})


@function_pass(opt_level=2)
def fold_zero_taps(func: Function, _context: PassContext) -> Function:
    """Cut off outer rows and columns of nn.conv2d and nn.depthwise_conv2d kernels, one after another.

    In and out: operator calls with the same results bit by bit; windows keep at least one tap.  Laws, for a row at either end
    of the window (columns likewise):
    1. all its weights are zero: it adds 0;
    2. it lies outside the image at every position: it adds (pad_value - input_zp) * sum of its weights, which goes into the
       bias; done only if no sum of the layer's products can leave 32 bits.
    The padding changes with the window so that every other tap reads what it read before; where that would need a negative
    padding the row stays.
    """
    uses = Uses(func)

    def rule(expr: Expr) -> Expr:
        if not isinstance(expr, Call) or not isinstance(expr.op, Op):
            return expr
        if is_call(expr, "nn.bias_add"):
            return merged_bias(expr, uses)
        return _shrunk(expr) if expr.op.name in _CONVOLUTIONS else expr

    new = rewrite(func, rule)
    return func if new.body is func.body else new


@dataclass(frozen=True, slots=True)
class _Cut:
    """A layer with a smaller window, and what the removed taps add to each output channel."""

    layer: Call
    bias: Int64


def _shrunk(layer: Call) -> Call:
    if effective_weight(layer) is None or not is_int(tensor_type(layer.args[0]).dtype):
        return layer
    bias = np.zeros(tensor_type(layer).shape[-1], np.int64)
    while (step := _step(layer)) is not None:
        layer, bias = step.layer, bias + step.bias
    return with_bias(layer, bias)


def _step(layer: Call) -> _Cut | None:
    """The first row or column that can go."""
    ends = ((axis, last) for axis in (0, 1) for last in (False, True))
    return next((found for axis, last in ends if (found := _cut_end(layer, axis, last=last)) is not None), None)


def _cut_end(layer: Call, axis: int, *, last: bool) -> _Cut | None:
    """Without the first or last row (axis 0) or column (axis 1) of the window; None if it has to stay."""
    weight = effective_weight(layer)
    assert weight is not None
    count = weight.shape[axis + 1]
    if count == 1:
        return None
    tap = count - 1 if last else 0
    end = np.take(weight, [tap], axis=axis + 1)
    smaller = _without(layer, axis, tap)
    if smaller is None:
        return None
    if not end.any():
        return _Cut(smaller, np.zeros(tensor_type(layer).shape[-1], np.int64))
    taps = tap_values(layer, full_range(tensor_type(layer.args[0])))
    if axis_coverage(layer, axis).inside[tap] or not sums_fit(layer, weight, taps):
        return None
    axes = (0, 1, 2) if is_call(layer, "nn.depthwise_conv2d") else (1, 2, 3)
    return _Cut(smaller, (layer.attrs.pad_value - layer.attrs.input_zp) * end.sum(axis=axes, dtype=np.int64))


def _without(layer: Call, axis: int, tap: int) -> Call | None:
    """The layer without its first or last tap along an axis, all others reading what they read; None if that is impossible."""
    data, weight = layer.args
    assert isinstance(weight, Constant)
    size, extent = tensor_type(data).shape[axis + 1], tensor_type(layer).shape[axis + 1]
    stride, dilation = layer.attrs.strides[axis], layer.attrs.dilation[axis]
    count = weight.type.shape[axis + 1]
    window = (count - 2) * dilation + 1
    before = layer.attrs.padding[axis] - (dilation if tap == 0 else 0)
    after = max((extent - 1) * stride + window - size - before, 0)
    if before < 0 or before >= window or after >= window:
        return None
    padding = list(layer.attrs.padding)
    padding[axis], padding[axis + 2] = before, after
    index = [np.arange(n) for n in weight.type.shape]
    index[axis + 1] = np.delete(index[axis + 1], tap)
    attrs = replace(layer.attrs, padding=tuple(padding))
    try:
        new = call(layer.op if isinstance(layer.op, Op) else "", [data, cut(weight, index)], attrs, span=layer.span)
    except TypeRuleError:
        return None
    return new if isinstance(new.type, TensorType) and new.type.shape == tensor_type(layer).shape else None
