"""STABLEHLO_RNG_BIT_GENERATOR against LiteRT's own kernel."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest

from tests.op._differential import FAST, OFTEN, SEEDS, Case, check, check_drawn, dims
from tests.op._one_op import Spec, one_op


@st.composite
def generators(draw: st.DrawFn) -> Case:
    algorithm, seed = draw(st.sampled_from([0, 1, 2])), draw(SEEDS)
    words = 2 if algorithm == 2 else draw(st.sampled_from([2, 3]))
    shape, dtype = draw(dims(draw(st.integers(1, 2)))), draw(st.sampled_from(["int32", "uint32", "int64", "uint64"]))
    state = Spec((words,), "uint64")
    model = one_op("STABLEHLO_RNG_BIT_GENERATOR", [state], [state, Spec(shape, dtype)], algorithm=algorithm)
    numbers = np.random.default_rng(seed).integers(0, 1 << 64, words, np.uint64)
    if draw(st.booleans()):
        numbers[1] = (1 << 64) - draw(st.integers(1, 3))  # the counter wraps
    return model, [numbers]


def test_random() -> None:
    check_drawn(generators(), FAST)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(generators(), OFTEN)


def test_on_host() -> None:
    for algorithm, words in ((1, 3), (2, 2)):
        state = Spec((words,), "uint64")
        model = one_op("STABLEHLO_RNG_BIT_GENERATOR", [state], [state, Spec((3, 3), "int64")], algorithm=algorithm)
        check(model, [np.arange(5, 5 + words, dtype=np.uint64)], host=True)
