"""SignalDelay, SignalFramer and SignalStacker: exact to TFLM over time."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest

from aot.errors import AotError
from tests.op._differential import FAST, OFTEN, SEEDS, check_drawn, main_of
from tests.op.signal import _models as models
from tests.op.signal._steps import Steps, check_steps

ROWS = st.sampled_from([(), (1,), (3,), (2, 2)])


@st.composite
def delays(draw: st.DrawFn) -> Steps:
    shape = (*draw(ROWS), draw(st.integers(1, 7)))
    return models.delay(shape, draw(st.integers(0, 12))), shape, "int16", draw(SEEDS)


@st.composite
def framers(draw: st.DrawFn) -> Steps:
    step, prefill = draw(st.integers(1, 4)), draw(st.booleans())
    shape = (*draw(ROWS), step * draw(st.integers(1, 4)))
    size = draw(st.integers(step if prefill else 1, 12))
    return models.framer(shape, size, step, prefill=prefill), shape, "int16", draw(SEEDS)


@st.composite
def stackers(draw: st.DrawFn) -> Steps:
    channels, left, right = (draw(st.integers(low, 4)) for low in (1, 0, 0))
    step = draw(st.integers(1, left + right + 1))
    return models.stacker(channels, left, right, step), (channels,), "int16", draw(SEEDS)


@pytest.mark.parametrize("strategy", [delays(), framers(), stackers()], ids=["delay", "framer", "stacker"])
def test_random(strategy: st.SearchStrategy[Steps]) -> None:
    check_drawn(strategy, FAST, check_steps)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [delays(), framers(), stackers()], ids=["delay", "framer", "stacker"])
def test_random_often(strategy: st.SearchStrategy[Steps]) -> None:
    check_drawn(strategy, OFTEN, check_steps)


COMPILED: list[Steps] = [
    (models.delay((2, 4), 6), (2, 4), "int16", 1),
    (models.framer((8,), 6, 2, prefill=False), (8,), "int16", 2),
    (models.framer((2, 4), 6, 4, prefill=True), (2, 4), "int16", 3),
]


@pytest.mark.slow
@pytest.mark.parametrize("case", COMPILED)
def test_compiled(case: Steps) -> None:
    check_steps(*case, compiled=True)


def test_a_stacker_compiled() -> None:
    check_steps(models.stacker(3, 2, 1, 2), (3,), "int16", 6, compiled=True)


def test_refused() -> None:
    for model, code in (
        (models.framer((6,), 6, 4, prefill=False), "E1122"),
        (models.framer((6,), 2, 3, prefill=True), "E1122"),
        (models.stacker(3, 1, 0, 3), "E1122"),
    ):
        with pytest.raises(AotError, match=code):
            main_of(model, oracle="tflm")
