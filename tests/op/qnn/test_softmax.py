"""SOFTMAX: any scale and beta, one to many classes, the table against the direct fixed point."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from aot.errors import UnsupportedError
from aot.numerics.fixed_point import softmax_scaling
from aot.testing import Quant, softmax_model
from tests.op._differential import FAST, SEEDS, SLOW, check, main_of
from tests.op._one_op import Spec, one_op

SCALES = st.one_of(st.sampled_from([0.0625, 0.125, 0.25, 1.0]), st.floats(0.0005, 2.0).map(lambda x: float(np.float32(x))))
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
    _, _, diff_min = softmax_scaling(scale)
    assert diff_min > -255
    ((found,),) = check(softmax_model(input_shape=(1, 4), x=Quant(float(np.float32(scale)), 0)), [x])
    assert found[0, 1] == -128


def wide_model(rows: int, classes: int, scale: float, beta: float, *, dtype: str = "int8") -> bytes:
    """SOFTMAX of bytes with a result of int16."""
    x, y = Quant(scale, 5), Quant(2.0**-16, -32768)
    return one_op("SOFTMAX", [Spec((rows, classes), dtype, x)], [Spec((rows, classes), "int16", y)], version=3, beta=beta)


@given(st.integers(1, 30), st.integers(1, 3), SCALES, BETAS, SEEDS)
@settings(FAST, max_examples=5)
def test_sixteen_bit_results(classes: int, rows: int, scale: float, beta: float, seed: int) -> None:
    check(wide_model(rows, classes, scale, beta), seed=seed)


@pytest.mark.slow
@given(st.integers(1, 60), st.integers(1, 3), SCALES, BETAS, st.sampled_from(["int8", "uint8"]), SEEDS)
@SLOW
def test_sixteen_bit_results_often(classes: int, rows: int, scale: float, beta: float, dtype: str, seed: int) -> None:
    check(wide_model(rows, classes, scale, beta, dtype=dtype), seed=seed, host=True)


@pytest.mark.parametrize("classes", [1, 2, 600, 4095])
def test_equal_logits_to_sixteen_bits(classes: int) -> None:
    """Here the reference takes the largest sums, too."""
    check(wide_model(1, classes, 0.1, 1.0), [np.full((1, classes), 3, np.int8)])


def test_other_output_scale() -> None:
    with pytest.raises(UnsupportedError, match="E1225"):
        main_of(softmax_model(y=Quant(1 / 128, -128)))
    with pytest.raises(UnsupportedError, match="E1225"):
        main_of(one_op("SOFTMAX", [Spec((1, 4), "int8", Quant(0.1, 0))], [Spec((1, 4), "int16", Quant(2.0**-15, 0))], beta=1.0))


def test_legacy() -> None:
    x = Quant(0.1, 99)
    check(one_op("SOFTMAX", [Spec((3, 17), "uint8", x)], [Spec((3, 17), "uint8", Quant(1 / 256, 0))], beta=1.0))
