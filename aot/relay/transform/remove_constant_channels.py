"""Remove the channels that nothing depends on, or only by a constant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from aot.ir.op import Array, Op
from aot.ir.transform import PassContext, function_pass, register_option
from aot.ir.type import TensorType
from aot.relay.analysis.channel_intervals import channel_intervals, effective_weight
from aot.relay.analysis.channel_liveness import LAYERS, Liveness, channel_liveness, joins_channels
from aot.relay.analysis.interval import Int64, Interval, channels
from aot.relay.analysis.window import Bools, tap_values
from aot.relay.expr import Call, Constant, Expr, Function, call, is_call, operands, post_order, tensor_type, with_operands
from aot.relay.transform._layer import cut, merged_bias, with_bias
from aot.relay.transform._uses import Uses

ALIGN = register_option(
    "channels.align", 4, "keep removable channels so that a convolution yields a multiple of so many (1: remove all of them)"
)


@function_pass(opt_level=2)
def remove_constant_channels(func: Function, context: PassContext) -> Function:
    """Cut every tensor down to the channels (indices of the last axis) that the results depend on.

    In and out: operator calls over the same parameters, with the same results bit by bit.  Tensors in between may have fewer
    channels, at least one.  Laws, for a convolution or fully connected layer acc[o] = sum of w[o, i]*x[i] (over taps, too):
    1. w[o, i] = 0 for every output o that is needed: x[i] is not read;
    2. x[i] = c for every input of the model (by intervals of all values, aot.relay.analysis.channel_intervals), and what is
       read through non-zero taps outside the image is c as well: acc[o] = sum over the others + c * sum of w[o, i], which goes
       into the bias; done only if no sum of the layer's products can leave 32 bits;
    3. outputs o that no reader needs are not computed.
    Other operators have their channels in correspondence: one goes if it goes in all operands and all readers.  Where the
    rules know nothing of an operator, and at inputs and outputs of the function, all channels stay.

    Tensors that have become smaller: attrs["channels"] = {index of the tensor in the .tflite: indices that were kept}, for
    comparisons with a reference interpreter's tensors (`reference[..., kept]`); in metadata.json each layer's `output.channels`.
    With the option channels.align layers keep removable channels, lowest first, until their number is a multiple of it (or all).
    """
    # Once is nearly always enough: only a depthwise convolution that has come down to one input channel gains freedom.
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
    """Kept indices of the tensors that have become smaller, now or before; the last node with an index is the tensor."""
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
    """Rebuilds the live nodes over the needed channels."""

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
        """Laws 1 to 3: cut the weights; what the removed inputs contribute goes into the bias."""
        old, weight = expr.args
        if not isinstance(weight, Constant):
            return with_operands(expr, [data, weight])
        outputs, inputs = self._liveness.mask(expr), self._liveness.mask(old)
        middle = [np.arange(n) for n in weight.type.shape[1:-1]]
        new = cut(weight, [np.flatnonzero(outputs), *middle, np.flatnonzero(inputs)])
        layer = call(expr.op if isinstance(expr.op, Op) else "", [data, new], expr.attrs, span=expr.span)
        return layer if inputs.all() else with_bias(layer, self._contribution(expr, outputs, inputs))

    def _contribution(self, expr: Call, outputs: Bools, inputs: Bools) -> Int64:
        """Of the input channels that are removed to each output that stays: sum of w*x, where x is known."""
        weight = effective_weight(expr)
        assert weight is not None, "channels of data under unknown weights are not removed"
        taps = tap_values(expr, self._intervals[id(expr.args[0])])
        removed = weight[outputs][..., ~inputs].reshape(int(outputs.sum()), -1)
        values, known = taps.lo[..., ~inputs].reshape(-1), taps.is_constant[..., ~inputs].reshape(-1)
        assert not removed[:, ~known].any(), "a removed channel's value is unknown, but read"
        result: Int64 = removed @ values
        return result

    def _concatenate(self, expr: Call, done: dict[int, Expr]) -> Expr:
        """Operands without any needed channel are left out."""
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
    """Each input channel keeps all of its outputs or goes; a single input channel keeps any number."""
    weight = expr.args[1]
    if not isinstance(weight, Constant):
        return with_operands(expr, [data, weight])
    new = cut(weight, [np.arange(n) for n in weight.type.shape[:3]] + [np.flatnonzero(mask)])
    attrs = replace(expr.attrs, multiplier=int(mask.sum()) // channels(tensor_type(data)))
    return call("nn.depthwise_conv2d", [data, new], attrs, span=expr.span)


def _cut_constant(value: Constant, mask: Bools) -> Constant:
    """An operand's channels, if it has that many; a single value for all channels stays."""
    shape = value.type.shape
    if not shape or shape[-1] != len(mask) or mask.all():
        return value
    return cut(value, [*(np.arange(n) for n in shape[:-1]), np.flatnonzero(mask)])


def _cut_attrs(expr: Call, mask: Bools) -> object:
    """Attributes of an operator that is no layer over fewer channels."""
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
