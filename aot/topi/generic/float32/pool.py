"""Pooling of float32: nn.max_pool2d and nn.avg_pool2d with the clamp of an activation, some channels of a window at a time.

Maxima and sums stay in registers and meet the numbers in the reference's order, so that zeros of both signs, infinities and NaN
come out as its own do.  Bounds inside the image are computed once for an output pixel; small windows without padding need no
loops.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

from aot.ir.op import Op
from aot.ir.type import TensorType
from aot.op.common.window import inside
from aot.op.math.unary import UnaryAttrs
from aot.op.te_rule import F_TE, TeContext
from aot.relay.expr import Var, is_call, tensor_type
from aot.support.dataclass import dataclass
from aot.support.dtype import lowest
from aot.target.target import Target
from aot.te.tensor import tensor_fn
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm, select
from aot.tir.function import FuncAttrs
from aot.topi.strategy import Group, Lowered, register_planned

MAX_CHANNELS = 8
"""Channels whose maxima or sums are kept at once."""

MAX_STRAIGHT = 4
"""Taps of the largest window that is written without loops."""

Bounds = tuple[tuple[Expr, Expr], tuple[Expr, Expr]]
"""[start, stop) of rows and of columns."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`clamp`: the activation, None where it changes no result; `channels` of `out` [N, OH, OW, C] at a time."""

    kind: str
    data: Var
    out: tuple[int, ...]
    attrs: Any
    clamp: UnaryAttrs | None
    channels: int

    @property
    def straight(self) -> bool:
        return not any(self.attrs.padding) and prod(self.attrs.pool_size) <= MAX_STRAIGHT


def plan(group: Group, _target: Target) -> Plan | None:
    """None for other types, and for followers other than an activation."""
    anchor = group.anchor
    if not isinstance(anchor.op, Op) or not isinstance(anchor.args[0], Var) or len(group.params) != 1:
        return None
    followers, out = group.followers, tensor_type(anchor)
    if out.dtype != "float32" or len(followers) > 1 or any(not is_call(f, "relu") for f in followers):
        return None
    kind = anchor.op.name.removeprefix("nn.").removesuffix("_pool2d")
    clamp: UnaryAttrs | None = followers[0].attrs if followers else None
    if kind == "max" and clamp is not None and clamp.lo is not None and clamp.lo <= lowest("float32"):
        clamp = UnaryAttrs(hi=clamp.hi)  # maxima begin there
    channels = max(n for n in range(1, MAX_CHANNELS + 1) if out.shape[3] % n == 0)
    return Plan(kind, anchor.args[0], out.shape, anchor.attrs, clamp, channels)


def lower(group: Group, _target: Target, name: str, found: Plan) -> Lowered:
    b = IRBuilder(name)
    data = b.input("data", (found.data.type.size,), "float32")
    out = b.output("out", (prod(found.out),), "float32")
    _Pool(b, found, data, out).emit()
    func = b.finish(FuncAttrs(kernel=f"generic.{found.kind}_pool_float(channels={found.channels})", span=group.anchor.span))
    taps, channels, blocks = prod(found.attrs.pool_size), found.channels, prod(found.out) // found.channels
    each = (5 if found.kind == "max" else 2) * taps + 3 + 7 * (found.clamp is not None)
    around = 12 if found.straight else 12 + 4 * taps + 6 * found.attrs.pool_size[0]
    code = 120 + (18 * taps if found.straight else 30) * channels + 40 * any(found.attrs.padding)
    return Lowered(func, {}, blocks * (channels * each + around) + 12 * blocks, code)


class _Pool:
    """Emits one pooling layer."""

    def __init__(self, b: IRBuilder, found: Plan, data: Buffer, out: Buffer) -> None:
        self._b, self._plan, self._data, self._out = b, found, data, out

    def emit(self) -> None:
        b, found = self._b, self._plan
        images, rows, columns, depth = found.out
        with b.for_("n", images) as n, b.for_("y", rows) as y, b.for_("x", columns) as x:
            bounds = self._bounds(y, 0), self._bounds(x, 1)
            count = self._count(bounds) if found.kind == "avg" else None
            first = n * (found.data.type.size // images)
            place = ((n * rows + y) * columns + x) * depth
            with b.for_("c", depth, step=found.channels) as c:
                values = b.local("value", (found.channels,), "float32", init=lowest("float32") if count is None else 0.0)
                self._taps(bounds, first + c, values)
                for k in range(found.channels):
                    value = values[k] if count is None else values[k] / count
                    b.store(self._out, place + c + k, self._clamped(b.let("value", value)))

    def _bounds(self, position: Expr, axis: int) -> tuple[Expr, Expr]:
        """[start, stop) of the window's rows (axis 0) or columns inside the image."""
        attrs = self._plan.attrs
        stride, kernel = attrs.strides[axis], attrs.pool_size[axis]
        if not any(attrs.padding):
            return position * stride, position * stride + kernel
        size = self._plan.data.type.shape[1 + axis]
        ends = inside(position, stride=stride, before=attrs.padding[axis], kernel=kernel, size=size)
        return self._b.let("start", ends[0]), self._b.let("stop", ends[1])

    def _count(self, bounds: Bounds) -> Expr:
        """Taps inside the image."""
        if not any(self._plan.attrs.padding):
            return imm(float(prod(self._plan.attrs.pool_size)), "float32")
        (top, bottom), (left, right) = bounds
        return self._b.let("count", cast("float32", (bottom - top) * (right - left)))

    def _taps(self, bounds: Bounds, first: Expr, values: Buffer) -> None:
        """All taps of a window; `first` is the index of a channel in the image's first pixel."""
        b, found = self._b, self._plan
        (top, bottom), (left, right) = bounds
        width, depth = found.data.type.shape[2:]

        def tap(pixel: Expr) -> None:
            numbers = [b.let("number", self._data[first + pixel * depth + k]) for k in range(found.channels)]
            for k, number in enumerate(numbers):
                larger = select(values[k] < number, number, values[k])
                b.store(values, k, larger if found.kind == "max" else values[k] + number)

        if found.straight:
            for ky, kx in product(*map(range, found.attrs.pool_size)):
                tap((top + ky) * width + (left + kx))
            return
        with b.for_("ry", bottom, start=top) as ry:
            line = b.let("line", ry * width)
            with b.for_("rx", right, start=left) as rx:
                tap(line + rx)

    def _clamped(self, value: Expr) -> Expr:
        """The activation, by its own rule."""
        clamp = self._plan.clamp
        if clamp is None:
            return value
        one = TensorType((1,), "float32")
        rule = F_TE.get("relu")(TeContext(self._b), [tensor_fn((1,), "float32", lambda _b, _i: value)], clamp, one)
        return rule.at(self._b, (imm(0),))


for _anchor in ("nn.max_pool2d", "nn.avg_pool2d"):
    register_planned("generic.pool_float", _anchor, plan, lower, plevel=12, larger=True, cuts=False)
