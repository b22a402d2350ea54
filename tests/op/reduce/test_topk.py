"""TOPK_V2: ties, NaN, every type."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest

from aot.errors import AotError
from tests.op._differential import FAST, SEEDS, SLOW, Case, check, check_drawn, dims, main_of
from tests.op._one_op import Spec, const, draw_array, one_op, same_quant


@st.composite
def topks(draw: st.DrawFn) -> Case:
    shape = draw(dims(draw(st.integers(1, 3)), largest=8))
    k = draw(st.integers(1, shape[-1]))
    dtype = draw(st.sampled_from(["int8", "uint8", "int16", "int32", "int64", "float32"]))
    result = (*shape[:-1], k)
    quant = same_quant(dtype)
    model = one_op("TOPK_V2", [Spec(shape, dtype, quant), const(k)], [Spec(result, dtype, quant), Spec(result, "int32")])
    seed = draw(SEEDS)
    few = np.random.default_rng(seed).integers(0, 4, shape).astype(dtype)  # many equal ones
    return model, [few if draw(st.booleans()) else draw_array(seed, shape, dtype)]


def test_the_largest_with_nan() -> None:
    """Behind all numbers, in the order in which they stand."""
    nan, inf = float("nan"), float("inf")
    rows = np.array([[nan, 3, 3, nan, -inf], [nan, nan, nan, nan, nan], [1, nan, inf, -0.0, 0.0]], np.float32)
    for k in (1, 3, 5):
        model = one_op("TOPK_V2", [Spec((3, 5), "float32"), const(k)], [Spec((3, k), "float32"), Spec((3, k), "int32")])
        check(model, [rows], host=True)


def test_random() -> None:
    check_drawn(topks(), FAST)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(topks(), SLOW)


def test_on_host() -> None:
    rows = np.array([[3, 5, 5, 3, 9], [7, 7, 7, 7, 7]], np.int8)
    results = [Spec((2, 3), "int8", same_quant("int8")), Spec((2, 3), "int32")]
    check(one_op("TOPK_V2", [Spec((2, 5), "int8", same_quant("int8")), const(3)], results), [rows], host=True)


def test_refused() -> None:
    with pytest.raises(AotError, match="E1122"):
        main_of(one_op("TOPK_V2", [Spec((2, 3)), const(4)], [Spec((2, 4)), Spec((2, 4), "int32")]))
