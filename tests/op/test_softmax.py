"""SOFTMAX: any scale and beta, one to many classes, the table against the direct fixed point."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from aot.errors import UnsupportedError
from aot.op._fixed_point import softmax_scaling
from tests.op._differential import FAST, SEEDS, SLOW, check, main_of
from tests.writer import Quant, softmax_model

SCALES = st.one_of(
    st.sampled_from([0.0625, 0.125, 0.25, 1.0]), st.floats(0.0005, 2.0).map(lambda x: float(np.float32(x)))
)
BETAS = st.sampled_from([1.0, 0.5, 0.1, 2.0])


@given(st.integers(1, 30), st.integers(1, 3), SCALES, BETAS, SEEDS)
@FAST
def test_random(classes: int, rows: int, scale: float, beta: float, seed: int) -> None:
    check(softmax_model(input_shape=(rows, classes), x=Quant(scale, 5), beta=beta), seed=seed)


@pytest.mark.slow
@given(st.integers(1, 60), st.integers(1, 3), SCALES, BETAS, SEEDS)
@SLOW
def test_random_often(classes: int, rows: int, scale: float, beta: float, seed: int) -> None:
    check(softmax_model(input_shape=(rows, classes), x=Quant(scale, 5), beta=beta), seed=seed, host=True)


@pytest.mark.parametrize("shape", [(4,), (2, 3, 4), (1, 2, 2, 3), (1, 12)])
def test_ranks(shape: tuple[int, ...]) -> None:
    check(softmax_model(input_shape=shape), host=True)


@pytest.mark.parametrize("classes", [1, 2, 255, 256, 511])
def test_equal_logits(classes: int) -> None:
    """The largest sums that the reference takes."""
    check(softmax_model(input_shape=(1, classes)), [np.full((1, classes), 3, np.int8)])


def test_differences_below_the_radius_vanish() -> None:
    x = np.array([[127, -128, 126, 0]], np.int8)
    scale = 0.7
    _, _, diff_min = softmax_scaling(1.0, scale)
    assert diff_min > -255
    ((found,),) = check(softmax_model(input_shape=(1, 4), x=Quant(float(np.float32(scale)), 0)), [x])
    assert found[0, 1] == -128


def test_other_output_scale() -> None:
    with pytest.raises(UnsupportedError, match="E1206"):
        main_of(softmax_model(y=Quant(1 / 128, -128)))
