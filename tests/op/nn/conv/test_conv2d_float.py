"""CONV_2D of float32: the very bits of the reference, as sums are added in its order."""

from __future__ import annotations

import pytest

from aot.errors import AotError
from aot.frontend.tflite.view import nominal_macs
from aot.relay.analysis import cost
from tests.op._differential import FAST, SLOW, check, check_drawn, main_of
from tests.op._layer_models import FLOAT, LayerModel, grouped
from tests.op.nn._float_models import build


def test_random() -> None:
    check_drawn(grouped(FLOAT, fewest=1).map(build), FAST)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(grouped(FLOAT, fewest=1).map(build), SLOW)


def test_on_host() -> None:
    check(build(LayerModel("CONV_2D", FLOAT, (1, 5, 4, 6), 4, (3, 2), activation="RELU6", groups=2)), host=True)


def test_work_is_counted() -> None:
    """As from the shapes in the file."""
    model = build(LayerModel("CONV_2D", FLOAT, (1, 5, 4, 6), 4, (3, 2), groups=2))
    assert cost(main_of(model)).macs == nominal_macs(model) > 0


def test_refused() -> None:
    with pytest.raises(AotError, match="E1121"):
        main_of(build(LayerModel("CONV_2D", FLOAT, (1, 4, 4, 6), 4, groups=4)))
