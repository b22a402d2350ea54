"""Random networks of the product's own integer operators, for hypothesis."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from aot.ir.span import Span
from aot.ir.type import TensorType
from aot.op import load_all
from aot.op.common.layer import PoolAttrs
from aot.op.nn.conv import Conv2DAttrs, DepthwiseConv2DAttrs
from aot.op.qnn.arithmetic import AddAttrs
from aot.op.qnn.lut import LutAttrs
from aot.op.qnn.quantize import ClipAttrs, Requantize8Attrs, RequantizeAttrs
from aot.op.tensor import ConcatenateAttrs, PadAttrs, ReshapeAttrs, TransposeAttrs
from aot.relay.expr import Expr, Function, Var, call, const, make_tuple, tensor_type

load_all()
_STEPS = ("layer", "layer", "pad", "clip", "pool", "add", "lut", "map", "reshape", "transpose", "concatenate")


class _Builder:
    """Appends calls, each with a span of its own; weights come from a generator of the drawn seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.count = 0

    def call(self, name: str, *args: Expr, attrs: Any = None) -> Expr:
        self.count += 1
        return call(name, args, attrs, span=Span(self.count, name.upper(), f"y{self.count}", self.count))

    def weights(self, *shape: int) -> Expr:
        return const(self.rng.integers(-127, 128, shape).astype(np.int8))


@st.composite
def networks(draw: Any, max_steps: int = 10) -> Function:
    """NHWC networks with residuals, borders, clamps in odd places, tables, and one or two outputs."""
    b = _Builder(draw(st.integers(0, 1 << 20)))
    x = Var("x", TensorType((1, 6, 6, 4), "int8"), Span(tensor=1000, name="x"))
    pool: list[Expr] = [x]
    for _ in range(draw(st.integers(1, max_steps))):
        source = draw(st.sampled_from(pool[-2:]))
        pool.append(_step(draw, b, source, pool))
    return Function((x,), pool[-1] if draw(st.booleans()) else make_tuple([pool[-1], draw(st.sampled_from(pool))]))


def _step(draw: Any, b: _Builder, x: Expr, pool: list[Expr]) -> Expr:
    _, height, width, channels = tensor_type(x).shape
    match draw(st.sampled_from(_STEPS)):
        case "layer" if min(height, width) >= 3:
            return _layer(draw, b, x)
        case "pad" if max(height, width) < 9:
            pair = st.tuples(st.integers(0, 2), st.integers(0, 2))
            value = draw(st.sampled_from((-128, 0, 5)))
            return b.call("nn.pad", x, attrs=PadAttrs(((0, 0), draw(pair), draw(pair), (0, 0)), value))
        case "pool" if min(height, width) >= 2:
            name = draw(st.sampled_from(("nn.max_pool2d", "nn.avg_pool2d")))
            return b.call(name, x, attrs=PoolAttrs((2, 2), (1, 1), (0, 0, 0, 0), -128, draw(st.sampled_from((90, 127)))))
        case "add":
            other = draw(st.sampled_from([p for p in pool if tensor_type(p).shape == tensor_type(x).shape]))
            return b.call("qnn.add", x, other, attrs=AddAttrs((3, -4), (1 << 30, 1 << 30), (0, -1), 1 << 30, -18, 1, -128, 127))
        case "lut":
            return b.call("qnn.lut", x, attrs=LutAttrs(tuple(int(v) for v in b.rng.integers(-128, 128, 256))))
        case "map":
            return b.call("qnn.requantize8", x, attrs=Requantize8Attrs(2, 1 << 30, draw(st.sampled_from((0, 1))), 2, -128, 127))
        case "reshape":
            flat = b.call("reshape", x, attrs=ReshapeAttrs((tensor_type(x).size,)))
            shape = draw(st.sampled_from(((1, height, width, channels), (1, width, height, channels))))
            return b.call("reshape", flat, attrs=ReshapeAttrs(shape))
        case "transpose":
            return b.call("transpose", x, attrs=TransposeAttrs(draw(st.sampled_from(((0, 2, 1, 3), (0, 1, 2, 3))))))
        case "concatenate" if channels <= 8:
            return b.call("concatenate", *[x] * draw(st.integers(1, 2)), attrs=ConcatenateAttrs(3))
        case _:
            lo = draw(st.integers(-128, 100))
            return b.call("clip", x, attrs=ClipAttrs(lo, draw(st.integers(lo, 127))))


def _layer(draw: Any, b: _Builder, x: Expr) -> Expr:
    channels = tensor_type(x).shape[3]
    zp = draw(st.sampled_from((-128, 0, 7)))
    padding = draw(st.sampled_from(((0, 0, 0, 0), (1, 1, 1, 1))))
    if draw(st.booleans()):
        acc = b.call("nn.conv2d", x, b.weights(4, 3, 3, channels), attrs=Conv2DAttrs((1, 1), padding, (1, 1), zp, zp))
    else:
        attrs = DepthwiseConv2DAttrs((1, 1), padding, (1, 1), zp, zp, 1)
        acc = b.call("nn.depthwise_conv2d", x, b.weights(1, 3, 3, channels), attrs=attrs)
    count = tensor_type(acc).shape[3]
    if draw(st.booleans()):
        acc = b.call("nn.bias_add", acc, const(b.rng.integers(-5000, 5000, count).astype(np.int32)))
    return b.call("qnn.requantize", acc, attrs=RequantizeAttrs((1518500250,) * count, (-8,) * count, -3, -128, 127, "double"))
