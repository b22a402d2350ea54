"""LSTM on integers over several runs, in LiteRT's and in TFLM's arithmetic."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import pytest

from aot.errors import AotError
from aot.frontend.tflite import from_tflite
from tests.op._differential import FEW, SLOW, check_drawn
from tests.op._lstm_models import Lstm, lstm_model
from tests.op.recurrent._lstms import SEQUENCE, STEP, TANH_POWERS, check, lstms


@st.composite
def plain(draw: st.DrawFn) -> Lstm:
    """What TFLM has too, and int16."""
    lstm = draw(lstms(SEQUENCE))
    features = {"cifg": False, "peephole": False, "norm": False, "projection": False}
    power = min(max(lstm.cell_power, TANH_POWERS[0]), TANH_POWERS[-1])
    return replace(lstm, dtype=draw(st.sampled_from(["int8", "int16"])), cell_power=power, **features)


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


@pytest.mark.parametrize("power", [-29, -17, -16, -8, 1])
def test_cell_without_tanh(power: int) -> None:
    """The reference has tanh for 0 to 6 integer bits of the cell; else the input gate is what its buffer holds."""
    lstm = Lstm(steps=3, batch=2, depth=5, cells=4, seed=4, cell_power=power)
    check(lstm)
    check(replace(lstm, peephole=True, norm=True, projection=True, outputs=3, time_major=False))


def test_cell_without_tanh_or_input_gate() -> None:
    """Then nothing has written the buffer before."""
    model = lstm_model(Lstm(steps=2, cells=4, cifg=True, cell_power=-16))
    with pytest.raises(AotError) as error:
        from_tflite(model)
    assert [p.code for p in error.value.problems] == ["E1226"]


@pytest.mark.slow
@pytest.mark.parametrize("time_major", [True, False])
def test_on_host(time_major: bool) -> None:
    lstm = Lstm(steps=3, batch=2, depth=9, cells=17, time_major=time_major, seed=3)
    check(lstm, host=True)
    check(replace(lstm, cifg=True, peephole=True, norm=True, projection=True, outputs=5, cell_clip=0.5), host=True)
    check(replace(lstm, cell_power=-16), host=True)
    check(lstm, oracle="tflm", host=True)
    check(replace(lstm, dtype="int16"), oracle="tflm", host=True)
