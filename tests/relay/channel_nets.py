"""Quantised graphs for the tests of channel analysis and removal, with channels planted that are constant or never read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aot import op as operators
from aot.ir.span import Span
from aot.ir.type import TensorType
from aot.numerics.fixed_point import quantize_multiplier
from aot.op.common.layer import PoolAttrs
from aot.op.nn.conv import Conv2DAttrs, DepthwiseConv2DAttrs
from aot.op.nn.dense import DenseAttrs
from aot.op.qnn.arithmetic import AddAttrs
from aot.op.qnn.lut import LutAttrs
from aot.op.qnn.quantize import ClipAttrs, RequantizeAttrs
from aot.op.reduce import MeanAttrs
from aot.op.tensor import ConcatenateAttrs, PadAttrs, ReshapeAttrs
from aot.op.vision import ResizeNearestAttrs
from aot.relay.expr import Call, Expr, Function, Var, call, const, make_tuple, tensor_type
from aot.relay.interpreter import evaluate

operators.load_all()

Padding = tuple[int, int, int, int]
SAME3: Padding = (1, 1, 1, 1)
VALID: Padding = (0, 0, 0, 0)


class QuantNet:
    """Builds a graph of int8 operators; every node has a tensor index of its own, so that all values can be compared."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.params: list[Var] = []
        self._count = 0

    def span(self, opcode: str = "OP") -> Span:
        self._count += 1
        return Span(self._count, opcode, f"t{self._count}", self._count)

    def input(self, *shape: int) -> Var:
        self.params.append(Var(f"x{len(self.params)}", TensorType(shape, "int8"), Span(tensor=1000 + len(self.params))))
        return self.params[-1]

    def op(self, name: str, *args: Expr, attrs: Any = None) -> Call:
        return call(name, args, attrs, span=self.span(name))

    def func(self, *outputs: Expr) -> Function:
        return Function(tuple(self.params), outputs[0] if len(outputs) == 1 else make_tuple(outputs))

    def weights(self, *shape: int) -> np.ndarray:
        return self.rng.integers(-127, 128, shape).astype(np.int8)

    def finish(self, acc: Expr, *, bias: Sequence[int] | np.ndarray | None = None, zp: int = -128, lo: int = -128) -> Call:
        """bias_add and requantize by about 1/300, one multiplier a channel."""
        channels = tensor_type(acc).shape[-1]
        if bias is not None:
            acc = self.op("nn.bias_add", acc, const(np.asarray(bias, np.int32)))
        pairs = [quantize_multiplier(1 / float(self.rng.integers(200, 400))) for _ in range(channels)]
        attrs = RequantizeAttrs(tuple(m for m, _ in pairs), tuple(s for _, s in pairs), zp, lo, 127, "double")
        return self.op("qnn.requantize", acc, attrs=attrs)

    def conv(
        self,
        x: Expr,
        w: np.ndarray,
        *,
        padding: Padding = VALID,
        pad_value: int = -128,
        stride: int = 1,
        dilation: int = 1,
        input_zp: int = 0,
    ) -> Call:
        attrs = Conv2DAttrs((stride, stride), padding, (dilation, dilation), input_zp, pad_value)
        return self.op("nn.conv2d", x, const(w), attrs=attrs)

    def depthwise(
        self, x: Expr, w: np.ndarray, *, padding: Padding = VALID, pad_value: int = -128, stride: int = 1, input_zp: int = 0
    ) -> Call:
        multiplier = w.shape[3] // tensor_type(x).shape[3]
        attrs = DepthwiseConv2DAttrs((stride, stride), padding, (1, 1), input_zp, pad_value, multiplier)
        return self.op("nn.depthwise_conv2d", x, const(w), attrs=attrs)

    def dense(self, x: Expr, w: np.ndarray, *, input_zp: int = 0) -> Call:
        return self.op("nn.dense", x, const(w), attrs=DenseAttrs(input_zp))

    def add(self, a: Expr, b: Expr, *, lo: int = -128) -> Call:
        half, unit = quantize_multiplier(0.5), quantize_multiplier(1.0 / (1 << 19) * 0.999)
        attrs = AddAttrs((-128, 3), (half[0], half[0]), (half[1], half[1]), unit[0], unit[1], -128, lo, 127)
        return self.op("qnn.add", a, b, attrs=attrs)

    def pool(self, name: str, x: Expr, size: int, *, stride: int = 1, padding: Padding = VALID) -> Call:
        return self.op(name, x, attrs=PoolAttrs((size, size), (stride, stride), padding, -128, 127))

    def clip(self, x: Expr, lo: int, hi: int) -> Call:
        return self.op("clip", x, attrs=ClipAttrs(lo, hi))

    def pad(self, x: Expr, *width: tuple[int, int], value: int = -128) -> Call:
        return self.op("nn.pad", x, attrs=PadAttrs(width, value))

    def mean(self, x: Expr, *axes: int) -> Call:
        count = int(np.prod([tensor_type(x).shape[a] for a in axes]))
        multiplier, shift = quantize_multiplier(0.9 / count)
        return self.op("mean", x, attrs=MeanAttrs(axes, False, -128, multiplier, shift, -128))

    def concat(self, *xs: Expr, axis: int = 3) -> Call:
        return self.op("concatenate", *xs, attrs=ConcatenateAttrs(axis))

    def reshape(self, x: Expr, *shape: int) -> Call:
        return self.op("reshape", x, attrs=ReshapeAttrs(shape))

    def lut(self, x: Expr) -> Call:
        table = np.clip(np.arange(-128, 128) ** 2 // 150 - 60, -128, 127)
        return self.op("qnn.lut", x, attrs=LutAttrs(tuple(int(v) for v in table)))

    def resize(self, x: Expr) -> Call:
        _, height, width, _ = tensor_type(x).shape
        rows, columns = np.repeat(np.arange(height), 2), np.repeat(np.arange(width), 2)
        return self.op("image.resize_nearest", x, attrs=ResizeNearestAttrs(tuple(map(int, rows)), tuple(map(int, columns))))

    # Random parts.

    def planted_conv(self, x: Expr, outputs: int, *, constant: float, unread: float) -> Call:
        """1x1 or 3x3; a share of the outputs constant (zero weights or a bias that saturates), of the inputs unread."""
        kernel = int(self.rng.choice([1, 3])) if min(tensor_type(x).shape[1:3]) >= 3 else 1
        w = self.weights(outputs, kernel, kernel, tensor_type(x).shape[3])
        zero, saturated = self.rng.random(outputs) < constant, self.rng.random(outputs) < constant / 2
        w[zero] = 0
        w[..., self.rng.random(w.shape[3]) < unread] = 0
        bias = np.where(saturated, -30_000_000, self.rng.integers(-20_000, 40_000, outputs))
        bias = np.where(zero & (self.rng.random(outputs) < 0.5), -100_000, bias)
        padding = SAME3 if kernel == 3 and self.rng.random() < 0.7 else VALID
        acc = self.conv(x, w, padding=padding, stride=int(self.rng.integers(1, 3)), input_zp=int(self.rng.choice([0, -128])))
        return self.finish(acc, bias=bias, zp=int(self.rng.choice([-128, -128, 5])), lo=int(self.rng.choice([-128, -100])))

    def planted_depthwise(self, x: Expr) -> Call:
        multiplier = int(self.rng.choice([1, 1, 2]))
        channels = tensor_type(x).shape[3] * multiplier
        size = 3 if min(tensor_type(x).shape[1:3]) >= 3 else 1
        w = self.weights(1, size, size, channels)
        w[..., self.rng.random(channels) < 0.2] = 0
        padding = SAME3 if size == 3 and self.rng.random() < 0.7 else VALID
        return self.finish(self.depthwise(x, w, padding=padding), bias=self.rng.integers(-9000, 9000, channels))


def random_net(seed: int) -> Function:
    """Up to ten operators after a first convolution, two outputs at times; deterministic for a seed."""
    net = QuantNet(seed)
    rng = net.rng
    size = int(rng.integers(3, 7))
    x: Expr = net.input(int(rng.integers(1, 3)), size, size, int(rng.integers(1, 4)))
    tensors: list[Expr] = [net.planted_conv(x, int(rng.integers(2, 9)), constant=0.5, unread=0.0)]
    for _ in range(int(rng.integers(1, 9))):
        tensors.append(_random_step(net, tensors))
    y = tensors[-1]
    batch, height, width, channels = tensor_type(y).shape
    tail = int(rng.integers(0, 4))
    if tail == 0:
        w = net.weights(3, height * width * channels)
        w[:, rng.random(w.shape[1]) < 0.3] = 0
        y = net.finish(net.dense(net.reshape(y, batch, height * width * channels), w))
    elif tail == 1:
        y = net.finish(net.dense(net.mean(y, 1, 2), net.weights(4, channels)), bias=[1, -2, 3, 400])
    elif tail == 2:
        y = net.planted_conv(y, 3, constant=0.2, unread=0.4)
    return net.func(y, tensors[int(rng.integers(0, len(tensors)))]) if rng.random() < 0.25 else net.func(y)


def _random_step(net: QuantNet, tensors: list[Expr]) -> Expr:
    rng = net.rng
    x = tensors[-1]
    shape = tensor_type(x).shape
    fits = min(shape[1:3]) >= 2
    same = [t for t in tensors if tensor_type(t).shape == shape]
    image = [t for t in tensors if tensor_type(t).shape[:3] == shape[:3] and tensor_type(t).shape[3] + shape[3] < 20]
    steps: list[Callable[[], Expr]] = [
        lambda: net.planted_conv(x, int(rng.integers(1, 9)), constant=0.4, unread=0.3),
        lambda: net.planted_conv(x, shape[3], constant=0.6, unread=0.2),
        lambda: net.planted_depthwise(x),
        lambda: net.add(x, same[int(rng.integers(0, len(same)))]),
        lambda: net.add(x, const(net.weights(shape[3]))),
        lambda: net.concat(x, image[int(rng.integers(0, len(image)))]) if image else net.clip(x, -120, 90),
        lambda: net.pool("nn.max_pool2d", x, 2) if fits else net.clip(x, -128, 50),
        lambda: net.pool("nn.avg_pool2d", x, 2, stride=2, padding=(1, 1, 0, 0)) if fits else net.lut(x),
        lambda: net.pad(x, (0, 0), (1, 0), (0, 1), (0, int(rng.integers(0, 2))), value=int(rng.choice([-128, 0]))),
        lambda: net.lut(x),
        lambda: net.resize(x) if max(shape[1:3]) < 8 else net.clip(x, -90, 127),
        lambda: net.reshape(x, shape[0], shape[2], shape[1], shape[3]),
    ]
    return steps[int(rng.integers(0, len(steps)))]()


def inputs_of(func: Function, *, seed: int = 0, count: int = 3) -> list[list[np.ndarray]]:
    """Input sets: all -128, all 127, then random codes; for float32 the codes divided by 128."""
    rng = np.random.default_rng(seed)
    fixed = [[np.full(p.type.shape, v) for p in func.params] for v in (-128, 127)]
    drawn = [[rng.integers(-128, 128, p.type.shape) for p in func.params] for _ in range(count)]
    return [[_typed(x, p.type.dtype) for x, p in zip(inputs, func.params, strict=True)] for inputs in (*fixed, *drawn)]


def _typed(codes: np.ndarray, dtype: str) -> np.ndarray:
    return (codes / 128 if dtype == "float32" else codes).astype(dtype)


def assert_same_results(before: Function, after: Function, *, seed: int = 0) -> None:
    for inputs in inputs_of(before, seed=seed):
        for a, b in zip(evaluate(before, inputs), evaluate(after, inputs), strict=True):
            np.testing.assert_array_equal(a, b)
