"""Convolutions of one position: the same bits as a fully connected layer, or without dilation."""

from __future__ import annotations

import numpy as np
import pytest

from aot.op.nn.conv import Conv2DAttrs, DepthwiseConv2DAttrs
from aot.op.qnn.quantize import RequantizeAttrs
from aot.relay.expr import Call, Expr, Function, call, const, post_order, var
from aot.relay.interpreter import evaluate
from aot.relay.transform.stateful import with_narrow_windows


def operators(func: Function) -> list[str]:
    return [str(e.op) for e in post_order(func.body) if isinstance(e, Call)]


def layer(kind: str, *, rows: int, dilation: int, padding: tuple[int, int, int, int] = (0, 0, 0, 0)) -> Function:
    """Windows of 3 x 2 over [1, rows, 2, 4], with a bias and a multiplier for each channel."""
    rng = np.random.default_rng(rows)
    x = var("x", shape=(1, rows, 2, 4), dtype="int8")
    if kind == "nn.conv2d":
        weight = const(rng.integers(-127, 128, (5, 3, 2, 4)).astype(np.int8))
        acc: Expr = call(kind, [x, weight], Conv2DAttrs((1, 1), padding, (dilation, 1), 3, 3))
    else:
        weight = const(rng.integers(-127, 128, (1, 3, 2, 4)).astype(np.int8))
        acc = call(kind, [x, weight], DepthwiseConv2DAttrs((1, 1), padding, (dilation, 1), 3, 3))
    channels = acc.type.shape[-1]  # type: ignore[union-attr]
    acc = call("nn.bias_add", [acc, const(rng.integers(-900, 900, channels).astype(np.int32))])
    multiplier = tuple(int(v) for v in rng.integers(1 << 30, (1 << 31) - 1, channels))
    return Function((x,), call("qnn.requantize", [acc], RequantizeAttrs(multiplier, (-9,) * channels, 2, -128, 127, "double")))


@pytest.mark.parametrize(
    ("kind", "rows", "dilation", "names"),
    [
        ("nn.conv2d", 3, 1, ["reshape", "nn.dense", "nn.bias_add", "qnn.requantize", "reshape"]),
        ("nn.conv2d", 7, 3, ["strided_slice", "reshape", "nn.dense", "nn.bias_add", "qnn.requantize", "reshape"]),
        ("nn.conv2d", 8, 3, ["nn.conv2d", "nn.bias_add", "qnn.requantize"]),
        ("nn.depthwise_conv2d", 7, 3, ["strided_slice", "nn.depthwise_conv2d", "nn.bias_add", "qnn.requantize"]),
    ],
)
def test_one_position_is_a_layer_without_windows(kind: str, rows: int, dilation: int, names: list[str]) -> None:
    before = layer(kind, rows=rows, dilation=dilation)
    after = with_narrow_windows(before)
    assert operators(after) == names
    for seed in range(5):
        x = np.random.default_rng(seed).integers(-128, 128, (1, rows, 2, 4)).astype(np.int8)
        np.testing.assert_array_equal(evaluate(after, [x])[0], evaluate(before, [x])[0])


def test_padding_stays_as_it_is() -> None:
    before = layer("nn.conv2d", rows=3, dilation=2, padding=(1, 0, 1, 0))
    assert operators(with_narrow_windows(before)) == operators(before)
