"""Which channels of each tensor must be computed for the function's results.

A channel is an index of the last axis.  Convolutions and fully connected layers end a channel's life: they can do without an
input channel that they read with zero weights only, or whose value is constant, since that belongs into the bias.  Their own
output channels come and go freely.  Every other operator passes on what its readers need, and needs its operands' channels
in correspondence, as there is no operator that picks channels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

import numpy as np

from aot.ir.op import Op
from aot.ir.type import TensorType
from aot.relay.analysis.channel_intervals import effective_weight
from aot.relay.analysis.interval import Interval, channels, full_range
from aot.relay.analysis.window import Bools, sums_fit, tap_values
from aot.relay.expr import Call, Constant, Expr, Function, is_call, operands, post_order, tensor_type
from aot.support.dataclass import dataclass

LAYERS = frozenset({"nn.conv2d", "nn.dense"})
"""Operators that choose their input and output channels independently."""

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
"""Operators whose channel c depends on channel c of each operand only (or on an operand's single one), with attributes that
are the same for all channels. nn.bias_add and qnn.requantize hold values for each channel, which rebuilding knows."""


@dataclass(frozen=True, slots=True, eq=False)
class Liveness:
    """The result: `needed` has a mask of channels for each tensor, `live` the nodes (by id) that are still read."""

    needed: Mapping[int, Bools]
    live: frozenset[int]

    def mask(self, expr: Expr) -> Bools:
        """The needed channels of a node with one tensor as its value."""
        return self.needed[id(expr)]


def channel_liveness(func: Function, intervals: Mapping[int, Interval], *, align: int = 1) -> Liveness:
    """The smallest sets of channels that keep every result of `func`, each live tensor keeping at least one.

    With `align` > 1 each layer's output keeps further channels, lowest first, until their number is a multiple (or all).
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
    """Nodes that results depend on, and the first of them found without a needed channel, if there is one."""
    live = {id(func.body)}
    for expr in reversed(state.order):
        if id(expr) not in live:
            continue
        if id(expr) in state.needed and not state.needed[id(expr)].any() and channels(tensor_type(expr)):
            return frozenset(live), expr
        live.update(id(o) for o in _read(expr, state))
    return frozenset(live), None


def _read(expr: Expr, state: _State) -> list[Expr]:
    """Operands that remain; a concatenation along the channels leaves out those without any."""
    if joins_channels(expr):
        return [o for o in operands(expr) if not isinstance(o, Constant) and state.needed[id(o)].any()]
    return list(operands(expr))


def joins_channels(expr: Expr) -> bool:
    """Whether `expr` concatenates along the last axis."""
    return isinstance(expr, Call) and is_call(expr, "concatenate") and expr.attrs.axis == len(tensor_type(expr).shape) - 1


def _align(state: _State, live: frozenset[int], align: int) -> bool:
    """Keep more channels of the first layer with an odd number of them; whether there was one."""
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
    """Masks that only grow, until every operator's correspondence holds."""

    order: list[Expr]
    intervals: Mapping[int, Interval]
    needed: dict[int, Bools] = field(default_factory=dict)
    reads: dict[int, Bools] = field(default_factory=dict)
    readers: dict[int, list[Expr]] = field(default_factory=dict)
    waiting: dict[int, Expr] = field(default_factory=dict)
    """Whose correspondence may not hold, the next one first."""

    def __post_init__(self) -> None:
        self.waiting = {id(e): e for e in reversed(self.order)}
        for expr in self.order:
            for operand in operands(expr):
                self.readers.setdefault(id(operand), []).append(expr)
            if isinstance(expr.type, TensorType):
                self.needed[id(expr)] = np.full(channels(expr.type), not isinstance(expr, Call))

    def require(self, expr: Expr, mask: Bools) -> None:
        """Add channels; a constant takes part in no correspondence, as each of its readers cuts out its own channels."""
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
        """To the least fixed point, which does not depend on the order: masks only grow.

        A correspondence binds an operator's result and its operands, so a tensor that has changed concerns the operator that
        makes it and its readers.
        """
        while self.waiting:
            self._link(self.waiting.pop(next(iter(self.waiting))))

    def reads_of(self, layer: Call) -> Bools:
        """`indispensable_inputs`, computed once."""
        if id(layer) not in self.reads:
            self.reads[id(layer)] = indispensable_inputs(layer, self.intervals.get(id(layer.args[0])))
        return self.reads[id(layer)]

    def _link(self, expr: Expr) -> None:
        if isinstance(expr, Call) and isinstance(expr.op, Op):
            LINKS.get(expr.op.name, _opaque)(expr, self)
        elif not isinstance(expr.type, TensorType) or operands(expr):
            _opaque(expr, self)


def indispensable_inputs(layer: Call, data: Interval | None) -> Bools:
    """[O, I]: whether output o of an nn.conv2d or nn.dense depends on input channel i in another way than by a constant.

    It does not where each weight between them is zero or sees one value only (a constant channel; outside the image, the pad
    value): sum of w*x = sum over the others + a constant.  Everything counts as read where that sum could leave 32 bits.
    """
    weight = effective_weight(layer)
    if weight is None:
        return np.ones((channels(tensor_type(layer)), channels(tensor_type(layer.args[0]))), np.bool_)
    taps = tap_values(layer, data if data is not None else full_range(tensor_type(layer.args[0])))
    reads: Bools = weight != 0
    if sums_fit(layer, weight, taps):
        reads = reads & ~taps.is_constant
    return np.asarray(reads.any(axis=tuple(range(1, weight.ndim - 1))))


# Correspondences, one for each kind of operator.

Link = Callable[[Call, _State], None]


def _opaque(expr: Expr, state: _State) -> None:
    """Nothing is known of the operator: it needs all channels, and yields all."""
    for e in (expr, *operands(expr)):
        state.require_all(e)


def _layer(expr: Call, state: _State) -> None:
    if not isinstance(expr.args[1], Constant):
        _opaque(expr, state)
        return
    state.require(expr.args[0], np.asarray(state.reads_of(expr)[state.needed[id(expr)]].any(axis=0)))


def _depthwise(expr: Call, state: _State) -> None:
    """Outputs c*M to c*M + M - 1 go with input c; those of a single input channel come and go freely."""
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
    # An operand with a single channel for all is live if the result is, and then keeps its one.


def _with_constants(expr: Call, state: _State) -> None:
    """Channel-wise, if the other operands are constants that can be cut."""
    (_channelwise if all(isinstance(o, Constant) for o in expr.args[1:]) else _opaque)(expr, state)


def _mean(expr: Call, state: _State) -> None:
    last = len(tensor_type(expr.args[0]).shape) - 1
    (_opaque if any(a in (last, -1) for a in expr.attrs.axes) else _channelwise)(expr, state)


def _transpose(expr: Call, state: _State) -> None:
    (_channelwise if expr.attrs.axes[-1] == len(expr.attrs.axes) - 1 else _opaque)(expr, state)


def _pad(expr: Call, state: _State) -> None:
    """Channels of padding are free."""
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
    """Where the new last axis holds whole runs of channels, each run keeps the same ones."""
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
"""By operator; one that is missing keeps all channels of its operands and its result."""
