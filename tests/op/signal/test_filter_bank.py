"""SignalFilterBank: weighted sums of bins."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest

from aot.errors import AotError
from tests.op._differential import FAST, OFTEN, SEEDS, Case, check_drawn, check_tflm, main_of
from tests.op.signal import _models as models
from tests.op.signal._models import draw_bits


@st.composite
def banks(draw: st.DrawFn) -> Case:
    bins, weights = draw(st.integers(1, 20)), draw(st.integers(1, 30))
    channels = []
    for _ in range(draw(st.integers(2, 6))):
        width = draw(st.integers(0, min(bins, weights, 6)))
        channels.append((draw(st.integers(0, bins - width)), draw(st.integers(0, weights - width)), width))
    seed = draw(SEEDS)
    tables = [draw_bits(seed + i, (weights,), "int16") for i in range(2)]
    return models.filter_bank(bins, channels, tables[0], tables[1]), [draw_bits(seed + 2, (bins,), "uint32")]


def test_random() -> None:
    check_drawn(banks(), FAST, check_tflm)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(banks(), OFTEN, check_tflm)


def test_on_host() -> None:
    weights = draw_bits(3, (6,), "int16")
    bank = models.filter_bank(8, [(0, 0, 2), (2, 2, 3), (5, 3, 3)], weights, weights[::-1].copy())
    check_tflm(bank, [draw_bits(4, (8,), "uint32")], host=True)


def test_refused() -> None:
    with pytest.raises(AotError, match="E1122"):
        main_of(models.filter_bank(4, [(0, 0, 2), (3, 0, 2)], np.zeros(2, np.int16), np.zeros(2, np.int16)), oracle="tflm")
