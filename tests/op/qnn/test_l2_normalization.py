"""L2_NORMALIZATION of bytes: any zero point, rows of one to many elements."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from aot.errors import UnsupportedError
from aot.testing import Quant
from tests.op._differential import FAST, SEEDS, SLOW, check, main_of
from tests.op._one_op import Spec, one_op

ZERO_POINTS = st.one_of(st.sampled_from([-128, 0, 127]), st.integers(-128, 127))


def l2(shape: tuple[int, ...], zero_point: int, *, scale: float = 1 / 128, dtype: str = "int8") -> bytes:
    offset = 0 if dtype == "int8" else 128
    x, y = Quant(0.1, zero_point + offset), Quant(scale, offset)
    return one_op("L2_NORMALIZATION", [Spec(shape, dtype, x)], [Spec(shape, dtype, y)], version=2)


@given(st.integers(1, 30), st.integers(1, 3), ZERO_POINTS, st.sampled_from(["int8", "uint8"]), SEEDS)
@settings(FAST, max_examples=5)
def test_random(depth: int, rows: int, zero_point: int, dtype: str, seed: int) -> None:
    check(l2((rows, depth), zero_point, dtype=dtype), seed=seed)


@pytest.mark.slow
@given(st.integers(1, 60), st.integers(1, 3), ZERO_POINTS, st.sampled_from(["int8", "uint8"]), SEEDS)
@SLOW
def test_random_often(depth: int, rows: int, zero_point: int, dtype: str, seed: int) -> None:
    check(l2((rows, depth), zero_point, dtype=dtype), seed=seed, host=True)


def test_rows_of_zeros_and_ones() -> None:
    """Sums of squares of 0, 1, 2, 3 and 4, and the largest."""
    rows = np.array([[0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0], [1, -1, 1, 0], [1, 1, 1, 1], [-128, 127, 127, -128]], np.int8)
    check(l2((6, 4), 0), [rows], host=True)


def test_other_output_scales() -> None:
    with pytest.raises(UnsupportedError, match="E1225"):
        main_of(l2((1, 4), 0, scale=1 / 64))
