"""SignalFilterBankLog: logarithms by a table."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest

from aot.errors import AotError
from tests.op._differential import FAST, OFTEN, SEEDS, Case, check_drawn, check_tflm, main_of
from tests.op.signal import _models as models
from tests.op.signal._models import draw_bits


@st.composite
def logs(draw: st.DrawFn) -> Case:
    n = draw(st.integers(1, 12))
    scale = draw(st.one_of(st.sampled_from([64, 1600]), st.integers(0, 1 << 20)))
    return models.log(n, scale, draw(st.integers(0, 31))), [draw_bits(draw(SEEDS), (n,), "uint32")]


def test_random() -> None:
    check_drawn(logs(), FAST, check_tflm)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(logs(), OFTEN, check_tflm)


def test_on_host() -> None:
    check_tflm(models.log(4, 1600, 3), [np.array([0, 1, 77777, 0xFFFFFFFF], np.uint32)], host=True)


def test_refused() -> None:
    with pytest.raises(AotError, match="E1122"):
        main_of(models.log(4, 1600, 32), oracle="tflm")
