"""SignalFilterBankSpectralSubtraction: exact to TFLM over time."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest

from aot.errors import AotError
from tests.op._differential import FAST, OFTEN, SEEDS, check_drawn, main_of
from tests.op.signal import _models as models
from tests.op.signal._steps import Steps, check_steps


@st.composite
def subtractions(draw: st.DrawFn) -> Steps:
    n = draw(st.integers(1, 9))
    factors = {"smoothing": draw(st.integers(0, 1 << 14)), "min_signal_remaining": draw(st.integers(0, 1 << 15))}
    model = models.subtraction(n, clamping=draw(st.booleans()), smoothing_bits=draw(st.integers(0, 31)), **factors)
    return model, (n,), "uint32", draw(SEEDS)


def test_random() -> None:
    check_drawn(subtractions(), FAST, check_steps)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(subtractions(), OFTEN, check_steps)


@pytest.mark.slow
def test_compiled() -> None:
    check_steps(models.subtraction(5, clamping=True), (5,), "uint32", 7, compiled=True)
    check_steps(models.subtraction(4, clamping=False, alternate_smoothing=409), (4,), "uint32", 8, compiled=True)


def test_refused() -> None:
    with pytest.raises(AotError, match="E1122"):
        main_of(models.subtraction(3, clamping=True, spectral_subtraction_bits=64), oracle="tflm")
