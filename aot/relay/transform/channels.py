"""Which values each channel of each tensor can have, and which channels must be computed.

The passes at the end remove channels and taps of convolutions on which nothing depends, or only by a constant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from math import gcd, prod

import numpy as np
import numpy.typing as npt

from aot.ir.op import F_EVALUATE, Array, Op, TypeRuleError
from aot.ir.transform import PassContext, function_pass, register_option
from aot.ir.type import QuantParams, TensorType
from aot.relay import expr as ex
from aot.relay.stored import inheriting
from aot.relay.transform.canonicalize import Uses, effective_weight, merge_biases, with_bias
from aot.support.dataclass import dataclass
from aot.support.dtype import bits, int_range, is_int, numpy_dtype

Int64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """Closed intervals [lo, hi], element by element; for a tensor: one for each index of its last axis."""

    lo: Int64
    hi: Int64

    @property
    def is_constant(self) -> Bools:
        """Where only a single value is possible."""
        return np.asarray(self.lo == self.hi)

    def __getitem__(self, index: slice) -> Interval:
        return Interval(self.lo[index], self.hi[index])


def channels(type_: TensorType) -> int:
    """Extent of the last axis; 1 for a scalar."""
    return type_.shape[-1] if type_.shape else 1


def full_range(type_: TensorType) -> Interval:
    """Every value of an integer type."""
    low, high = int_range(type_.dtype)
    count = channels(type_)
    return Interval(np.full(count, low, np.int64), np.full(count, high, np.int64))


def of_array(data: Array) -> Interval:
    """The smallest intervals that contain a constant's values, one for each index of the last axis."""
    rows = data.astype(np.int64).reshape(-1, data.shape[-1] if data.shape else 1)
    return Interval(rows.min(axis=0), rows.max(axis=0))


def hull(parts: Sequence[Interval]) -> Interval:
    """The smallest intervals that contain all of these, element by element."""
    return Interval(np.minimum.reduce([p.lo for p in parts]), np.maximum.reduce([p.hi for p in parts]))


def span_of(values: Array) -> Interval:
    """From the smallest to the largest value along the first axis of [points, channels]."""
    wide = np.asarray(values).astype(np.int64)
    return Interval(wide.min(axis=0), wide.max(axis=0))


@dataclass(frozen=True, slots=True)
class Coverage:
    """For each tap along one axis: whether it is inside, and whether it is outside the image at some output position."""

    inside: Bools
    outside: Bools


def axis_coverage(layer: ex.Call, axis: int) -> Coverage:
    """Taps along the height (axis 0) or width (axis 1) of an nn.conv2d or nn.depthwise_conv2d.

    Tap k at output position p reads row p*stride + k*dilation - padding before.
    """
    size = ex.tensor_type(layer.args[0]).shape[axis + 1]
    kernel = ex.tensor_type(layer.args[1]).shape[axis + 1]
    positions = np.arange(ex.tensor_type(layer).shape[axis + 1]) * layer.attrs.strides[axis] - layer.attrs.padding[axis]
    rows = positions[None, :] + np.arange(kernel)[:, None] * layer.attrs.dilation[axis]
    within = (rows >= 0) & (rows < size)
    return Coverage(within.any(axis=1), (~within).any(axis=1))


def tap_values(layer: ex.Call, data: Interval) -> Interval:
    """Interval of (data - input_zp) as each weight sees it; `data` has one interval per channel.

    nn.conv2d: arrays [KH, KW, I]; nn.depthwise_conv2d: [KH, KW, C]; nn.dense: [K].  A tap that may be outside the image also sees
    `pad_value`; a tap that is always outside sees nothing else.
    """
    if ex.is_call(layer, "nn.dense"):
        return Interval(data.lo - layer.attrs.input_zp, data.hi - layer.attrs.input_zp)
    rows, columns = axis_coverage(layer, 0), axis_coverage(layer, 1)
    inside = (rows.inside[:, None] & columns.inside[None, :])[:, :, None]
    outside = (rows.outside[:, None] | columns.outside[None, :])[:, :, None]
    pad, zp = layer.attrs.pad_value, layer.attrs.input_zp
    lo = np.where(inside, np.where(outside, np.minimum(data.lo, pad), data.lo), pad)
    hi = np.where(inside, np.where(outside, np.maximum(data.hi, pad), data.hi), pad)
    return Interval(lo - zp, hi - zp)


def sums_fit(layer: ex.Call, weight: Int64, taps: Interval) -> bool:
    """Whether no sum of products w*x of one output channel, over any of the taps in any order, leaves int32.

    Then a constant part of the sum can be added anywhere, as a bias.  The zero point is already subtracted from `weight`.
    """
    largest = np.maximum(np.abs(taps.lo), np.abs(taps.hi))
    if ex.is_call(layer, "nn.depthwise_conv2d"):
        sums = (np.abs(weight[0]) * np.repeat(largest, layer.attrs.multiplier, axis=2)).sum(axis=(0, 1))
    else:
        sums = (np.abs(weight) * largest).reshape(len(weight), -1).sum(axis=1)
    return bool((sums <= int_range("int32")[1]).all())


# The possible values of each channel of each tensor, for any input.
#
# A channel is an index of the last axis.  Interval arithmetic treats values as independent: every interval contains all values
# that occur, and is exact for a single layer; dependent values can make it wider than necessary, never narrower.  Where rounding
# matters, the rules call the operators' own `evaluate`, so that they cannot disagree with it.


Rule = Callable[[ex.Call, Sequence[Interval]], Interval | None]
"""(call, intervals of its tensor arguments) -> interval of the result; None if only the type's range is known."""


def channel_intervals(func: ex.Function) -> dict[int, Interval]:
    """The intervals of each channel, per node (by id) whose value is an integer tensor of up to 32 bits.

    Parameters, and results of operators without a rule in `RULES`, have the whole range of their type.
    """
    intervals: dict[int, Interval] = {}
    for expr in ex.post_order(func.body):
        if isinstance(expr.type, TensorType) and is_int(expr.type.dtype) and bits(expr.type.dtype) <= 32 and expr.type.size > 0:
            # sums and products of 32 bits fit into 64
            intervals[id(expr)] = _bounded(_of(expr, intervals), expr.type)
    return intervals


def _of(expr: ex.Expr, intervals: dict[int, Interval]) -> Interval | None:
    match expr:
        case ex.Constant():
            return of_array(np.asarray(expr.data))
        case ex.Call(op=Op(name=name)) if name in RULES and all(id(a) in intervals for a in expr.args):
            return RULES[name](expr, [intervals[id(a)] for a in expr.args])
        case _:
            return None


def _bounded(interval: Interval | None, type_: TensorType) -> Interval:
    """The result of a rule; a channel whose values leave the type would wrap around, so it may have any value."""
    whole = full_range(type_)
    if interval is None:
        return whole
    leaves = (interval.lo < whole.lo) | (interval.hi > whole.hi)
    return Interval(np.where(leaves, whole.lo, interval.lo), np.where(leaves, whole.hi, interval.hi))


def _evaluate(expr: ex.Call, *arrays: Array, out_type: TensorType | None = None) -> Array:
    """Evaluate the operator on other arrays than its own: by default points, with the channels along the last axis."""
    converted = [np.asarray(a).astype(numpy_dtype(ex.tensor_type(o).dtype)) for a, o in zip(arrays, expr.args, strict=True)]
    shape = tuple(map(int, np.broadcast_shapes(*(a.shape for a in converted))))
    out = out_type or replace(ex.tensor_type(expr), shape=shape)
    return np.asarray(F_EVALUATE.get(expr.name)(*converted, attrs=expr.attrs, out_type=out))


# Layers: sums of products.


def layer(expr: ex.Call, args: Sequence[Interval]) -> Interval | None:
    """acc = sum of w*x: largest if x = hi for w > 0 and x = lo for w < 0; smallest the other way round."""
    weight = effective_weight(expr)
    if weight is None:
        return None
    taps = tap_values(expr, args[0])
    if ex.is_call(expr, "nn.depthwise_conv2d"):
        m = expr.attrs.multiplier
        lo, hi = np.repeat(taps.lo, m, axis=2), np.repeat(taps.hi, m, axis=2)
        ends = [weight[0] * lo, weight[0] * hi]
        low: Int64 = np.minimum(*ends).sum(axis=(0, 1), dtype=np.int64)
        high: Int64 = np.maximum(*ends).sum(axis=(0, 1), dtype=np.int64)
        return Interval(low, high)
    rows = weight.reshape(len(weight), -1)
    positive: Int64 = np.maximum(rows, 0)
    negative: Int64 = np.minimum(rows, 0)
    lo, hi = taps.lo.reshape(-1), taps.hi.reshape(-1)
    return Interval(positive @ lo + negative @ hi, positive @ hi + negative @ lo)


def bias_add(_expr: ex.Call, args: Sequence[Interval]) -> Interval:
    return Interval(args[0].lo + args[1].lo, args[0].hi + args[1].hi)


# Maps of single values.


def requantize(expr: ex.Call, args: Sequence[Interval]) -> Interval:
    """Rounded multiplication and clamp are monotone, so the ends map to the ends, provided that a left shift stays in 32 bits."""
    (data,) = args
    shift = np.maximum(np.asarray(expr.attrs.shift, np.int64), 0)
    low, high = int_range("int32")
    wraps = (data.lo << shift < low) | (data.hi << shift > high)
    ends = span_of(_evaluate(expr, np.stack([data.lo, data.hi])))
    return Interval(np.where(wraps, expr.attrs.lo, ends.lo), np.where(wraps, expr.attrs.hi, ends.hi))


def clamped(expr: ex.Call, args: Sequence[Interval]) -> Interval:
    """Clip; and pooling: the rounded mean and the maximum of values in [lo, hi] are in [lo, hi], and padding does not count."""
    return Interval(*(np.clip(end, expr.attrs.lo, expr.attrs.hi) for end in (args[0].lo, args[0].hi)))


def every_code(expr: ex.Call, args: Sequence[Interval]) -> Interval | None:
    """A map of 8-bit values (a table, another quantisation): every value of the interval is tried."""
    dtype = ex.tensor_type(expr.args[0]).dtype
    if bits(dtype) > 8:
        return None
    low, high = int_range(dtype)
    codes = np.arange(low, high + 1)
    count = len(args[0].lo)
    values = _evaluate(expr, np.broadcast_to(codes[:, None], (len(codes), count))).astype(np.int64)
    occurs = (codes[:, None] >= args[0].lo) & (codes[:, None] <= args[0].hi)
    lowest, highest = int_range("int64")
    return Interval(np.where(occurs, values, highest).min(axis=0), np.where(occurs, values, lowest).max(axis=0))


def add(expr: ex.Call, args: Sequence[Interval]) -> Interval | None:
    """Monotone in each operand while the other is fixed, so the ends are among the four corners; left shifts could wrap."""
    if max(*expr.attrs.shift, expr.attrs.output_shift) > 0:
        return None
    a, b = args
    values = _evaluate(expr, np.stack([a.lo, a.hi])[:, None, :], np.stack([b.lo, b.hi])[None, :, :])
    return span_of(values.reshape(4, -1))


# Windows and reductions.


def mean(expr: ex.Call, args: Sequence[Interval]) -> Interval | None:
    """Monotone in the sum, so tensors of lower and of upper ends give the ends, unless the sum leaves 32 bits."""
    type_ = ex.tensor_type(expr.args[0])
    axes = [a % len(type_.shape) for a in expr.attrs.axes]
    widest = np.maximum(np.abs(args[0].lo - expr.attrs.input_zp), np.abs(args[0].hi - expr.attrs.input_zp)).max()
    if int(widest) * prod(type_.shape[a] for a in axes) << max(expr.attrs.shift, 0) > int_range("int32")[1]:
        return None
    ends = [_evaluate(expr, np.broadcast_to(v, type_.shape), out_type=ex.tensor_type(expr)) for v in (args[0].lo, args[0].hi)]
    return hull([of_array(e) for e in ends])


# Movement of data.


def same(_expr: ex.Call, args: Sequence[Interval]) -> Interval:
    """Elements move, but never to another channel."""
    return args[0]


def pad(expr: ex.Call, args: Sequence[Interval]) -> Interval:
    """A border in other axes adds the pad value to every channel; a border in the last axis adds channels of it."""
    value = int(expr.attrs.pad_value)
    *others, (before, after) = expr.attrs.pad_width
    lo, hi = args[0].lo, args[0].hi
    if any(map(any, others)):
        lo, hi = np.minimum(lo, value), np.maximum(hi, value)
    return Interval(*(np.pad(end, (before, after), constant_values=value) for end in (lo, hi)))


def concatenate(expr: ex.Call, args: Sequence[Interval]) -> Interval:
    """Channels one after the other if the last axis is joined, else the union of each channel's values."""
    if expr.attrs.axis % len(ex.tensor_type(expr).shape) != len(ex.tensor_type(expr).shape) - 1:
        return hull(args)
    return Interval(np.concatenate([a.lo for a in args]), np.concatenate([a.hi for a in args]))


def reshape(expr: ex.Call, args: Sequence[Interval]) -> Interval:
    """Element e has channel e mod C before and e mod C' after: channels that are equal modulo gcd(C, C') can mix."""
    after = channels(ex.tensor_type(expr))
    (data,) = args
    if after % len(data.lo) == 0:
        times = after // len(data.lo)
        return Interval(np.tile(data.lo, times), np.tile(data.hi, times))
    step = gcd(after, len(data.lo))
    lo, hi = data.lo.reshape(-1, step).min(axis=0), data.hi.reshape(-1, step).max(axis=0)
    return Interval(np.tile(lo, after // step), np.tile(hi, after // step))


def transpose(expr: ex.Call, args: Sequence[Interval]) -> Interval:
    """The same channels if the last axis stays, else all values in each."""
    (data,) = args
    if expr.attrs.axes[-1] == len(expr.attrs.axes) - 1:
        return data
    count = channels(ex.tensor_type(expr))
    return Interval(np.full(count, data.lo.min()), np.full(count, data.hi.max()))


RULES: dict[str, Rule] = {
    "nn.conv2d": layer,
    "nn.depthwise_conv2d": layer,
    "nn.dense": layer,
    "nn.bias_add": bias_add,
    "qnn.requantize": requantize,
    "qnn.requantize8": every_code,
    "qnn.lut": every_code,
    "clip": clamped,
    "qnn.add": add,
    "nn.avg_pool2d": clamped,
    "nn.max_pool2d": clamped,
    "mean": mean,
    "image.resize_nearest": same,
    "nn.pad": pad,
    "concatenate": concatenate,
    "reshape": reshape,
    "transpose": transpose,
}
"""Rules per operator.  A rule must hold for all attribute values that the operator's type rule accepts."""


# The channels of each tensor that must be computed for the function's results.
#
# A channel is an index of the last axis.  Convolutions and fully connected layers can end a channel: they do not need an input
# channel that they read with zero weights only, or whose value is constant, since that belongs in the bias.  Their own output
# channels can be removed freely.  Every other operator passes on what its readers need, and needs the corresponding channels of
# its operands, as no operator can pick channels.


LAYERS = frozenset({"nn.conv2d", "nn.dense"})
"""Operators whose input and output channels are independent."""

CHANNELWISE = frozenset({
    "clip", "image.resize_nearest", "nn.avg_pool2d", "nn.bias_add", "nn.max_pool2d", "qnn.add", "qnn.lut", "qnn.mul",
    "qnn.requantize", "qnn.requantize8", "qnn.sub",
})  # fmt: skip
"""Operators whose channel c depends only on channel c of each operand (or on an operand's only channel), with attributes that are
the same for all channels.  nn.bias_add and qnn.requantize have values per channel, which the rebuilding code handles.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Liveness:
    """The result: `needed` has a mask of channels per tensor, `live` the nodes (by id) that are still read."""

    needed: Mapping[int, Bools]
    live: frozenset[int]

    def mask(self, expr: ex.Expr) -> Bools:
        """The needed channels of a node whose value is one tensor."""
        return self.needed[id(expr)]


def channel_liveness(func: ex.Function, intervals: Mapping[int, Interval], *, align: int = 1) -> Liveness:
    """The smallest sets of channels that preserve every result of `func`; each live tensor keeps at least one.

    With `align` > 1, each layer's output keeps further channels, lowest first, until their number is a multiple of it (or all).
    """
    state = _State(ex.post_order(func.body), intervals)
    state.require_all(func.body)
    state.propagate()
    while True:
        live, empty = _live(func, state)
        if empty is not None:
            state.require_one(empty)
        elif align < 2 or not _align(state, live, align):
            return Liveness(state.needed, live)
        state.propagate()


def _live(func: ex.Function, state: _State) -> tuple[frozenset[int], ex.Expr | None]:
    """Nodes that results depend on, and the first one without a needed channel, if any."""
    live = {id(func.body)}
    for expr in reversed(state.order):
        if id(expr) not in live:
            continue
        if id(expr) in state.needed and not state.needed[id(expr)].any() and channels(ex.tensor_type(expr)):
            return frozenset(live), expr
        live.update(id(o) for o in _read(expr, state))
    return frozenset(live), None


def _read(expr: ex.Expr, state: _State) -> list[ex.Expr]:
    """Operands that remain; a concatenation along the channels drops those without needed channels."""
    if joins_channels(expr):
        return [o for o in ex.operands(expr) if not isinstance(o, ex.Constant) and state.needed[id(o)].any()]
    return list(ex.operands(expr))


def joins_channels(expr: ex.Expr) -> bool:
    """Whether `expr` concatenates along the last axis."""
    return ex.is_call(expr, "concatenate") and expr.attrs.axis == len(ex.tensor_type(expr).shape) - 1


def _align(state: _State, live: frozenset[int], align: int) -> bool:
    """Keep more channels of the first layer whose count is not a multiple of `align`; return whether there was one."""
    for expr in state.order:
        if id(expr) not in live or not ex.is_call(expr, *LAYERS):
            continue
        mask = state.needed[id(expr)]
        spare = np.flatnonzero(~mask)[: -int(mask.sum()) % align]
        if spare.size:
            more = mask.copy()
            more[spare] = True
            state.require(expr, more)
            return True
    return False


@dataclass(slots=True, eq=False)
class _State:
    """Masks that only grow, until the correspondence of every operator holds."""

    order: list[ex.Expr]
    intervals: Mapping[int, Interval]
    needed: dict[int, Bools] = field(default_factory=dict)
    reads: dict[int, Bools] = field(default_factory=dict)
    readers: dict[int, list[ex.Expr]] = field(default_factory=dict)
    waiting: dict[int, ex.Expr] = field(default_factory=dict)
    """Nodes whose correspondence may not hold, the next one first."""

    def __post_init__(self) -> None:
        self.waiting = {id(e): e for e in reversed(self.order)}
        for expr in self.order:
            for operand in ex.operands(expr):
                self.readers.setdefault(id(operand), []).append(expr)
            if isinstance(expr.type, TensorType):
                self.needed[id(expr)] = np.full(channels(expr.type), not isinstance(expr, ex.Call))

    def require(self, expr: ex.Expr, mask: Bools) -> None:
        """Add channels; a constant needs no correspondence, since each of its readers cuts out its own channels."""
        if isinstance(expr, ex.Constant):
            return
        old = self.needed[id(expr)]
        if (mask & ~old).any():
            self.needed[id(expr)] = old | mask
            self.waiting.update((id(e), e) for e in (expr, *self.readers.get(id(expr), ())))

    def require_all(self, expr: ex.Expr) -> None:
        for e in (expr,) if isinstance(expr.type, TensorType) else ex.operands(expr):
            if isinstance(e.type, TensorType):
                self.require(e, np.ones(channels(e.type), np.bool_))

    def require_one(self, expr: ex.Expr) -> None:
        mask = np.zeros(channels(ex.tensor_type(expr)), np.bool_)
        mask[0] = True
        self.require(expr, mask)

    def propagate(self) -> None:
        """Propagate to the least fixed point, which does not depend on the order because masks only grow.

        A correspondence relates an operator's result to its operands, so a changed tensor affects the operator that computes it
        and its readers.
        """
        while self.waiting:
            self._link(self.waiting.pop(next(iter(self.waiting))))

    def reads_of(self, layer: ex.Call) -> Bools:
        """`indispensable_inputs`, cached."""
        if id(layer) not in self.reads:
            self.reads[id(layer)] = indispensable_inputs(layer, self.intervals.get(id(layer.args[0])))
        return self.reads[id(layer)]

    def _link(self, expr: ex.Expr) -> None:
        if isinstance(expr, ex.Call) and expr.name:
            LINKS.get(expr.name, _opaque)(expr, self)
        elif not isinstance(expr.type, TensorType) or ex.operands(expr):
            _opaque(expr, self)


def indispensable_inputs(layer: ex.Call, data: Interval | None) -> Bools:
    """[O, I]: whether output o of an nn.conv2d or nn.dense depends on input channel i by more than a constant.

    It does not if each weight between them is zero or sees only one value (a constant channel; outside the image, the pad value):
    sum of w*x = sum over the others + a constant.  Everything counts as read if that sum could leave 32 bits.
    """
    weight = effective_weight(layer)
    if weight is None:
        return np.ones((channels(ex.tensor_type(layer)), channels(ex.tensor_type(layer.args[0]))), np.bool_)
    taps = tap_values(layer, data if data is not None else full_range(ex.tensor_type(layer.args[0])))
    reads: Bools = weight != 0
    if sums_fit(layer, weight, taps):
        reads = reads & ~taps.is_constant
    return np.asarray(reads.any(axis=tuple(range(1, weight.ndim - 1))))


# Correspondences, one per kind of operator.

Link = Callable[[ex.Call, _State], None]


def _opaque(expr: ex.Expr, state: _State) -> None:
    """Nothing is known about the operator: it needs all channels and yields all."""
    for e in (expr, *ex.operands(expr)):
        state.require_all(e)


def _layer(expr: ex.Call, state: _State) -> None:
    if not isinstance(expr.args[1], ex.Constant):
        _opaque(expr, state)
        return
    state.require(expr.args[0], np.asarray(state.reads_of(expr)[state.needed[id(expr)]].any(axis=0)))


def _depthwise(expr: ex.Call, state: _State) -> None:
    """Outputs c*M to c*M + M - 1 belong to input c; outputs of a single input channel can be removed freely."""
    data, weight = expr.args
    if not isinstance(weight, ex.Constant):
        _opaque(expr, state)
        return
    m = expr.attrs.multiplier
    if channels(ex.tensor_type(data)) == 1:
        state.require_all(data)
        return
    mask = state.needed[id(data)] | state.needed[id(expr)].reshape(-1, m).any(axis=1)
    state.require(data, mask)
    state.require(expr, np.repeat(mask, m))


def _channelwise(expr: ex.Call, state: _State) -> None:
    count = channels(ex.tensor_type(expr))
    bound = [o for o in ex.operands(expr) if channels(ex.tensor_type(o)) == count and not isinstance(o, ex.Constant)]
    mask = np.logical_or.reduce([state.needed[id(e)] for e in (expr, *bound)])
    for e in (expr, *bound):
        state.require(e, mask)
    # An operand with a single channel is live if the result is, and then keeps it.


def _channelwise_if(holds: Callable[[ex.Call], bool]) -> Link:
    return lambda expr, state: (_channelwise if holds(expr) else _opaque)(expr, state)


def _reduces_channels(expr: ex.Call) -> bool:
    return any(a in (len(ex.tensor_type(expr.args[0]).shape) - 1, -1) for a in expr.attrs.axes)


def _pad(expr: ex.Call, state: _State) -> None:
    """Channels of padding can be removed freely."""
    (data,) = expr.args
    before = expr.attrs.pad_width[-1][0]
    inner = slice(before, before + channels(ex.tensor_type(data)))
    mask = state.needed[id(expr)].copy()
    mask[inner] |= state.needed[id(data)]
    state.require(expr, mask)
    state.require(data, mask[inner])


def _concatenate(expr: ex.Call, state: _State) -> None:
    if not joins_channels(expr):
        _channelwise_if(lambda e: not any(isinstance(o, ex.Constant) for o in e.args))(expr, state)
        return
    end = 0
    for o in expr.args:
        begin, end = end, end + channels(ex.tensor_type(o))
        if not isinstance(o, ex.Constant):
            mask = np.zeros(len(state.needed[id(expr)]), np.bool_)
            mask[begin:end] = state.needed[id(o)]
            state.require(expr, mask)
            state.require(o, state.needed[id(expr)][begin:end])


def _reshape(expr: ex.Call, state: _State) -> None:
    """If the new last axis consists of whole runs of channels, each run keeps the same ones."""
    (data,) = expr.args
    count, after = channels(ex.tensor_type(data)), channels(ex.tensor_type(expr))
    if not count or not after or after % count or not ex.tensor_type(expr).shape or not ex.tensor_type(data).shape:
        _opaque(expr, state)
        return
    mask = state.needed[id(data)] | state.needed[id(expr)].reshape(-1, count).any(axis=0)
    state.require(data, mask)
    state.require(expr, np.tile(mask, after // count))


LINKS: dict[str, Link] = {
    **dict.fromkeys(LAYERS, _layer),
    **dict.fromkeys(CHANNELWISE, _channelwise),
    "nn.bias_add": _channelwise_if(lambda expr: all(isinstance(o, ex.Constant) for o in expr.args[1:])),
    "nn.depthwise_conv2d": _depthwise,
    "mean": _channelwise_if(lambda expr: not _reduces_channels(expr)),
    "transpose": _channelwise_if(lambda expr: bool(expr.attrs.axes[-1] == len(expr.attrs.axes) - 1)),
    "nn.pad": _pad,
    "concatenate": _concatenate,
    "reshape": _reshape,
}
"""Per operator; any other operator keeps all channels of its operands and its result."""


# The passes.


ALIGN = register_option(
    "channels.align", 4, "keep removable channels until a convolution's channel count is a multiple of this (1: remove all)"
)


@function_pass(opt_level=2)
def remove_constant_channels(func: ex.Function, context: PassContext) -> ex.Function:
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


def _smaller(func: ex.Function, *, align: int) -> ex.Function | None:
    """One step; None if every channel is needed."""
    intervals = channel_intervals(func)
    liveness = channel_liveness(func, intervals, align=align)
    if all(liveness.mask(e).all() for e in ex.post_order(func.body) if isinstance(e.type, TensorType)):
        return None
    body = _Cutter(func, intervals, liveness).result()
    kept = kept_channels(func, liveness)
    return ex.Function(func.params, body, {**func.attrs, "channels": kept} if kept else func.attrs)


def kept_channels(func: ex.Function, liveness: Liveness) -> dict[int, tuple[int, ...]]:
    """Kept indices of the tensors that were reduced, now or before; the last node with an index is the tensor."""
    before: Mapping[int, tuple[int, ...]] = func.attrs.get("channels", {})
    masks = {
        e.span.tensor: liveness.mask(e)
        for e in ex.post_order(func.body)
        if e.span.tensor >= 0 and id(e) in liveness.live and isinstance(e.type, TensorType) and isinstance(e, ex.Call)
    }
    kept = dict(before)
    for tensor, mask in masks.items():
        if not mask.all():
            old = before.get(tensor, tuple(range(len(mask))))
            kept[tensor] = tuple(old[i] for i in np.flatnonzero(mask))
    return dict(sorted(kept.items()))


class _Cutter:
    """Rebuilds the live nodes with only the needed channels."""

    def __init__(self, func: ex.Function, intervals: Mapping[int, Interval], liveness: Liveness) -> None:
        self._func = func
        self._intervals = intervals
        self._liveness = liveness
        self._uses = Uses(func)

    def result(self) -> ex.Expr:
        done: dict[int, ex.Expr] = {}
        for expr in ex.post_order(self._func.body):
            if id(expr) in self._liveness.live:
                done[id(expr)] = self._cut(expr, done)
        return done[id(self._func.body)]

    def _cut(self, expr: ex.Expr, done: dict[int, ex.Expr]) -> ex.Expr:
        if not isinstance(expr, ex.Call) or not expr.name or not isinstance(expr.type, TensorType):
            return ex.with_operands(expr, [done[id(o)] for o in ex.operands(expr)])
        if joins_channels(expr):
            return self._concatenate(expr, done)
        args = [done[id(o)] for o in expr.args]
        mask = self._liveness.mask(expr)
        if all(a is o for a, o in zip(args, expr.args, strict=True)) and mask.all():
            return expr
        if expr.name in LAYERS:
            return self._layer(expr, args[0])
        if ex.is_call(expr, "nn.depthwise_conv2d"):
            return _cut_depthwise(expr, args[0], mask)
        args = [_cut_constant(a, mask) if isinstance(a, ex.Constant) else a for a in args]
        new = ex.again(expr, args, _cut_attrs(expr, mask))
        return merged_bias(new, self._uses) if ex.is_call(new, "nn.bias_add") else new

    def _layer(self, expr: ex.Call, data: ex.Expr) -> ex.Expr:
        """Laws 1 to 3: cut the weights; the contribution of removed inputs is added to the bias."""
        old, weight = expr.args
        if not isinstance(weight, ex.Constant):
            return ex.with_operands(expr, [data, weight])
        outputs, inputs = self._liveness.mask(expr), self._liveness.mask(old)
        middle = [np.arange(n) for n in weight.type.shape[1:-1]]
        new = cut(weight, [np.flatnonzero(outputs), *middle, np.flatnonzero(inputs)])
        layer = ex.again(expr, [data, new])
        return layer if inputs.all() else with_bias(layer, self._contribution(expr, outputs, inputs))

    def _contribution(self, expr: ex.Call, outputs: Bools, inputs: Bools) -> Int64:
        """Contribution of the removed input channels to each remaining output: sum of w*x, where x is constant."""
        weight = effective_weight(expr)
        assert weight is not None, "channels of data under unknown weights are not removed"
        taps = tap_values(expr, self._intervals[id(expr.args[0])])
        removed = weight[outputs][..., ~inputs].reshape(int(outputs.sum()), -1)
        values, is_known = taps.lo[..., ~inputs].reshape(-1), taps.is_constant[..., ~inputs].reshape(-1)
        assert not removed[:, ~is_known].any(), "a removed channel's value is unknown, but read"
        result: Int64 = removed @ values
        return result

    def _concatenate(self, expr: ex.Call, done: dict[int, ex.Expr]) -> ex.Expr:
        """Operands without any needed channel are dropped."""
        mask, begin = self._liveness.mask(expr), 0
        args: list[ex.Expr] = []
        for o in expr.args:
            part = mask[begin : begin + channels(ex.tensor_type(o))]
            begin += len(part)
            if part.any():
                args.append(_cut_constant(o, part) if isinstance(o, ex.Constant) else done[id(o)])
        if len(args) == len(expr.args) and all(a is b for a, b in zip(args, expr.args, strict=True)):
            return expr
        return ex.again(expr, args)


def _cut_depthwise(expr: ex.Call, data: ex.Expr, mask: Bools) -> ex.Expr:
    """Each input channel keeps all of its outputs or is removed; a single input channel keeps any number."""
    weight = expr.args[1]
    if not isinstance(weight, ex.Constant):
        return ex.with_operands(expr, [data, weight])
    new = cut(weight, [np.arange(n) for n in weight.type.shape[:3]] + [np.flatnonzero(mask)])
    attrs = replace(expr.attrs, multiplier=int(mask.sum()) // channels(ex.tensor_type(data)))
    return ex.again(expr, [data, new], attrs)


def _cut_constant(value: ex.Constant, mask: Bools) -> ex.Constant:
    """The kept channels of an operand, if it has that many; a single value for all channels stays."""
    shape = value.type.shape
    if not shape or shape[-1] != len(mask) or mask.all():
        return value
    return cut(value, [*(np.arange(n) for n in shape[:-1]), np.flatnonzero(mask)])


def _cut_attrs(expr: ex.Call, mask: Bools) -> object:
    """Attributes of an operator other than a layer, for fewer channels."""
    attrs = expr.attrs
    if ex.is_call(expr, "qnn.requantize") and attrs.per_channel:
        fraction = _kept(attrs.fraction, mask) if attrs.fraction else ()
        return replace(attrs, multiplier=_kept(attrs.multiplier, mask), shift=_kept(attrs.shift, mask), fraction=fraction)
    if ex.is_call(expr, "reshape") and not mask.all():
        return replace(attrs, newshape=(*attrs.newshape[:-1], int(mask.sum())))
    if ex.is_call(expr, "nn.pad") and any(attrs.pad_width[-1]):
        *others, (before, after) = attrs.pad_width
        ends = int(mask[:before].sum()), int(mask[len(mask) - after :].sum())
        return replace(attrs, pad_width=(*others, ends))
    return attrs


def _kept(values: tuple[int, ...], mask: Array) -> tuple[int, ...]:
    return tuple(v for v, keep in zip(values, mask, strict=True) if keep)


@function_pass(opt_level=2)
def fold_zero_taps(func: ex.Function, _context: PassContext) -> ex.Function:
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

    def rule(expr: ex.Expr) -> ex.Expr:
        if ex.is_call(expr, "nn.bias_add"):
            return merged_bias(expr, uses)
        return _shrunk(expr) if ex.is_call(expr, "nn.conv2d", "nn.depthwise_conv2d") else expr

    new = ex.rewrite(func, rule)
    return func if new.body is func.body else new


@dataclass(frozen=True, slots=True)
class _Cut:
    """A layer with a smaller window, and the contribution of the removed taps to each output channel."""

    layer: ex.Call
    bias: Int64


def _shrunk(layer: ex.Call) -> ex.Call:
    if effective_weight(layer) is None or not is_int(ex.tensor_type(layer.args[0]).dtype):
        return layer
    bias = np.zeros(ex.tensor_type(layer).shape[-1], np.int64)
    while True:
        ends = ((axis, last) for axis in (0, 1) for last in (False, True))
        step = next((cut for axis, last in ends if (cut := _cut_end(layer, axis, last=last)) is not None), None)
        if step is None:
            return with_bias(layer, bias)
        layer, bias = step.layer, bias + step.bias


def _cut_end(layer: ex.Call, axis: int, *, last: bool) -> _Cut | None:
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
        return _Cut(smaller, np.zeros(ex.tensor_type(layer).shape[-1], np.int64))
    taps = tap_values(layer, full_range(ex.tensor_type(layer.args[0])))
    if axis_coverage(layer, axis).inside[tap] or not sums_fit(layer, weight, taps):
        return None
    axes = (0, 1, 2) if ex.is_call(layer, "nn.depthwise_conv2d") else (1, 2, 3)
    return _Cut(smaller, (layer.attrs.pad_value - layer.attrs.input_zp) * end.sum(axis=axes, dtype=np.int64))


def _without(layer: ex.Call, axis: int, tap: int) -> ex.Call | None:
    """The layer without its first or last tap along an axis; all others read what they read before.  None if impossible."""
    data, weight = layer.args
    assert isinstance(weight, ex.Constant)
    size, extent = ex.tensor_type(data).shape[axis + 1], ex.tensor_type(layer).shape[axis + 1]
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
    try:
        new = ex.again(layer, [data, cut(weight, index)], replace(layer.attrs, padding=tuple(padding)))
    except TypeRuleError:
        return None
    return new if isinstance(new.type, TensorType) and new.type.shape == ex.tensor_type(layer).shape else None


# For both passes: cut weights, and constants that move into the bias.


def cut(value: ex.Constant, index: Sequence[Array]) -> ex.Constant:
    """The constant at the positions `index[i]` of each axis i, with the remaining quantisation parameters."""
    data = np.ascontiguousarray(np.asarray(value.data)[np.ix_(*index)])
    quant = value.type.quant
    if quant is not None and quant.axis is not None and len(quant.scale) > 1:
        kept = [int(i) for i in index[quant.axis]]
        quant = QuantParams(tuple(quant.scale[i] for i in kept), tuple(quant.zero_point[i] for i in kept), quant.axis)
    return inheriting(ex.Constant(data, TensorType(data.shape, value.type.dtype, quant), value.span), [value])


def merged_bias(expr: ex.Call, uses: Uses) -> ex.Call:
    """Merge an nn.bias_add with the one that `with_bias` has inserted under it, if no sum can overflow."""
    merged: ex.Expr | None = merge_biases(expr, uses)
    assert merged is None or isinstance(merged, ex.Call)
    return expr if merged is None else replace(merged, span=expr.span)
