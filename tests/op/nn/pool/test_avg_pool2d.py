"""AVERAGE_POOL_2D."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from aot.errors import UnsupportedError
from aot.testing import ModelBuilder, Quant, pool_model
from tests.op._differential import FAST, SEEDS, SLOW, check, main_of
from tests.op.nn._pools import coded, pools


def test_rounds_halves_away_from_zero() -> None:
    x = np.array([-3, -2, 2, 3, 0, 1, -1, 0], np.int8).reshape(1, 2, 4, 1)[:, :1]
    ((found,),) = check(pool_model(input_shape=(1, 1, 4, 1), kernel=(1, 2), strides=(1, 2), x=Quant(1.0, 0)), [x])
    assert found.ravel().tolist() == [-3, 3]


def test_global_average_of_extremes() -> None:
    shape = (1, 25, 20, 2)
    x = np.full(shape, -128, np.int8)
    x[..., 1] = 127
    ((found,),) = check(pool_model(input_shape=shape, kernel=shape[1:3], strides=(1, 1)), [x])
    assert found.ravel().tolist() == [-128, 127]


def test_quantisation_must_not_change() -> None:
    b = ModelBuilder()
    x, y = b.tensor("x", (1, 4, 4, 1), scale=0.5, zero_point=0), b.tensor("y", (1, 2, 2, 1), scale=0.25, zero_point=0)
    b.op("AVERAGE_POOL_2D", [x], [y], padding="VALID", stride_h=2, stride_w=2, filter_height=2, filter_width=2)
    with pytest.raises(UnsupportedError, match="E1227"):
        main_of(b.build([x], [y]))


@given(pools(), SEEDS)
@FAST
def test_random(case: dict[str, Any], seed: int) -> None:
    check(pool_model(kind="AVERAGE_POOL_2D", **case), seed=seed)


@pytest.mark.slow
@given(pools(), SEEDS)
@SLOW
def test_random_often(case: dict[str, Any], seed: int) -> None:
    check(pool_model(kind="AVERAGE_POOL_2D", **case), seed=seed)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_on_host(padding: Any) -> None:
    check(pool_model(kind="AVERAGE_POOL_2D", padding=padding, kernel=(3, 2), activation="RELU6"), host=True)


@pytest.mark.parametrize("dtype", ["uint8", "int16"])
@pytest.mark.parametrize("activation", ["NONE", "RELU6"])
def test_codes_of_other_types(dtype: str, activation: str) -> None:
    check(coded("AVERAGE_POOL_2D", dtype, activation), host=True)
