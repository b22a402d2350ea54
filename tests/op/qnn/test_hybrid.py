"""Hybrid layers: float32 data, integer weights; the very bits of the reference, quantisation at run time included."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from aot.errors import AotError
from aot.testing import ModelBuilder
from tests.op._differential import FAST, SLOW, check, main_of
from tests.op._layer_models import Kind, LayerModel, grouped, rows, windows

INT8, INT4 = Kind("float32", "int8", "float32"), Kind("float32", "int4", "float32")
VERSION = {"CONV_2D": 6, "DEPTHWISE_CONV_2D": 6, "FULLY_CONNECTED": 12}


def build(layer: LayerModel, *, asymmetric: bool = False) -> bytes:
    rng = np.random.default_rng(layer.seed)
    b = ModelBuilder()
    shape, axis = layer.weight_shape, 3 if layer.op == "DEPTHWISE_CONV_2D" else 0
    count = shape[axis] if layer.per_channel else 1
    scale = rng.uniform(0.002, 0.03, count).astype(np.float32)
    low, high = layer.kind.weight_range
    data = rng.integers(low, high, shape, np.int8, endpoint=True)
    extra: dict[str, Any] = {"axis": axis} if count > 1 else {}
    source = b.tensor("x", layer.shape, "float32")
    inputs = [source, b.tensor("w", shape, layer.kind.weight, scale=scale, zero_point=[0] * count, data=data, **extra)]
    if layer.kind.bias:
        channels = layer.out_shape()[-1]
        inputs.append(b.tensor("b", (channels,), "float32", data=rng.normal(size=channels).astype(np.float32)))
    result = b.tensor("y", layer.out_shape(), "float32")
    options = layer.options() | ({"asymmetric_quantize_inputs": asymmetric} if layer.op == "FULLY_CONNECTED" else {})
    b.op(layer.op, inputs, [result], version=VERSION[layer.op], **options)
    return b.build([source], [result])


@st.composite
def layers(draw: st.DrawFn, op: str) -> LayerModel:
    """Per tensor and per channel, grouped convolutions too (those have a scale a channel in every file)."""
    if op == "FULLY_CONNECTED":
        layer = draw(rows(draw(st.sampled_from([INT8, INT4, Kind("float32", "int8", "")]))))
        return replace(layer, per_channel=draw(st.booleans()))
    if op == "CONV_2D" and draw(st.booleans()):
        return draw(grouped(draw(st.sampled_from([INT8, INT4]))))
    layer = draw(windows(op, INT8 if op == "DEPTHWISE_CONV_2D" else draw(st.sampled_from([INT8, INT4]))))
    # a depthwise layer of one scale reads beyond it in the reference
    return replace(layer, per_channel=op == "DEPTHWISE_CONV_2D" or draw(st.booleans()))


def run_layers(op: str, examples: Any) -> None:
    @given(layers(op), st.booleans())
    @examples
    def test(layer: LayerModel, asymmetric: bool) -> None:
        check(build(layer, asymmetric=asymmetric))

    test()


@pytest.mark.parametrize("op", VERSION)
def test_layers(op: str) -> None:
    run_layers(op, FAST)


@pytest.mark.slow
@pytest.mark.parametrize("op", VERSION)
def test_layers_often(op: str) -> None:
    run_layers(op, SLOW)


def test_on_host() -> None:
    """As C: padding, dilation, groups, tails of less than eight values, rows of zeros and of one sign."""
    for layer in (
        LayerModel("CONV_2D", INT8, (2, 5, 4, 6), 4, (3, 2), activation="RELU6", groups=2),
        LayerModel("CONV_2D", INT8, (2, 5, 3, 3), 4, (3, 2), per_channel=False),
        LayerModel("DEPTHWISE_CONV_2D", INT8, (1, 5, 4, 3), 2, (3, 3), dilation=(2, 1), activation="RELU"),
    ):
        check(build(layer), host=True)
    for asymmetric in (False, True):
        layer = LayerModel("FULLY_CONNECTED", INT8, (4, 37), 5)
        x = np.random.default_rng(5).normal(size=(4, 37)).astype(np.float32)
        x[1], x[2], x[3] = 0, np.abs(x[2]), -np.abs(x[3])
        check(build(layer, asymmetric=asymmetric), [x], host=True)


def test_rounding_depends_on_the_place() -> None:
    """0.49999997 becomes 1 where the reference takes eight values at once, and 0 behind them."""
    x = np.full((1, 17), JUST_BELOW, np.float32)
    x[0, 0] = 127
    check(build(LayerModel("FULLY_CONNECTED", INT8, (1, 17), 3, per_channel=False)), [x], host=True)


def test_refused() -> None:
    b = ModelBuilder()
    x, y = b.tensor("x", (1, 4), "float32"), b.tensor("y", (1, 3), "float32")
    w = b.tensor("w", (3, 4), "int8", data=np.ones((3, 4), np.int8), scale=0.5, zero_point=3)
    b.op("FULLY_CONNECTED", [x, w, -1], [y], version=12)
    with pytest.raises(AotError, match=r"E1224.*zero point"):
        main_of(b.build([x], [y]))


JUST_BELOW = np.float32(0.49999997)
