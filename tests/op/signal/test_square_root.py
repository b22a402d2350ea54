"""SignalFilterBankSquareRoot, at the edges between roots too."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest

from tests.op._differential import FAST, OFTEN, SEEDS, Case, check_drawn, check_tflm
from tests.op.signal import _models as models
from tests.op.signal._models import draw_bits


@st.composite
def roots(draw: st.DrawFn) -> Case:
    n = draw(st.integers(1, 12))
    data = draw_bits(draw(SEEDS), (n,), "uint64")
    if draw(st.booleans()):  # the edges between roots
        root = data >> np.uint64(32)
        data = root * root + root + np.arange(n, dtype=np.uint64) % np.uint64(3) - np.uint64(1)
    return models.square_root(n), [data, np.array(draw(st.integers(0, 31)), np.int32)]


def test_random() -> None:
    check_drawn(roots(), FAST, check_tflm)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(roots(), OFTEN, check_tflm)


def test_on_host() -> None:
    check_tflm(models.square_root(4), [np.array([0, 3, 0xFFFFFFFF, 1 << 63], np.uint64), np.array(1, np.int32)], host=True)
