"""Random int8 networks for the memory plan: what overlaps, works in place, is a view of another tensor or runs row by row."""

from __future__ import annotations

from collections.abc import Callable

from aot.numerics.fixed_point import quantize_multiplier
from aot.op.qnn.arithmetic import MultiplyAttrs
from aot.op.qnn.quantize import DequantizeAttrs
from aot.op.tensor import StridedSliceAttrs, TransposeAttrs
from aot.relay.expr import Expr, Function, tensor_type
from tests.relay.channel_nets import SAME3, VALID, QuantNet

LARGEST = 3000
"""Bytes of a tensor at most, so that a thousand networks stay quick."""


class RandomNet(QuantNet):
    """Grows by layers over the tensors that are there; mostly over the latest one, so that chains come about."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        rng = self.rng
        shape = (1, int(rng.integers(3, 17)), int(rng.integers(2, 11)), int(rng.integers(1, 7)))
        self.tensors: list[Expr] = [self.input(*shape)]
        if rng.random() < 0.2:
            self.tensors.append(self.input(*shape))

    def pick(self) -> Expr:
        return self.tensors[-1] if self.rng.random() < 0.85 else self.tensors[int(self.rng.integers(len(self.tensors)))]

    def like(self, x: Expr, *, apart_from: int = -1) -> Expr:
        """Any tensor of the shape of `x`, but for the extent of one dimension."""

        def shape(e: Expr) -> list[int]:
            return [n for k, n in enumerate(tensor_type(e).shape) if k != apart_from]

        same = [t for t in self.tensors if shape(t) == shape(x)]
        return same[int(self.rng.integers(len(same)))]

    def grow(self) -> None:
        """One layer more, or a residual block."""
        x = self.pick()
        names = [n for n, fits in STEPS.items() for _ in range(fits(self, x))]
        made: Expr = getattr(self, f"add_{names[int(self.rng.integers(len(names)))]}")(x)
        if tensor_type(made).size <= LARGEST:
            self.tensors.append(made)

    def layer(self, x: Expr, *, same: bool) -> Expr:
        """A convolution or depthwise convolution, of the shape of `x` where `same`."""
        _, height, width, channels = tensor_type(x).shape
        rng = self.rng
        k = 3 if min(height, width) >= 3 and rng.random() < 0.6 else 1
        padding = SAME3 if k == 3 and (same or rng.random() < 0.7) else VALID
        stride = 1 if same else int(rng.integers(1, 3))
        zp = int(rng.choice([-128, 0, 7]))
        if rng.random() < 0.4:
            acc = self.depthwise(x, self.weights(1, k, k, channels), padding=padding, pad_value=zp, stride=stride, input_zp=zp)
            return self.finish(acc, bias=rng.integers(-4000, 4000, channels), zp=3)
        outputs = channels if same else int(rng.integers(1, 13))
        acc = self.conv(x, self.weights(outputs, k, k, channels), padding=padding, pad_value=zp, stride=stride, input_zp=zp)
        return self.finish(acc, bias=rng.integers(-4000, 4000, outputs), zp=-5)

    def add_layer(self, x: Expr) -> Expr:
        return self.layer(x, same=False)

    def add_block(self, x: Expr) -> Expr:
        y = self.layer(x, same=True)
        if self.rng.random() < 0.5:
            y = self.layer(y, same=True)
        return self.add(y, x)

    def add_sum(self, x: Expr) -> Expr:
        return self.add(x, self.like(x))

    def add_product(self, x: Expr) -> Expr:
        multiplier, shift = quantize_multiplier(1 / 90)
        return self.op("qnn.multiply", x, self.like(x), attrs=MultiplyAttrs((3, 3), multiplier, shift, 1, -128, 127))

    def add_pool(self, x: Expr) -> Expr:
        stride = int(self.rng.integers(1, 3))
        padding = (1, 1, 0, 0) if self.rng.random() < 0.3 else VALID
        return self.pool(str(self.rng.choice(["nn.max_pool2d", "nn.avg_pool2d"])), x, 2, stride=stride, padding=padding)

    def add_frame(self, x: Expr) -> Expr:
        top, bottom, left = (int(n) for n in self.rng.integers(0, 3, 3))
        return self.pad(x, (0, 0), (top, bottom), (left, 1), (0, 0), value=int(self.rng.choice([-128, 5])))

    def add_resize(self, x: Expr) -> Expr:
        return self.resize(x)

    def add_table(self, x: Expr) -> Expr:
        return self.lut(x) if self.rng.random() < 0.5 else self.clip(x, -100, 90)

    def add_rows(self, x: Expr) -> Expr:
        """A slice of the outermost dimension, or of another one."""
        axis = int(self.rng.choice([1, 1, 1, 2, 3]))
        begin, extents = [0] * 4, list(tensor_type(x).shape)
        begin[axis] = int(self.rng.integers(extents[axis]))
        extents[axis] = int(self.rng.integers(1, extents[axis] - begin[axis] + 1))
        return self.op("strided_slice", x, attrs=StridedSliceAttrs(tuple(begin), (1,) * 4, tuple(extents)))

    def add_parts(self, x: Expr) -> Expr:
        axis = int(self.rng.choice([1, 1, 1, 3]))
        return self.concat(x, self.like(x, apart_from=axis), axis=axis)

    def add_other_shape(self, x: Expr) -> Expr:
        n, height, width, channels = tensor_type(x).shape
        if self.rng.random() < 0.5:
            return self.op("transpose", x, attrs=TransposeAttrs((0, 2, 1, 3)))
        return self.reshape(x, n, width, height, channels)


def _image(_net: RandomNet, x: Expr) -> int:
    return 2 if min(tensor_type(x).shape[1:3]) >= 2 else 0


STEPS: dict[str, Callable[[RandomNet, Expr], int]] = {
    "layer": lambda _net, _x: 6,
    "block": lambda _net, _x: 4,
    "sum": lambda _net, _x: 2,
    "product": lambda _net, _x: 1,
    "pool": _image,
    "frame": lambda _net, _x: 1,
    "resize": lambda _net, x: int(tensor_type(x).size < LARGEST // 4),
    "table": lambda _net, _x: 2,
    "rows": lambda _net, _x: 2,
    "parts": lambda _net, x: 3 * (tensor_type(x).size < LARGEST // 2),
    "other_shape": lambda _net, _x: 1,
}
"""How often each kind of layer is drawn, beside the others, over a tensor."""


def random_net(seed: int) -> Function:
    """Up to a dozen layers, one or two inputs, up to three results; deterministic for a seed."""
    net = RandomNet(seed)
    rng = net.rng
    inputs = len(net.tensors)
    for _ in range(int(rng.integers(2, 12))):
        net.grow()
    net.tensors.append(net.layer(net.tensors[-1], same=False))
    results = [net.tensors[-1]]
    if rng.random() < 0.25:
        channels = tensor_type(results[0]).shape[3]
        results = [net.finish(net.dense(net.mean(results[0], 1, 2), net.weights(5, channels)))]
    if rng.random() < 0.2:
        results = [net.op("qnn.dequantize", results[0], attrs=DequantizeAttrs(0.25, 3))]
    others = net.tensors[inputs:-1]
    while others and rng.random() < 0.25:
        results.append(others.pop(int(rng.integers(len(others)))))
    return net.func(*results)
