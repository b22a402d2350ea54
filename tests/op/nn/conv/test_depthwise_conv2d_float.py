"""DEPTHWISE_CONV_2D of float32: the very bits of the reference, as sums are added in its order."""

from __future__ import annotations

import pytest

from aot.frontend.tflite.view import nominal_macs
from aot.relay.analysis import cost
from tests.op._differential import FAST, SLOW, check, check_drawn, main_of
from tests.op._layer_models import FLOAT, LayerModel, windows
from tests.op.nn._float_models import build


def test_random() -> None:
    check_drawn(windows("DEPTHWISE_CONV_2D", FLOAT).map(build), FAST)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(windows("DEPTHWISE_CONV_2D", FLOAT).map(build), SLOW)


def test_on_host() -> None:
    check(build(LayerModel("DEPTHWISE_CONV_2D", FLOAT, (1, 5, 4, 3), 2, (3, 3), dilation=(2, 1), activation="RELU")), host=True)


def test_work_is_counted() -> None:
    """As from the shapes in the file."""
    model = build(LayerModel("DEPTHWISE_CONV_2D", FLOAT, (1, 5, 4, 3), 4, (3, 2)))
    assert cost(main_of(model)).macs == nominal_macs(model) > 0
