"""CONV_2D, DEPTHWISE_CONV_2D and FULLY_CONNECTED of float32: the very bits of the reference, as sums are added in its order."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from aot.errors import AotError
from aot.frontend.macs import nominal_macs
from aot.relay.analysis.cost import cost
from tests.op._differential import ACTIVATIONS, FAST, SEEDS, SLOW, check, main_of
from tests.op._layer_models import FLOAT, Kind, LayerModel, grouped, windows
from tests.op._one_op import Spec, one_op

VERSION = {"CONV_2D": 6, "DEPTHWISE_CONV_2D": 2, "FULLY_CONNECTED": 1}


def build(layer: LayerModel) -> bytes:
    rng = np.random.default_rng(layer.seed)
    operands = [rng.normal(size=layer.weight_shape).astype(np.float32)]
    if layer.kind.bias:
        operands.append(rng.normal(size=layer.out_shape()[-1:]).astype(np.float32))
    inputs = [Spec(layer.shape, "float32"), *(Spec(a.shape, "float32", None, a) for a in operands)]
    return one_op(layer.op, inputs, [Spec(layer.out_shape(), "float32")], version=VERSION[layer.op], **layer.options())


@st.composite
def layers(draw: st.DrawFn, op: str) -> LayerModel:
    """Layers of a few hundred products at most, convolutions also in groups; the reference insists on their bias."""
    if op == "FULLY_CONNECTED":
        shape = (draw(st.integers(1, 3)), draw(st.integers(1, 40)))
        kind = draw(st.sampled_from([FLOAT, Kind("float32", "float32", "")]))
        return LayerModel(op, kind, shape, draw(st.integers(1, 9)), activation=draw(ACTIVATIONS), seed=draw(SEEDS))
    return draw(grouped(FLOAT, fewest=1) if op == "CONV_2D" else windows(op, FLOAT))


def run_layers(op: str, examples: Any) -> None:
    @given(layers(op))
    @examples
    def test(layer: LayerModel) -> None:
        check(build(layer))

    test()


@pytest.mark.parametrize("op", VERSION)
def test_layers(op: str) -> None:
    run_layers(op, FAST)


@pytest.mark.slow
@pytest.mark.parametrize("op", VERSION)
def test_layers_often(op: str) -> None:
    run_layers(op, SLOW)


def test_on_host() -> None:
    """As C: padding, dilation, groups, and a layer whose sums are quantised next."""
    for layer in (
        LayerModel("CONV_2D", FLOAT, (1, 5, 4, 6), 4, (3, 2), activation="RELU6", groups=2),
        LayerModel("DEPTHWISE_CONV_2D", FLOAT, (1, 5, 4, 3), 2, (3, 3), dilation=(2, 1), activation="RELU"),
        LayerModel("FULLY_CONNECTED", FLOAT, (2, 33), 5),
    ):
        check(build(layer), host=True)


def test_work_is_counted() -> None:
    """As from the shapes in the file."""
    for op, shape in (("CONV_2D", (1, 5, 4, 6)), ("DEPTHWISE_CONV_2D", (1, 5, 4, 3)), ("FULLY_CONNECTED", (2, 33))):
        layer = LayerModel(op, FLOAT, shape, 4, (3, 2), groups=2 if op == "CONV_2D" else 1)
        assert cost(main_of(build(layer))).macs == nominal_macs(build(layer)) > 0


def test_refused() -> None:
    with pytest.raises(AotError, match="E1121"):
        main_of(build(LayerModel("CONV_2D", FLOAT, (1, 4, 4, 6), 4, groups=4)))
