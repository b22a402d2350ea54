"""LSTM on float32 and hybrid over several runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.op._differential import FEW, SLOW, check_drawn
from tests.op._lstm_models import Lstm
from tests.op.recurrent._lstms import KINDS, SEQUENCE, STEP, check, floats


@pytest.mark.parametrize("op", [SEQUENCE, STEP])
def test_random(op: str) -> None:
    check_drawn(floats(op), FEW, check)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("op", [SEQUENCE, STEP])
def test_random_often(op: str, dtype: str) -> None:
    check_drawn(floats(op, dtype), SLOW, check)


@pytest.mark.slow
@pytest.mark.parametrize("time_major", [True, False])
def test_on_host(time_major: bool) -> None:
    lstm = Lstm(steps=3, batch=2, depth=9, cells=17, time_major=time_major, seed=3)
    real = replace(lstm, dtype="float32", batch=1 if time_major else 2)
    check(real, host=True)
    check(replace(real, cifg=True, peephole=True, norm=True, projection=True, outputs=5, cell_clip=0.5), host=True)
    for asymmetric in (False, True):
        hybrid = replace(real, dtype="hybrid", asymmetric=asymmetric)
        check(hybrid, host=True)
        check(replace(hybrid, peephole=True, norm=True, projection=True, outputs=5), host=True)
