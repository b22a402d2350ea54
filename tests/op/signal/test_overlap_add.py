"""SignalOverlapAdd: exact to TFLM over time."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest

from aot.errors import AotError
from tests.op._differential import FAST, OFTEN, SEEDS, check_drawn, main_of
from tests.op.signal import _models as models
from tests.op.signal._steps import Steps, check_steps

ROWS = st.sampled_from([(), (1,), (3,), (2, 2)])


@st.composite
def overlaps(draw: st.DrawFn) -> Steps:
    size, dtype = draw(st.integers(1, 9)), draw(st.sampled_from(["int16", "float32"]))
    shape = (*draw(ROWS), draw(st.integers(1, 3)), size)
    return models.overlap_add(dtype, shape, draw(st.integers(1, size))), shape, dtype, draw(SEEDS)


def test_random() -> None:
    check_drawn(overlaps(), FAST, check_steps)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(overlaps(), OFTEN, check_steps)


@pytest.mark.slow
def test_compiled() -> None:
    check_steps(models.overlap_add("int16", (2, 3, 6), 4), (2, 3, 6), "int16", 4, compiled=True)
    check_steps(models.overlap_add("float32", (2, 6), 3), (2, 6), "float32", 5, compiled=True)


def test_refused() -> None:
    with pytest.raises(AotError, match="E1122"):
        main_of(models.overlap_add("int16", (2, 4), 5), oracle="tflm")
