"""Which values each channel of each tensor can have, and which channels must be computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from math import gcd, prod

import numpy as np
import numpy.typing as npt

from aot.ir.op import F_EVALUATE, Array, Op
from aot.ir.type import TensorType
from aot.relay.expr import Call, Constant, Expr, Function, is_call, operands, post_order, tensor_type
from aot.support.dataclass import dataclass
from aot.support.dtype import bits, int_range, is_int, numpy_dtype

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """Closed intervals [lo, hi], element by element; for a tensor: one for each index of its last axis."""

    lo: Int64
    hi: Int64

    @property
    def is_constant(self) -> npt.NDArray[np.bool_]:
        """Where only a single value is possible."""
        result: npt.NDArray[np.bool_] = self.lo == self.hi
        return result

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


Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Coverage:
    """For each tap along one axis: whether it is inside, and whether it is outside the image at some output position."""

    inside: Bools
    outside: Bools


def axis_coverage(layer: Call, axis: int) -> Coverage:
    """Taps along the height (axis 0) or width (axis 1) of an nn.conv2d or nn.depthwise_conv2d.

    Tap k at output position p reads row p*stride + k*dilation - padding before.
    """
    size = tensor_type(layer.args[0]).shape[axis + 1]
    kernel = tensor_type(layer.args[1]).shape[axis + 1]
    positions = np.arange(tensor_type(layer).shape[axis + 1]) * layer.attrs.strides[axis] - layer.attrs.padding[axis]
    rows = positions[None, :] + np.arange(kernel)[:, None] * layer.attrs.dilation[axis]
    within = (rows >= 0) & (rows < size)
    return Coverage(within.any(axis=1), (~within).any(axis=1))


def tap_values(layer: Call, data: Interval) -> Interval:
    """Interval of (data - input_zp) as each weight sees it; `data` has one interval per channel.

    nn.conv2d: arrays [KH, KW, I]; nn.depthwise_conv2d: [KH, KW, C]; nn.dense: [K].  A tap that may be outside the image also sees
    `pad_value`; a tap that is always outside sees nothing else.
    """
    if is_call(layer, "nn.dense"):
        return Interval(data.lo - layer.attrs.input_zp, data.hi - layer.attrs.input_zp)
    rows, columns = axis_coverage(layer, 0), axis_coverage(layer, 1)
    inside = (rows.inside[:, None] & columns.inside[None, :])[:, :, None]
    outside = (rows.outside[:, None] | columns.outside[None, :])[:, :, None]
    pad, zp = layer.attrs.pad_value, layer.attrs.input_zp
    lo = np.where(inside, np.where(outside, np.minimum(data.lo, pad), data.lo), pad)
    hi = np.where(inside, np.where(outside, np.maximum(data.hi, pad), data.hi), pad)
    return Interval(lo - zp, hi - zp)


def sums_fit(layer: Call, weight: Int64, taps: Interval) -> bool:
    """Whether no sum of products w*x of one output channel, over any of the taps in any order, leaves int32.

    Then a constant part of the sum can be added anywhere, as a bias.  The zero point is already subtracted from `weight`.
    """
    largest = np.maximum(np.abs(taps.lo), np.abs(taps.hi))
    if is_call(layer, "nn.depthwise_conv2d"):
        sums = (np.abs(weight[0]) * np.repeat(largest, layer.attrs.multiplier, axis=2)).sum(axis=(0, 1))
    else:
        sums = (np.abs(weight) * largest).reshape(len(weight), -1).sum(axis=1)
    return bool((sums <= int_range("int32")[1]).all())


# The possible values of each channel of each tensor, for any input.
#
# A channel is an index of the last axis.  Interval arithmetic treats values as independent: every interval contains all values
# that occur, and is exact for a single layer; dependent values can make it wider than necessary, never narrower.  Where rounding
# matters, the rules call the operators' own `evaluate`, so that they cannot disagree with it.


Rule = Callable[[Call, Sequence[Interval]], Interval | None]
"""(call, intervals of its tensor arguments) -> interval of the result; None if only the type's range is known."""


def channel_intervals(func: Function) -> dict[int, Interval]:
    """The intervals of each channel, per node (by id) whose value is an integer tensor of up to 32 bits.

    Parameters, and results of operators without a rule in `RULES`, have the whole range of their type.
    """
    intervals: dict[int, Interval] = {}
    for expr in post_order(func.body):
        if isinstance(expr.type, TensorType) and _is_followed(expr.type):
            intervals[id(expr)] = _bounded(_of(expr, intervals), expr.type)
    return intervals


def _is_followed(type_: TensorType) -> bool:
    """Integers of up to 32 bits, whose sums and products fit into 64 bits; not empty tensors."""
    return is_int(type_.dtype) and bits(type_.dtype) <= 32 and type_.size > 0


def _of(expr: Expr, intervals: dict[int, Interval]) -> Interval | None:
    match expr:
        case Constant():
            return of_array(np.asarray(expr.data))
        case Call(op=Op(name=name)) if name in RULES and all(id(a) in intervals for a in expr.args):
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


def _evaluate(expr: Call, *arrays: Array) -> Array:
    """Evaluate the operator on other arrays than its own: points, with the channels along the last axis."""
    assert isinstance(expr.op, Op)
    type_ = tensor_type(expr)
    converted = [np.asarray(a).astype(numpy_dtype(tensor_type(o).dtype)) for a, o in zip(arrays, expr.args, strict=True)]
    shape = np.broadcast_shapes(*(a.shape for a in converted))
    out = TensorType(tuple(map(int, shape)), type_.dtype, type_.quant)
    return np.asarray(F_EVALUATE.get(expr.op.name)(*converted, attrs=expr.attrs, out_type=out))


# Layers: sums of products.


def layer(expr: Call, args: Sequence[Interval]) -> Interval | None:
    """acc = sum of w*x: largest if x = hi for w > 0 and x = lo for w < 0; smallest the other way round."""
    weight = effective_weight(expr)
    if weight is None:
        return None
    taps = tap_values(expr, args[0])
    if is_call(expr, "nn.depthwise_conv2d"):
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


def effective_weight(expr: Call) -> Int64 | None:
    """A layer's constant integer weights less their zero point, in their own order; None for other weights."""
    weight = expr.args[1]
    if not isinstance(weight, Constant) or not is_int(weight.type.dtype):
        return None
    result: Int64 = np.asarray(weight.data).astype(np.int64) - getattr(expr.attrs, "weight_zp", 0)
    return result


def bias_add(_expr: Call, args: Sequence[Interval]) -> Interval:
    return Interval(args[0].lo + args[1].lo, args[0].hi + args[1].hi)


# Maps of single values.


def requantize(expr: Call, args: Sequence[Interval]) -> Interval:
    """Rounded multiplication and clamp are monotone, so the ends map to the ends, provided that a left shift stays in 32 bits."""
    (data,) = args
    shift = np.maximum(np.asarray(expr.attrs.shift, np.int64), 0)
    low, high = int_range("int32")
    wraps = (data.lo << shift < low) | (data.hi << shift > high)
    ends = span_of(_evaluate(expr, np.stack([data.lo, data.hi])))
    return Interval(np.where(wraps, expr.attrs.lo, ends.lo), np.where(wraps, expr.attrs.hi, ends.hi))


def clip(expr: Call, args: Sequence[Interval]) -> Interval:
    return _clamped(args[0], expr)


def _clamped(data: Interval, expr: Call) -> Interval:
    lo, hi = expr.attrs.lo, expr.attrs.hi
    return Interval(np.clip(data.lo, lo, hi), np.clip(data.hi, lo, hi))


def every_code(expr: Call, args: Sequence[Interval]) -> Interval | None:
    """A map of 8-bit values (a table, another quantisation): every value of the interval is tried."""
    dtype = tensor_type(expr.args[0]).dtype
    if bits(dtype) > 8:
        return None
    low, high = int_range(dtype)
    codes = np.arange(low, high + 1)
    count = len(args[0].lo)
    values = _evaluate(expr, np.broadcast_to(codes[:, None], (len(codes), count))).astype(np.int64)
    occurs = (codes[:, None] >= args[0].lo) & (codes[:, None] <= args[0].hi)
    lowest, highest = int_range("int64")
    return Interval(np.where(occurs, values, highest).min(axis=0), np.where(occurs, values, lowest).max(axis=0))


def add(expr: Call, args: Sequence[Interval]) -> Interval | None:
    """Monotone in each operand while the other is fixed, so the ends are among the four corners; left shifts could wrap."""
    if max(*expr.attrs.shift, expr.attrs.output_shift) > 0:
        return None
    a, b = args
    values = _evaluate(expr, np.stack([a.lo, a.hi])[:, None, :], np.stack([b.lo, b.hi])[None, :, :])
    return span_of(values.reshape(4, -1))


# Windows and reductions.


def pool(expr: Call, args: Sequence[Interval]) -> Interval:
    """The rounded mean and the maximum of values in [lo, hi] are in [lo, hi]; padding does not count."""
    return _clamped(args[0], expr)


def mean(expr: Call, args: Sequence[Interval]) -> Interval | None:
    """Monotone in the sum, so tensors of lower and of upper ends give the ends, unless the sum leaves 32 bits."""
    type_ = tensor_type(expr.args[0])
    axes = [a % len(type_.shape) for a in expr.attrs.axes]
    widest = np.maximum(np.abs(args[0].lo - expr.attrs.input_zp), np.abs(args[0].hi - expr.attrs.input_zp)).max()
    if int(widest) * prod(type_.shape[a] for a in axes) << max(expr.attrs.shift, 0) > int_range("int32")[1]:
        return None
    ends = [_evaluate_as_typed(expr, np.broadcast_to(v, type_.shape)) for v in (args[0].lo, args[0].hi)]
    return hull([of_array(e) for e in ends])


def _evaluate_as_typed(expr: Call, data: Array) -> Array:
    assert isinstance(expr.op, Op)
    typed = data.astype(numpy_dtype(tensor_type(expr.args[0]).dtype))
    return np.asarray(F_EVALUATE.get(expr.op.name)(typed, attrs=expr.attrs, out_type=expr.type))


# Movement of data.


def same(_expr: Call, args: Sequence[Interval]) -> Interval:
    """Elements move, but never to another channel."""
    return args[0]


def pad(expr: Call, args: Sequence[Interval]) -> Interval:
    """A border in other axes adds the pad value to every channel; a border in the last axis adds channels of it."""
    value = int(expr.attrs.pad_value)
    *others, (before, after) = expr.attrs.pad_width
    lo, hi = args[0].lo, args[0].hi
    if any(map(any, others)):
        lo, hi = np.minimum(lo, value), np.maximum(hi, value)
    return Interval(*(np.pad(end, (before, after), constant_values=value) for end in (lo, hi)))


def concatenate(expr: Call, args: Sequence[Interval]) -> Interval:
    """Channels one after the other if the last axis is joined, else the union of each channel's values."""
    if expr.attrs.axis % len(tensor_type(expr).shape) != len(tensor_type(expr).shape) - 1:
        return hull(args)
    return Interval(np.concatenate([a.lo for a in args]), np.concatenate([a.hi for a in args]))


def reshape(expr: Call, args: Sequence[Interval]) -> Interval:
    """Element e has channel e mod C before and e mod C' after: channels that are equal modulo gcd(C, C') can mix."""
    after = channels(tensor_type(expr))
    (data,) = args
    if after % len(data.lo) == 0:
        times = after // len(data.lo)
        return Interval(np.tile(data.lo, times), np.tile(data.hi, times))
    step = gcd(after, len(data.lo))
    lo, hi = data.lo.reshape(-1, step).min(axis=0), data.hi.reshape(-1, step).max(axis=0)
    return Interval(np.tile(lo, after // step), np.tile(hi, after // step))


def transpose(expr: Call, args: Sequence[Interval]) -> Interval:
    """The same channels if the last axis stays, else all values in each."""
    (data,) = args
    if expr.attrs.axes[-1] == len(expr.attrs.axes) - 1:
        return data
    count = channels(tensor_type(expr))
    return Interval(np.full(count, data.lo.min()), np.full(count, data.hi.max()))


RULES: dict[str, Rule] = {
    "nn.conv2d": layer,
    "nn.depthwise_conv2d": layer,
    "nn.dense": layer,
    "nn.bias_add": bias_add,
    "qnn.requantize": requantize,
    "qnn.requantize8": every_code,
    "qnn.lut": every_code,
    "clip": clip,
    "qnn.add": add,
    "nn.avg_pool2d": pool,
    "nn.max_pool2d": pool,
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

CHANNELWISE = frozenset(
    {
        "clip",
        "image.resize_nearest",
        "nn.avg_pool2d",
        "nn.bias_add",
        "nn.max_pool2d",
        "qnn.add",
        "qnn.lut",
        "qnn.mul",
        "qnn.requantize",
        "qnn.requantize8",
        "qnn.sub",
    }
)
"""Operators whose channel c depends only on channel c of each operand (or on an operand's only channel), with attributes that are
the same for all channels.  nn.bias_add and qnn.requantize have values per channel, which the rebuilding code handles.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Liveness:
    """The result: `needed` has a mask of channels per tensor, `live` the nodes (by id) that are still read."""

    needed: Mapping[int, Bools]
    live: frozenset[int]

    def mask(self, expr: Expr) -> Bools:
        """The needed channels of a node whose value is one tensor."""
        return self.needed[id(expr)]


def channel_liveness(func: Function, intervals: Mapping[int, Interval], *, align: int = 1) -> Liveness:
    """The smallest sets of channels that preserve every result of `func`; each live tensor keeps at least one.

    With `align` > 1, each layer's output keeps further channels, lowest first, until their number is a multiple of it (or all).
    """
    state = _State(post_order(func.body), intervals)
    state.require_all(func.body)
    state.propagate()
    while True:
        live, empty = _live(func, state)
        if empty is not None:
            state.require_one(empty)
        elif align < 2 or not _align(state, live, align):
            return Liveness(state.needed, live)
        state.propagate()


def _live(func: Function, state: _State) -> tuple[frozenset[int], Expr | None]:
    """Nodes that results depend on, and the first one without a needed channel, if any."""
    live = {id(func.body)}
    for expr in reversed(state.order):
        if id(expr) not in live:
            continue
        if id(expr) in state.needed and not state.needed[id(expr)].any() and channels(tensor_type(expr)):
            return frozenset(live), expr
        live.update(id(o) for o in _read(expr, state))
    return frozenset(live), None


def _read(expr: Expr, state: _State) -> list[Expr]:
    """Operands that remain; a concatenation along the channels drops those without needed channels."""
    if joins_channels(expr):
        return [o for o in operands(expr) if not isinstance(o, Constant) and state.needed[id(o)].any()]
    return list(operands(expr))


def joins_channels(expr: Expr) -> bool:
    """Whether `expr` concatenates along the last axis."""
    return isinstance(expr, Call) and is_call(expr, "concatenate") and expr.attrs.axis == len(tensor_type(expr).shape) - 1


def _align(state: _State, live: frozenset[int], align: int) -> bool:
    """Keep more channels of the first layer whose count is not a multiple of `align`; return whether there was one."""
    for expr in state.order:
        if id(expr) not in live or not isinstance(expr, Call) or not isinstance(expr.op, Op) or expr.op.name not in LAYERS:
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

    order: list[Expr]
    intervals: Mapping[int, Interval]
    needed: dict[int, Bools] = field(default_factory=dict)
    reads: dict[int, Bools] = field(default_factory=dict)
    readers: dict[int, list[Expr]] = field(default_factory=dict)
    waiting: dict[int, Expr] = field(default_factory=dict)
    """Nodes whose correspondence may not hold, the next one first."""

    def __post_init__(self) -> None:
        self.waiting = {id(e): e for e in reversed(self.order)}
        for expr in self.order:
            for operand in operands(expr):
                self.readers.setdefault(id(operand), []).append(expr)
            if isinstance(expr.type, TensorType):
                self.needed[id(expr)] = np.full(channels(expr.type), not isinstance(expr, Call))

    def require(self, expr: Expr, mask: Bools) -> None:
        """Add channels; a constant needs no correspondence, since each of its readers cuts out its own channels."""
        if isinstance(expr, Constant):
            return
        old = self.needed[id(expr)]
        if (mask & ~old).any():
            self.needed[id(expr)] = old | mask
            self.waiting.update((id(e), e) for e in (expr, *self.readers.get(id(expr), ())))

    def require_all(self, expr: Expr) -> None:
        for e in (expr,) if isinstance(expr.type, TensorType) else operands(expr):
            if isinstance(e.type, TensorType):
                self.require(e, np.ones(channels(e.type), np.bool_))

    def require_one(self, expr: Expr) -> None:
        mask = np.zeros(channels(tensor_type(expr)), np.bool_)
        mask[0] = True
        self.require(expr, mask)

    def propagate(self) -> None:
        """Propagate to the least fixed point, which does not depend on the order because masks only grow.

        A correspondence relates an operator's result to its operands, so a changed tensor affects the operator that computes it
        and its readers.
        """
        while self.waiting:
            self._link(self.waiting.pop(next(iter(self.waiting))))

    def reads_of(self, layer: Call) -> Bools:
        """`indispensable_inputs`, cached."""
        if id(layer) not in self.reads:
            self.reads[id(layer)] = indispensable_inputs(layer, self.intervals.get(id(layer.args[0])))
        return self.reads[id(layer)]

    def _link(self, expr: Expr) -> None:
        if isinstance(expr, Call) and isinstance(expr.op, Op):
            LINKS.get(expr.op.name, _opaque)(expr, self)
        elif not isinstance(expr.type, TensorType) or operands(expr):
            _opaque(expr, self)


def indispensable_inputs(layer: Call, data: Interval | None) -> Bools:
    """[O, I]: whether output o of an nn.conv2d or nn.dense depends on input channel i by more than a constant.

    It does not if each weight between them is zero or sees only one value (a constant channel; outside the image, the pad value):
    sum of w*x = sum over the others + a constant.  Everything counts as read if that sum could leave 32 bits.
    """
    weight = effective_weight(layer)
    if weight is None:
        return np.ones((channels(tensor_type(layer)), channels(tensor_type(layer.args[0]))), np.bool_)
    taps = tap_values(layer, data if data is not None else full_range(tensor_type(layer.args[0])))
    reads: Bools = weight != 0
    if sums_fit(layer, weight, taps):
        reads = reads & ~taps.is_constant
    return np.asarray(reads.any(axis=tuple(range(1, weight.ndim - 1))))


# Correspondences, one per kind of operator.

Link = Callable[[Call, _State], None]


def _opaque(expr: Expr, state: _State) -> None:
    """Nothing is known about the operator: it needs all channels and yields all."""
    for e in (expr, *operands(expr)):
        state.require_all(e)


def _layer(expr: Call, state: _State) -> None:
    if not isinstance(expr.args[1], Constant):
        _opaque(expr, state)
        return
    state.require(expr.args[0], np.asarray(state.reads_of(expr)[state.needed[id(expr)]].any(axis=0)))


def _depthwise(expr: Call, state: _State) -> None:
    """Outputs c*M to c*M + M - 1 belong to input c; outputs of a single input channel can be removed freely."""
    data, weight = expr.args
    if not isinstance(weight, Constant):
        _opaque(expr, state)
        return
    m = expr.attrs.multiplier
    if channels(tensor_type(data)) == 1:
        state.require_all(data)
        return
    mask = state.needed[id(data)] | state.needed[id(expr)].reshape(-1, m).any(axis=1)
    state.require(data, mask)
    state.require(expr, np.repeat(mask, m))


def _channelwise(expr: Call, state: _State) -> None:
    count = channels(tensor_type(expr))
    bound = [o for o in operands(expr) if channels(tensor_type(o)) == count and not isinstance(o, Constant)]
    mask = np.logical_or.reduce([state.needed[id(e)] for e in (expr, *bound)])
    for e in (expr, *bound):
        state.require(e, mask)
    # An operand with a single channel is live if the result is, and then keeps it.


def _with_constants(expr: Call, state: _State) -> None:
    """Channel-wise, if the other operands are constants that can be cut."""
    (_channelwise if all(isinstance(o, Constant) for o in expr.args[1:]) else _opaque)(expr, state)


def _mean(expr: Call, state: _State) -> None:
    last = len(tensor_type(expr.args[0]).shape) - 1
    (_opaque if any(a in (last, -1) for a in expr.attrs.axes) else _channelwise)(expr, state)


def _transpose(expr: Call, state: _State) -> None:
    (_channelwise if expr.attrs.axes[-1] == len(expr.attrs.axes) - 1 else _opaque)(expr, state)


def _pad(expr: Call, state: _State) -> None:
    """Channels of padding can be removed freely."""
    (data,) = expr.args
    before = expr.attrs.pad_width[-1][0]
    inner = slice(before, before + channels(tensor_type(data)))
    mask = state.needed[id(expr)].copy()
    mask[inner] |= state.needed[id(data)]
    state.require(expr, mask)
    state.require(data, mask[inner])


def _concatenate(expr: Call, state: _State) -> None:
    if not joins_channels(expr):
        _channelwise(expr, state) if not any(isinstance(o, Constant) for o in expr.args) else _opaque(expr, state)
        return
    begin = 0
    for o in expr.args:
        end = begin + channels(tensor_type(o))
        if isinstance(o, Constant):
            begin = end
            continue
        mask = np.zeros(len(state.needed[id(expr)]), np.bool_)
        mask[begin:end] = state.needed[id(o)]
        state.require(expr, mask)
        state.require(o, state.needed[id(expr)][begin:end])
        begin = end


def _reshape(expr: Call, state: _State) -> None:
    """If the new last axis consists of whole runs of channels, each run keeps the same ones."""
    (data,) = expr.args
    count, after = channels(tensor_type(data)), channels(tensor_type(expr))
    if not count or not after or after % count or not tensor_type(expr).shape or not tensor_type(data).shape:
        _opaque(expr, state)
        return
    mask = state.needed[id(data)] | state.needed[id(expr)].reshape(-1, count).any(axis=0)
    state.require(data, mask)
    state.require(expr, np.tile(mask, after // count))


LINKS: dict[str, Link] = {
    **dict.fromkeys(LAYERS, _layer),
    **dict.fromkeys(CHANNELWISE, _channelwise),
    "nn.bias_add": _with_constants,
    "nn.depthwise_conv2d": _depthwise,
    "mean": _mean,
    "transpose": _transpose,
    "nn.pad": _pad,
    "concatenate": _concatenate,
    "reshape": _reshape,
}
"""Per operator; any other operator keeps all channels of its operands and its result."""
