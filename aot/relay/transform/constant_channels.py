"""Remove channels and taps of convolutions on which nothing depends, or only by a constant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from aot.ir.op import Array, Op, TypeRuleError
from aot.ir.transform import PassContext, function_pass, register_option
from aot.ir.type import QuantParams, TensorType
from aot.relay.expr import (
    Call,
    Constant,
    Expr,
    Function,
    call,
    const,
    is_call,
    operands,
    post_order,
    rewrite,
    tensor_type,
    with_operands,
)
from aot.relay.stored import inheriting
from aot.relay.transform.canonicalize import Uses, merge_biases
from aot.relay.transform.channels import (
    LAYERS,
    Bools,
    Int64,
    Interval,
    Liveness,
    axis_coverage,
    channel_intervals,
    channel_liveness,
    channels,
    effective_weight,
    full_range,
    joins_channels,
    sums_fit,
    tap_values,
)
from aot.support.dataclass import dataclass
from aot.support.dtype import is_int

ALIGN = register_option(
    "channels.align", 4, "keep removable channels until a convolution's channel count is a multiple of this (1: remove all)"
)


@function_pass(opt_level=2)
def remove_constant_channels(func: Function, context: PassContext) -> Function:
    """Cut every tensor down to the channels (indices of the last axis) that the results depend on.

    In and out: operator calls over the same parameters, with bit-identical results.  Tensors in between may have fewer channels,
    at least one.  Laws, for a convolution or fully connected layer acc[o] = sum of w[o, i]*x[i] (also over taps):
    1. w[o, i] = 0 for every needed output o: x[i] is not read;
    2. x[i] = c for every input of the model (by intervals of all values, aot.relay.transform.channels), and what is read through
       non-zero taps outside the image is c as well: acc[o] = sum over the others + c * sum of w[o, i], which is added to the
       bias; done only if no sum of the layer's products can leave 32 bits;
    3. outputs o that no reader needs are not computed.
    Other operators have their channels in correspondence: a channel is removed only from all operands and readers at once.  If
    the rules do not know an operator, and at inputs and outputs of the function, all channels stay.

    For comparisons with a reference interpreter's tensors (`reference[..., kept]`), attrs["channels"] maps the .tflite index of
    each reduced tensor to the kept indices; in metadata.json it is each layer's `output.channels`.  With the option
    channels.align, layers keep removable channels, lowest first, until their number is a multiple of it (or all).
    """
    # One pass is nearly always enough: only a depthwise convolution reduced to one input channel gains freedom.
    while (smaller := _smaller(func, align=context.option(ALIGN.key))) is not None:
        func = smaller
    return func


def _smaller(func: Function, *, align: int) -> Function | None:
    """One step; None if every channel is needed."""
    intervals = channel_intervals(func)
    liveness = channel_liveness(func, intervals, align=align)
    if all(liveness.mask(e).all() for e in post_order(func.body) if isinstance(e.type, TensorType)):
        return None
    body = _Cutter(func, intervals, liveness).result()
    kept = kept_channels(func, liveness)
    return Function(func.params, body, {**func.attrs, "channels": kept} if kept else func.attrs)


def kept_channels(func: Function, liveness: Liveness) -> dict[int, tuple[int, ...]]:
    """Kept indices of the tensors that were reduced, now or before; the last node with an index is the tensor."""
    before: Mapping[int, tuple[int, ...]] = func.attrs.get("channels", {})
    masks = {
        e.span.tensor: liveness.mask(e)
        for e in post_order(func.body)
        if e.span.tensor >= 0 and id(e) in liveness.live and isinstance(e.type, TensorType) and isinstance(e, Call)
    }
    kept = dict(before)
    for tensor, mask in masks.items():
        if not mask.all():
            old = before.get(tensor, tuple(range(len(mask))))
            kept[tensor] = tuple(old[i] for i in np.flatnonzero(mask))
    return dict(sorted(kept.items()))


class _Cutter:
    """Rebuilds the live nodes with only the needed channels."""

    def __init__(self, func: Function, intervals: Mapping[int, Interval], liveness: Liveness) -> None:
        self._func = func
        self._intervals = intervals
        self._liveness = liveness
        self._uses = Uses(func)

    def result(self) -> Expr:
        done: dict[int, Expr] = {}
        for expr in post_order(self._func.body):
            if id(expr) in self._liveness.live:
                done[id(expr)] = self._cut(expr, done)
        return done[id(self._func.body)]

    def _cut(self, expr: Expr, done: dict[int, Expr]) -> Expr:
        if not isinstance(expr, Call) or not isinstance(expr.op, Op) or not isinstance(expr.type, TensorType):
            return with_operands(expr, [done[id(o)] for o in operands(expr)])
        if joins_channels(expr):
            return self._concatenate(expr, done)
        args = [done[id(o)] for o in expr.args]
        mask = self._liveness.mask(expr)
        if all(a is o for a, o in zip(args, expr.args, strict=True)) and mask.all():
            return expr
        if expr.op.name in LAYERS:
            return self._layer(expr, args[0])
        if is_call(expr, "nn.depthwise_conv2d"):
            return _depthwise(expr, args[0], mask)
        args = [_cut_constant(a, mask) if isinstance(a, Constant) else a for a in args]
        new = call(expr.op, args, _cut_attrs(expr, mask), span=expr.span)
        return merged_bias(new, self._uses) if is_call(new, "nn.bias_add") else new

    def _layer(self, expr: Call, data: Expr) -> Expr:
        """Laws 1 to 3: cut the weights; the contribution of removed inputs is added to the bias."""
        old, weight = expr.args
        if not isinstance(weight, Constant):
            return with_operands(expr, [data, weight])
        outputs, inputs = self._liveness.mask(expr), self._liveness.mask(old)
        middle = [np.arange(n) for n in weight.type.shape[1:-1]]
        new = cut(weight, [np.flatnonzero(outputs), *middle, np.flatnonzero(inputs)])
        layer = call(expr.op if isinstance(expr.op, Op) else "", [data, new], expr.attrs, span=expr.span)
        return layer if inputs.all() else with_bias(layer, self._contribution(expr, outputs, inputs))

    def _contribution(self, expr: Call, outputs: Bools, inputs: Bools) -> Int64:
        """Contribution of the removed input channels to each remaining output: sum of w*x, where x is constant."""
        weight = effective_weight(expr)
        assert weight is not None, "channels of data under unknown weights are not removed"
        taps = tap_values(expr, self._intervals[id(expr.args[0])])
        removed = weight[outputs][..., ~inputs].reshape(int(outputs.sum()), -1)
        values, is_known = taps.lo[..., ~inputs].reshape(-1), taps.is_constant[..., ~inputs].reshape(-1)
        assert not removed[:, ~is_known].any(), "a removed channel's value is unknown, but read"
        result: Int64 = removed @ values
        return result

    def _concatenate(self, expr: Call, done: dict[int, Expr]) -> Expr:
        """Operands without any needed channel are dropped."""
        mask, begin = self._liveness.mask(expr), 0
        args: list[Expr] = []
        for o in expr.args:
            part = mask[begin : begin + channels(tensor_type(o))]
            begin += len(part)
            if part.any():
                args.append(_cut_constant(o, part) if isinstance(o, Constant) else done[id(o)])
        if len(args) == len(expr.args) and all(a is b for a, b in zip(args, expr.args, strict=True)):
            return expr
        return call(expr.op if isinstance(expr.op, Op) else "", args, expr.attrs, span=expr.span)


def _depthwise(expr: Call, data: Expr, mask: Bools) -> Expr:
    """Each input channel keeps all of its outputs or is removed; a single input channel keeps any number."""
    weight = expr.args[1]
    if not isinstance(weight, Constant):
        return with_operands(expr, [data, weight])
    new = cut(weight, [np.arange(n) for n in weight.type.shape[:3]] + [np.flatnonzero(mask)])
    attrs = replace(expr.attrs, multiplier=int(mask.sum()) // channels(tensor_type(data)))
    return call("nn.depthwise_conv2d", [data, new], attrs, span=expr.span)


def _cut_constant(value: Constant, mask: Bools) -> Constant:
    """The kept channels of an operand, if it has that many; a single value for all channels stays."""
    shape = value.type.shape
    if not shape or shape[-1] != len(mask) or mask.all():
        return value
    return cut(value, [*(np.arange(n) for n in shape[:-1]), np.flatnonzero(mask)])


def _cut_attrs(expr: Call, mask: Bools) -> object:
    """Attributes of an operator other than a layer, for fewer channels."""
    attrs = expr.attrs
    if is_call(expr, "qnn.requantize") and attrs.per_channel:
        fraction = _pick(attrs.fraction, mask) if attrs.fraction else ()
        return replace(attrs, multiplier=_pick(attrs.multiplier, mask), shift=_pick(attrs.shift, mask), fraction=fraction)
    if is_call(expr, "reshape") and not mask.all():
        return replace(attrs, newshape=(*attrs.newshape[:-1], int(mask.sum())))
    if is_call(expr, "nn.pad") and any(attrs.pad_width[-1]):
        *others, (before, after) = attrs.pad_width
        ends = int(mask[:before].sum()), int(mask[len(mask) - after :].sum())
        return replace(attrs, pad_width=(*others, ends))
    return attrs


def _pick(values: tuple[int, ...], mask: Array) -> tuple[int, ...]:
    return tuple(v for v, keep in zip(values, mask, strict=True) if keep)


_CONVOLUTIONS = frozenset({"nn.conv2d", "nn.depthwise_conv2d"})


@function_pass(opt_level=2)
def fold_zero_taps(func: Function, _context: PassContext) -> Function:
    """Cut off outer rows and columns of nn.conv2d and nn.depthwise_conv2d kernels, one after another.

    In and out: operator calls with bit-identical results; windows keep at least one tap.  Laws, for a row at either end of the
    window (likewise for columns):
    1. all its weights are zero: it adds 0;
    2. it is outside the image at every position: it adds (pad_value - input_zp) * sum of its weights, which is added to the bias;
       done only if no sum of the layer's products can leave 32 bits.
    The padding changes with the window so that every other tap reads what it read before; a row stays if that would need a
    negative padding.
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
    """A layer with a smaller window, and the contribution of the removed taps to each output channel."""

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
    """Remove the first row or column that can be removed."""
    ends = ((axis, last) for axis in (0, 1) for last in (False, True))
    return next((cut for axis, last in ends if (cut := _cut_end(layer, axis, last=last)) is not None), None)


def _cut_end(layer: Call, axis: int, *, last: bool) -> _Cut | None:
    """Remove the first or last row (axis 0) or column (axis 1) of the window; None if it must stay."""
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
    """The layer without its first or last tap along an axis; all others read what they read before.  None if impossible."""
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


# For both passes: cut weights, and constants that move into the bias.


def cut(value: Constant, index: Sequence[Array]) -> Constant:
    """The constant at the positions `index[i]` of each axis i, with the remaining quantisation parameters."""
    data = np.ascontiguousarray(np.asarray(value.data)[np.ix_(*index)])
    quant = value.type.quant
    if quant is not None and quant.axis is not None and len(quant.scale) > 1:
        kept = [int(i) for i in index[quant.axis]]
        quant = QuantParams(tuple(quant.scale[i] for i in kept), tuple(quant.zero_point[i] for i in kept), quant.axis)
    return inheriting(Constant(data, TensorType(data.shape, value.type.dtype, quant), value.span), [value])


def with_bias(layer: Call, bias: Int64) -> Call:
    """`layer` + bias per output channel; no new node if the bias is zero."""
    if not bias.any():
        return layer
    data = bias.astype(np.dtype(tensor_type(layer).dtype))
    return call("nn.bias_add", [layer, const(data, span=layer.span)], span=layer.span)


def merged_bias(expr: Call, uses: Uses) -> Call:
    """Merge an nn.bias_add with the one that `with_bias` has inserted under it, if no sum can overflow."""
    merged: Expr | None = merge_biases(expr, uses)
    assert merged is None or isinstance(merged, Call)
    return expr if merged is None else replace(merged, span=expr.span)
