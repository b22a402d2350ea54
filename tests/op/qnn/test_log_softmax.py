"""LOG_SOFTMAX of bytes: any scale, rows of one to many elements, edges of the fixed point."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from aot.errors import UnsupportedError
from aot.op.qnn.softmax import log
from aot.testing import Quant
from tests.op._differential import FAST, SEEDS, SLOW, check, main_of
from tests.op._one_op import Spec, one_op

SCALES = st.one_of(st.sampled_from([0.0625, 0.125, 0.09375, 1.0]), st.floats(0.0005, 3.0).map(lambda x: float(np.float32(x))))


def log_softmax(shape: tuple[int, ...], scale: float, *, dtype: str = "int8") -> bytes:
    y = Quant(1 / 16, 127 if dtype == "int8" else 255)
    return one_op("LOG_SOFTMAX", [Spec(shape, dtype, Quant(scale, 3))], [Spec(shape, dtype, y)], version=2)


@given(st.integers(1, 30), st.integers(1, 3), SCALES, SEEDS)
@settings(FAST, max_examples=5)
def test_random(depth: int, rows: int, scale: float, seed: int) -> None:
    check(log_softmax((rows, depth), scale), seed=seed)


@pytest.mark.slow
@given(st.integers(1, 60), st.integers(1, 3), SCALES, st.sampled_from(["int8", "uint8"]), SEEDS)
@SLOW
def test_random_often(depth: int, rows: int, scale: float, dtype: str, seed: int) -> None:
    check(log_softmax((rows, depth), scale, dtype=dtype), seed=seed, host=True)


@pytest.mark.parametrize("scale", [1 / 16, 1 / 8])
def test_of_pairs(scale: float) -> None:
    """Every difference, in steps of a code or two: ties of the last rounding, and the limit below which all is the smallest."""
    low = np.arange(-128, 128, dtype=np.int8)
    check(log_softmax((256, 2), scale), [np.stack([np.full_like(low, 127), low], axis=1)], host=scale == 1 / 8)


@pytest.mark.parametrize("depth", [1, 600, 4095])
def test_equal_logits(depth: int) -> None:
    """The logarithm of 1, of 600, and the largest one."""
    check(log_softmax((1, depth), 0.1), [np.full((1, depth), 3, np.int8)])


def test_log_near_its_switch() -> None:
    """Both sides of sqrt(1/2), where the reduced argument jumps, against the real logarithm."""
    x = np.concatenate([np.arange(-50, 50) + round(2**k * r) for k in (20, 30) for r in (1, 2**0.5)])
    assert np.abs(log(x) / 2**26 - np.log(x / 2**19)).max() < 1e-6


def test_other_output_scales() -> None:
    with pytest.raises(UnsupportedError, match="E1226"):
        main_of(log_softmax((1, 4), 2.0**-27))
