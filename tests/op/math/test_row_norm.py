"""LOG_SOFTMAX and L2_NORMALIZATION of bytes: any scale and zero point, rows of one to many elements, edges of the fixed point."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from aot.errors import UnsupportedError
from aot.numerics.inv_sqrt import inverse_sqrt, tir_inverse_sqrt
from aot.op.qnn.log_softmax import log
from aot.testing import Quant
from aot.tir.builder import IRBuilder
from aot.tir.interpreter import run
from tests.op._differential import FAST, SEEDS, SLOW, check, main_of
from tests.op._one_op import Spec, one_op

SCALES = st.one_of(st.sampled_from([0.0625, 0.125, 0.09375, 1.0]), st.floats(0.0005, 3.0).map(lambda x: float(np.float32(x))))
ZERO_POINTS = st.one_of(st.sampled_from([-128, 0, 127]), st.integers(-128, 127))


def log_softmax(shape: tuple[int, ...], scale: float, *, dtype: str = "int8") -> bytes:
    y = Quant(1 / 16, 127 if dtype == "int8" else 255)
    return one_op("LOG_SOFTMAX", [Spec(shape, dtype, Quant(scale, 3))], [Spec(shape, dtype, y)], version=2)


def l2(shape: tuple[int, ...], zero_point: int, *, scale: float = 1 / 128, dtype: str = "int8") -> bytes:
    offset = 0 if dtype == "int8" else 128
    x, y = Quant(0.1, zero_point + offset), Quant(scale, offset)
    return one_op("L2_NORMALIZATION", [Spec(shape, dtype, x)], [Spec(shape, dtype, y)], version=2)


@given(st.integers(1, 30), st.integers(1, 3), SCALES, SEEDS)
@settings(FAST, max_examples=5)
def test_log_softmax(depth: int, rows: int, scale: float, seed: int) -> None:
    check(log_softmax((rows, depth), scale), seed=seed)


@pytest.mark.slow
@given(st.integers(1, 60), st.integers(1, 3), SCALES, st.sampled_from(["int8", "uint8"]), SEEDS)
@SLOW
def test_log_softmax_often(depth: int, rows: int, scale: float, dtype: str, seed: int) -> None:
    check(log_softmax((rows, depth), scale, dtype=dtype), seed=seed, host=True)


@given(st.integers(1, 30), st.integers(1, 3), ZERO_POINTS, st.sampled_from(["int8", "uint8"]), SEEDS)
@settings(FAST, max_examples=5)
def test_l2_normalization(depth: int, rows: int, zero_point: int, dtype: str, seed: int) -> None:
    check(l2((rows, depth), zero_point, dtype=dtype), seed=seed)


@pytest.mark.slow
@given(st.integers(1, 60), st.integers(1, 3), ZERO_POINTS, st.sampled_from(["int8", "uint8"]), SEEDS)
@SLOW
def test_l2_normalization_often(depth: int, rows: int, zero_point: int, dtype: str, seed: int) -> None:
    check(l2((rows, depth), zero_point, dtype=dtype), seed=seed, host=True)


@pytest.mark.parametrize("scale", [1 / 16, 1 / 8])
def test_log_softmax_of_pairs(scale: float) -> None:
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


def test_rows_of_zeros_and_ones() -> None:
    """Sums of squares of 0, 1, 2, 3 and 4, and the largest."""
    rows = np.array([[0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0], [1, -1, 1, 0], [1, 1, 1, 1], [-128, 127, 127, -128]], np.int8)
    check(l2((6, 4), 0), [rows], host=True)


def test_inverse_root_of_any_sum() -> None:
    """The expression against the Python integers, over the whole range of int32."""
    rng = np.random.default_rng(0)
    edges = [*range(9), 1 << 29, (1 << 29) - 1, (1 << 31) - 1]
    values = np.concatenate([edges, 2 ** rng.uniform(1, 31, 100)]).astype(np.int32)
    b = IRBuilder("roots")
    x, out = b.input("x", values.shape, "int32"), b.output("out", (2, *values.shape), "int32")
    with b.for_("i", len(values)) as i:
        for k, part in enumerate(tir_inverse_sqrt(b, x[i])):
            b.store(out, (k, i), part)
    found = np.zeros((2, len(values)), np.int32)
    run(b.finish(), {"x": values, "out": found})
    assert found.T.tolist() == [list(inverse_sqrt(int(v))) for v in values]


def test_other_output_scales() -> None:
    with pytest.raises(UnsupportedError, match="E1225"):
        main_of(l2((1, 4), 0, scale=1 / 64))
    with pytest.raises(UnsupportedError, match="E1226"):
        main_of(log_softmax((1, 4), 2.0**-27))
