"""STABLEHLO_CASE over time; IF and WHILE with state are in `state/test_control.py`."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from tests.op._differential import SLOW, dims
from tests.op._drawn_count import count
from tests.op.gather._models import case
from tests.op.state.test_control import check as check_control


def choose(number: int, shape: tuple[int, ...], scalar: bool, ks: list[int]) -> None:
    model, rng = case(number, shape, scalar=scalar), np.random.default_rng(number)
    index = () if scalar else (1,)
    steps = [[np.full(index, k, np.int32), rng.standard_normal(shape).astype(np.float32)] for k in ks]
    check_control(model, steps)
    for step in steps:
        count(model, [step])


@pytest.mark.parametrize("number", [1, 2, 4])
def test_case(number: int) -> None:
    choose(number, (3,), number == 2, [0, 1, 2, 3, -1, 7])


@pytest.mark.slow
@given(st.integers(1, 5), dims(2, largest=3), st.booleans(), st.lists(st.integers(-1, 6), min_size=12, max_size=12))
@SLOW
def test_case_often(number: int, shape: tuple[int, ...], scalar: bool, ks: list[int]) -> None:
    choose(number, shape, scalar, ks)
