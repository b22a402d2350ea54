"""SignalFftAutoScale: shifted as far as the loudest sample allows."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest

from tests.op._differential import FAST, OFTEN, SEEDS, Case, check_drawn, check_tflm
from tests.op.signal import _models as models
from tests.op.signal._models import draw_bits


@st.composite
def scalings(draw: st.DrawFn) -> Case:
    n = draw(st.integers(1, 20))
    data = draw_bits(draw(SEEDS), (n,), "int16") >> draw(st.integers(0, 15))
    return models.auto_scale(n), [data]


def test_the_loudest_sample_may_be_the_most_negative_one() -> None:
    for samples in ([-32768, 5, -6], [5, -32768], [-32768, -32768]):
        check_tflm(models.auto_scale(len(samples)), [np.array(samples, np.int16)])


def test_random() -> None:
    check_drawn(scalings(), FAST, check_tflm)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(scalings(), OFTEN, check_tflm)


def test_on_host() -> None:
    check_tflm(models.auto_scale(5), [np.array([1, -300, 7, 0, 20], np.int16)], host=True)
