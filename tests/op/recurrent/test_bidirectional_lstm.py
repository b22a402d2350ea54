"""BIDIRECTIONAL_SEQUENCE_LSTM over several runs, with auxiliary data or without."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import pytest

from tests.op._differential import FEW, SLOW, check_drawn
from tests.op._lstm_models import bidirectional_model
from tests.op._steps import check_steps, random_steps
from tests.op.recurrent._lstms import KINDS, RUNS, SEQUENCE, floats


@st.composite
def bidirectional(draw: st.DrawFn, dtype: str = "") -> tuple[bytes, int]:
    """A model of both directions, with auxiliary data for both or for one, and its seed."""
    lstm = replace(draw(floats(SEQUENCE, dtype)), norm=False)
    merged, kind = draw(st.booleans()), draw(st.sampled_from(["none", "weighted", "data"]))
    lstm = replace(lstm, batch=1) if merged else lstm
    extra = {"none": 0, "weighted": draw(st.integers(1, 9)), "data": lstm.depth}[kind]
    return bidirectional_model(lstm, merged=merged, auxiliary=extra, weighted=kind == "weighted"), lstm.seed


def check_both(model: bytes, seed: int) -> None:
    check_steps(model, random_steps(model, seed=seed, number=RUNS))


def test_random() -> None:
    check_drawn(bidirectional(), FEW, check_both)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", KINDS)
def test_random_often(dtype: str) -> None:
    check_drawn(bidirectional(dtype), SLOW, check_both)
