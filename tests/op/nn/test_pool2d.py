"""AVERAGE_POOL_2D and MAX_POOL_2D."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from aot.errors import UnsupportedError
from aot.testing import ModelBuilder, Quant, pool_model
from tests.op._differential import ACTIVATIONS, FAST, SEEDS, SLOW, check, dims, main_of, quants

KINDS = ["AVERAGE_POOL_2D", "MAX_POOL_2D"]


@st.composite
def pools(draw: st.DrawFn) -> dict[str, Any]:
    """Keyword arguments of `pool_model`."""
    padding = draw(st.sampled_from(["SAME", "VALID"]))
    n, h, w, c = draw(dims(4, largest=7))
    kernel = [draw(st.integers(1, 5)) for _ in range(2)]
    if padding == "VALID":
        kernel = [min(kernel[0], h), min(kernel[1], w)]
    return {
        "input_shape": (min(n, 2), h, w, min(c, 3)),
        "kernel": tuple(kernel),
        "strides": draw(dims(2, largest=3)),
        "padding": padding,
        "activation": draw(ACTIVATIONS),
        "x": draw(quants()),
    }


@pytest.mark.parametrize("kind", KINDS)
@given(pools(), SEEDS)
@FAST
def test_random(kind: Any, case: dict[str, Any], seed: int) -> None:
    check(pool_model(kind=kind, **case), seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@given(pools(), SEEDS)
@SLOW
def test_random_often(kind: Any, case: dict[str, Any], seed: int) -> None:
    check(pool_model(kind=kind, **case), seed=seed)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_on_host(kind: Any, padding: Any) -> None:
    check(pool_model(kind=kind, padding=padding, kernel=(3, 2), activation="RELU6"), host=True)


def test_average_rounds_halves_away_from_zero() -> None:
    x = np.array([-3, -2, 2, 3, 0, 1, -1, 0], np.int8).reshape(1, 2, 4, 1)[:, :1]
    ((found,),) = check(pool_model(input_shape=(1, 1, 4, 1), kernel=(1, 2), strides=(1, 2), x=Quant(1.0, 0)), [x])
    assert found.ravel().tolist() == [-3, 3]


def test_global_average_of_extremes() -> None:
    shape = (1, 25, 20, 2)
    x = np.full(shape, -128, np.int8)
    x[..., 1] = 127
    ((found,),) = check(pool_model(input_shape=shape, kernel=shape[1:3], strides=(1, 1)), [x])
    assert found.ravel().tolist() == [-128, 127]


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_max_of_other_types(dtype: str, padding: str) -> None:
    b = ModelBuilder()
    quant = {"scale": 0.5, "zero_point": 3} if dtype == "uint8" else {}
    x = b.tensor("x", (1, 5, 5, 2), dtype, **quant)  # type: ignore[arg-type]
    size = (3, 3) if padding == "SAME" else (2, 2)
    y = b.tensor("y", (1, *size, 2), dtype, **quant)  # type: ignore[arg-type]
    b.op("MAX_POOL_2D", [x], [y], padding=padding, stride_h=2, stride_w=2, filter_height=3, filter_width=2)
    check(b.build([x], [y]), host=True)


def test_quantisation_must_not_change() -> None:
    b = ModelBuilder()
    x, y = b.tensor("x", (1, 4, 4, 1), scale=0.5, zero_point=0), b.tensor("y", (1, 2, 2, 1), scale=0.25, zero_point=0)
    b.op("AVERAGE_POOL_2D", [x], [y], padding="VALID", stride_h=2, stride_w=2, filter_height=2, filter_width=2)
    with pytest.raises(UnsupportedError, match="E1227"):
        main_of(b.build([x], [y]))
