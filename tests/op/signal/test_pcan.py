"""SignalPCAN: gains of channels by a table."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest

from aot.errors import AotError
from tests.op._differential import FAST, OFTEN, SEEDS, Case, check_drawn, check_tflm, main_of
from tests.op.signal import _models as models
from tests.op.signal._models import draw_bits


@st.composite
def gains(draw: st.DrawFn) -> Case:
    n, seed = draw(st.integers(1, 12)), draw(SEEDS)
    table = draw_bits(seed, (draw(st.integers(125, 128)),), "int16")
    data = [draw_bits(seed + 1, (n,), "uint32"), draw_bits(seed + 2, (n,), "uint32")]
    return models.pcan(n, draw(st.integers(0, 40)), table), data


def test_random() -> None:
    check_drawn(gains(), FAST, check_tflm)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(gains(), OFTEN, check_tflm)


def test_on_host() -> None:
    check_tflm(models.pcan(3, 6, draw_bits(1, (125,), "int16")), [draw_bits(i, (3,), "uint32") for i in range(2)], host=True)


def test_refused() -> None:
    with pytest.raises(AotError, match="E1207"):
        main_of(models.pcan(3, 6, np.zeros(124, np.int16)), oracle="tflm")
