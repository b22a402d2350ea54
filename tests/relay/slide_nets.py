"""Random networks over a window of time: all that keeps rows apart, and what ends it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from aot.ir.span import Span
from aot.ir.type import TensorType, per_tensor
from aot.op import load_all
from aot.op.common.layer import PoolAttrs
from aot.op.nn.conv import Conv2DAttrs, DepthwiseConv2DAttrs
from aot.op.nn.dense import DenseAttrs
from aot.op.qnn.arithmetic import AddAttrs
from aot.op.qnn.lut import LutAttrs
from aot.op.qnn.quantize import RequantizeAttrs
from aot.op.reduce import ReduceAttrs
from aot.op.tensor import ConcatenateAttrs, PadAttrs, ReshapeAttrs, StridedSliceAttrs, TransposeAttrs
from aot.relay.expr import Expr, Function, Var, call, const, make_tuple, tensor_type, var
from aot.relay.transform.sliding import SlidePlan, slide_plan, sliding

load_all()

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class SlideNet:
    """A network, the axis of its input that is time, and how many rows are new in each run."""

    main: Function
    axis: int
    hop: int

    @property
    def hops(self) -> dict[str, tuple[int, int]]:
        """As `sliding` takes them."""
        return {self.main.params[0].name: (self.axis, self.hop)}


class _Builder:
    """Appends calls to a network; `time` says of each tensor made so far which axis is time."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.count = 0
        self.pool: list[Expr] = []

    def pick(self, *options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def call(self, name: str, *args: Expr, attrs: Any = None) -> Expr:
        self.count += 1
        return call(name, args, attrs, span=Span(self.count, name.upper(), f"y{self.count}", self.count))

    def weights(self, *shape: int) -> Expr:
        return const(self.rng.integers(-127, 128, shape).astype(np.int8))

    def requantized(self, acc: Expr) -> Expr:
        count = tensor_type(acc).shape[-1]
        if self.rng.random() < 0.6:
            acc = self.call("nn.bias_add", acc, const(self.rng.integers(-5000, 5000, count).astype(np.int32)))
        multiplier = tuple(int(v) for v in self.rng.integers(1 << 30, (1 << 31) - 1, count))
        return self.call("qnn.requantize", acc, attrs=RequantizeAttrs(multiplier, (-8,) * count, -3, -128, 127, "double"))

    def window(self, size: int, *, limit: int) -> tuple[int, int, int, int, int]:
        """Kernel, stride, dilation, padding before and after, along an axis of `size`: SAME, VALID, or any."""
        kernel = int(self.rng.integers(1, min(limit, size) + 1))
        stride, dilation = int(self.pick(1, 1, 1, 2, 3)), int(self.pick(1, 1, 1, 2, 4))
        if (kernel - 1) * dilation >= size:
            dilation = 1
        reach = (kernel - 1) * dilation + 1
        out = -(-size // stride)
        total = max((out - 1) * stride + reach - size, 0)
        before, after = self.pick((total // 2, total - total // 2), (0, 0), (reach - 1, 0))
        return kernel, stride, dilation, min(before, reach - 1), min(after, reach - 1)


def slide_net(seed: int) -> SlideNet:
    """A network of up to a dozen operators on int8 [1, H, W, C], of one or two outputs."""
    b = _Builder(np.random.default_rng(seed))
    axis = int(b.pick(1, 1, 2))
    time, width, channels = int(b.rng.integers(6, 33)), int(b.rng.integers(1, 5)), int(b.pick(1, 2, 4))
    shape = (1, time, width, channels) if axis == 1 else (1, width, time, channels)
    x = Var("x", TensorType(shape, "int8", per_tensor(0.5, int(b.rng.integers(-128, 128)))), Span(tensor=1000, name="x"))
    b.pool.append(x)
    for _ in range(int(b.rng.integers(1, 9))):
        b.pool.append(_step(b, b.pool[-1] if b.rng.random() < 0.8 else b.pick(*b.pool)))
    last = _head(b, b.pool[-1])
    outputs = [last] if b.rng.random() < 0.7 else [last, b.pick(*b.pool[1:])]
    hop = int(b.pick(1, 1, 2, 2, 3, 4, 6, int(b.rng.integers(1, time + 1))))
    return SlideNet(Function((x,), outputs[0] if len(outputs) == 1 else make_tuple(outputs)), axis, min(hop, time))


def _step(b: _Builder, x: Expr) -> Expr:
    shape = tensor_type(x).shape
    if len(shape) != 4:
        return b.call("qnn.lut", x, attrs=_table(b))
    steps = (_conv, _conv, _depthwise, _depthwise, _pool, _lut, _add, _pad, _join, _cut, _turn, _merge, _maximum)
    return b.pick(*steps)(b, x)


def _layer_attrs(b: _Builder, x: Expr) -> tuple[tuple[int, int], dict[str, Any]]:
    _, height, width, _ = tensor_type(x).shape
    rows, columns = b.window(height, limit=5), b.window(width, limit=5)
    zp = int(b.pick(-128, 0, 7))
    common = {
        "strides": (rows[1], columns[1]),
        "padding": (rows[3], columns[3], rows[4], columns[4]),
        "dilation": (rows[2], columns[2]),
        "input_zp": zp,
        "pad_value": zp,
    }
    return (rows[0], columns[0]), common


def _conv(b: _Builder, x: Expr) -> Expr:
    (kh, kw), common = _layer_attrs(b, x)
    weight = b.weights(int(b.pick(1, 3, 4, 8)), kh, kw, tensor_type(x).shape[3])
    return b.requantized(b.call("nn.conv2d", x, weight, attrs=Conv2DAttrs(**common)))


def _depthwise(b: _Builder, x: Expr) -> Expr:
    (kh, kw), common = _layer_attrs(b, x)
    weight = b.weights(1, kh, kw, tensor_type(x).shape[3])
    return b.requantized(b.call("nn.depthwise_conv2d", x, weight, attrs=DepthwiseConv2DAttrs(**common)))


def _pool(b: _Builder, x: Expr) -> Expr:
    _, height, width, _ = tensor_type(x).shape
    rows, columns = b.window(height, limit=3), b.window(width, limit=3)
    padding = tuple(
        min(p, k - 1) for p, k in zip((rows[3], columns[3], rows[4], columns[4]), (rows[0], columns[0]) * 2, strict=True)
    )
    top, left, bottom, right = padding
    if (height + top + bottom) < rows[0] or (width + left + right) < columns[0]:
        return x
    name = b.pick("nn.max_pool2d", "nn.avg_pool2d")
    attrs = PoolAttrs((rows[0], columns[0]), (rows[1], columns[1]), (top, left, bottom, right), -128, int(b.pick(90, 127)))
    return b.call(name, x, attrs=attrs)


def _table(b: _Builder) -> LutAttrs:
    return LutAttrs(tuple(int(v) for v in b.rng.integers(-128, 128, 256)))


def _lut(b: _Builder, x: Expr) -> Expr:
    return b.call("qnn.lut", x, attrs=_table(b))


def _add(b: _Builder, x: Expr) -> Expr:
    other = b.pick(*[p for p in b.pool if tensor_type(p).shape == tensor_type(x).shape] or [x])
    return b.call("qnn.add", x, other, attrs=AddAttrs((3, -4), (1 << 30, 1 << 30), (0, -1), 1 << 30, -18, 1, -128, 127))


def _maximum(b: _Builder, x: Expr) -> Expr:
    """With a constant: a row of channels, or one that differs from row to row."""
    shape = tensor_type(x).shape
    other = const(b.rng.integers(-40, 40, b.pick((1, 1, 1, shape[3]), (1, 1, shape[2], 1), (1, shape[1], 1, 1))).astype(np.int8))
    return b.call("qnn.add", x, other, attrs=AddAttrs((3, -4), (1 << 30, 1 << 30), (0, -1), 1 << 30, -18, 1, -128, 127))


def _pad(b: _Builder, x: Expr) -> Expr:
    widths = tuple((int(b.rng.integers(3)), int(b.rng.integers(3))) for _ in range(2))
    return b.call("nn.pad", x, attrs=PadAttrs(((0, 0), *widths, (0, 0)), int(b.pick(-128, 0, 5))))


def _join(b: _Builder, x: Expr) -> Expr:
    axis = int(b.pick(3, 3, 3, 1, 2))
    shape = tensor_type(x).shape
    if shape[axis] > 24:
        return x
    fitting = [p for p in b.pool if (s := tensor_type(p).shape)[:axis] + s[axis + 1 :] == shape[:axis] + shape[axis + 1 :]]
    return b.call("concatenate", x, b.pick(*fitting or [x]), attrs=ConcatenateAttrs(axis))


def _cut(b: _Builder, x: Expr) -> Expr:
    begin, strides, extents = [], [], []
    for size in tensor_type(x).shape:
        first, step = int(b.rng.integers(min(size, 3))), int(b.pick(1, 1, 1, 2))
        begin.append(first)
        strides.append(step)
        extents.append(-(-(size - first) // step) - (1 if size - first > 4 * step and b.rng.random() < 0.3 else 0))
    return b.call("strided_slice", x, attrs=StridedSliceAttrs(tuple(begin), tuple(strides), tuple(extents)))


def _turn(b: _Builder, x: Expr) -> Expr:
    return b.call("transpose", x, attrs=TransposeAttrs(b.pick((0, 2, 1, 3), (0, 1, 3, 2), (0, 1, 2, 3))))


def _merge(b: _Builder, x: Expr) -> Expr:
    """Two rows as one."""
    _, height, width, channels = tensor_type(x).shape
    if height % 2:
        return x
    return b.call(
        "reshape", x, attrs=ReshapeAttrs(b.pick((1, height // 2, width * 2, channels), (1, height // 2, width, 2 * channels)))
    )


def _head(b: _Builder, x: Expr) -> Expr:
    """What ends a network: nothing, a mean over all, the largest over one axis, or a fully connected layer over rows or all."""
    shape = tensor_type(x).shape
    match b.pick("", "", "mean", "max", "dense", "rows"):
        case "mean" if len(shape) == 4:
            return b.call("nn.avg_pool2d", x, attrs=PoolAttrs(shape[1:3], shape[1:3], (0, 0, 0, 0), -128, 127))
        case "max":
            return b.call("reduce_max", x, attrs=ReduceAttrs("reduce_max", (int(b.pick(1, 2, 3)),), bool(b.pick(False, True))))
        case "dense" if tensor_type(x).size <= 2000:
            flat = b.call("reshape", x, attrs=ReshapeAttrs((1, tensor_type(x).size)))
            return b.requantized(b.call("nn.dense", flat, b.weights(5, tensor_type(x).size), attrs=DenseAttrs(3)))
        case "rows" if len(shape) == 4:
            rows = b.call("reshape", x, attrs=ReshapeAttrs((shape[1], shape[2] * shape[3])))
            return b.requantized(b.call("nn.dense", rows, b.weights(5, shape[2] * shape[3]), attrs=DenseAttrs(3)))
        case _:
            return x


def windows(net: SlideNet, runs: int, *, seed: int) -> list[tuple[Array, Array]]:
    """(new rows, whole window) of each run, from a window of zeros on."""
    rng = np.random.default_rng(seed)
    type_ = net.main.params[0].type
    assert type_.quant is not None
    shape = (*type_.shape[: net.axis], net.hop, *type_.shape[net.axis + 1 :])
    window = np.full(type_.shape, type_.quant.zero_point[0], np.int8)
    found = []
    for _ in range(runs):
        rows = rng.integers(-128, 128, shape).astype(np.int8)
        joined = np.concatenate([window, rows], axis=net.axis)
        window = np.take(joined, range(net.hop, net.hop + type_.shape[net.axis]), axis=net.axis)
        found.append((rows, window))
    return found


MOVING = var("x", shape=(1, 49, 1, 1), dtype="int8")
"""A tensor whose rows move."""


def planned(net: SlideNet) -> SlidePlan:
    return slide_plan(net.main, sliding(net.main, net.hops))
