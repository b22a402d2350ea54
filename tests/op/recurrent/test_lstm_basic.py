"""LSTM with the basic kernel, over several runs: all four results, from the states of the run before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest

from aot.errors import AotError
from tests.op._differential import FEW, OFTEN, SEEDS, check_drawn, main_of
from tests.op._lstm_basic_models import Basic, basic_model
from tests.op._steps import check_steps, random_steps

RUNS = 4


@st.composite
def basics(draw: st.DrawFn, dtype: str) -> Basic:
    return Basic(
        dtype,
        batch=1 if dtype == "float32" else draw(st.integers(1, 3)),
        depth=draw(st.integers(1, 40)),
        cells=draw(st.integers(1, 19)),
        weight_scale=draw(st.sampled_from([0.0002, 0.001, 0.004, 0.01, 1 / 32, 0.11, 1.0])),
        spread=draw(st.sampled_from([0.1, 1.0, 6.0])),
        seed=draw(SEEDS),
    )


def check(basic: Basic, *, host: bool = False) -> None:
    model = basic_model(basic)
    check_steps(model, random_steps(model, seed=basic.seed, number=RUNS), host=host)


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_random(dtype: str) -> None:
    check_drawn(basics(dtype), FEW, check)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_random_often(dtype: str) -> None:
    check_drawn(basics(dtype), OFTEN, check)


@pytest.mark.slow
@pytest.mark.parametrize("cells", [1, 4, 7])
def test_on_host(cells: int) -> None:
    check(Basic("float32", cells=cells, seed=1), host=True)
    check(Basic("uint8", batch=2, cells=cells, weight_scale=1 / 32, seed=1), host=True)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"dtype": "float32", "batch": 2}, "E1203.*2 batches"),
        ({"dtype": "uint8", "cell_power": -12}, "E1226.*only one that the basic kernel supports"),
    ],
)
def test_refused(change: dict[str, Any], code: str) -> None:
    with pytest.raises(AotError, match=code):
        main_of(basic_model(replace(Basic("uint8"), **change)))
