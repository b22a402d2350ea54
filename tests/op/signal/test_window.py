"""SignalWindow: every element times a weight, shifted."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest

from aot.errors import AotError
from tests.op._differential import FAST, OFTEN, SEEDS, Case, check_drawn, check_tflm, main_of
from tests.op.signal import _models as models
from tests.op.signal._models import draw_bits


@st.composite
def windows(draw: st.DrawFn) -> Case:
    n = draw(st.integers(1, 12))
    shape = (*draw(st.sampled_from([(), (1,), (3,), (2, 2)])), n)
    seed = draw(SEEDS)
    return models.window(shape, draw(st.integers(0, 20)), draw_bits(seed, (n,), "int16")), [draw_bits(seed + 1, shape, "int16")]


def test_random() -> None:
    check_drawn(windows(), FAST, check_tflm)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(windows(), OFTEN, check_tflm)


def test_on_host() -> None:
    one = np.array([[20000, -20000, 3]], np.int16)
    check_tflm(models.window((2, 3), 12, one[0]), [np.repeat(one, 2, axis=0)], host=True)


def test_refused() -> None:
    for model, code in (
        (models.window((2, 3), 40, np.zeros(3, np.int16)), "E1122"),
        (models.window((2, 3), 4, np.zeros(2, np.int16)), "E1207"),
    ):
        with pytest.raises(AotError, match=code):
            main_of(model, oracle="tflm")
