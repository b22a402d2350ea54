"""LSTM on integers over several runs, in LiteRT's and in TFLM's arithmetic."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import pytest

from tests.op._differential import FEW, SLOW, check_drawn
from tests.op._lstm_models import Lstm
from tests.op.recurrent._lstms import SEQUENCE, STEP, check, lstms


@st.composite
def plain(draw: st.DrawFn) -> Lstm:
    """What TFLM has too, and int16."""
    lstm = draw(lstms(SEQUENCE))
    features = {"cifg": False, "peephole": False, "norm": False, "projection": False}
    return replace(lstm, dtype=draw(st.sampled_from(["int8", "int16"])), **features)


def check_tflm(lstm: Lstm) -> None:
    check(lstm, oracle="tflm")


@pytest.mark.parametrize("op", [SEQUENCE, STEP])
def test_random(op: str) -> None:
    check_drawn(lstms(op), FEW, check)


@pytest.mark.slow
@pytest.mark.parametrize("op", [SEQUENCE, STEP])
def test_random_often(op: str) -> None:
    check_drawn(lstms(op), SLOW, check)


def test_random_tflm() -> None:
    check_drawn(plain(), FEW, check_tflm)


@pytest.mark.slow
def test_random_tflm_often() -> None:
    check_drawn(plain(), SLOW, check_tflm)


@pytest.mark.slow
@pytest.mark.parametrize("time_major", [True, False])
def test_on_host(time_major: bool) -> None:
    lstm = Lstm(steps=3, batch=2, depth=9, cells=17, time_major=time_major, seed=3)
    check(lstm, host=True)
    check(replace(lstm, cifg=True, peephole=True, norm=True, projection=True, outputs=5, cell_clip=0.5), host=True)
    check(lstm, oracle="tflm", host=True)
    check(replace(lstm, dtype="int16"), oracle="tflm", host=True)
