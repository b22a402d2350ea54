"""FULLY_CONNECTED of float32: the very bits of the reference, as sums are added in its order."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest

from aot.frontend.tflite.view import nominal_macs
from aot.relay.analysis import cost
from tests.op._differential import ACTIVATIONS, FAST, SEEDS, SLOW, check, check_drawn, main_of
from tests.op._layer_models import FLOAT, Kind, LayerModel
from tests.op.nn._float_models import build


@st.composite
def matrices(draw: st.DrawFn) -> LayerModel:
    """With and without a bias."""
    shape = (draw(st.integers(1, 3)), draw(st.integers(1, 40)))
    kind = draw(st.sampled_from([FLOAT, Kind("float32", "float32", "")]))
    return LayerModel("FULLY_CONNECTED", kind, shape, draw(st.integers(1, 9)), activation=draw(ACTIVATIONS), seed=draw(SEEDS))


def test_random() -> None:
    check_drawn(matrices().map(build), FAST)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(matrices().map(build), SLOW)


def test_on_host() -> None:
    check(build(LayerModel("FULLY_CONNECTED", FLOAT, (2, 33), 5)), host=True)


def test_work_is_counted() -> None:
    """As from the shapes in the file."""
    model = build(LayerModel("FULLY_CONNECTED", FLOAT, (2, 33), 4, (3, 2)))
    assert cost(main_of(model)).macs == nominal_macs(model) > 0
