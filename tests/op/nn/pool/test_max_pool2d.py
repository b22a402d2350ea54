"""MAX_POOL_2D."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from aot.testing import ModelBuilder, pool_model
from tests.op._differential import FAST, SEEDS, SLOW, check
from tests.op.nn._pools import coded, pools


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_of_other_types(dtype: str, padding: str) -> None:
    b = ModelBuilder()
    quant = {"scale": 0.5, "zero_point": 3} if dtype == "uint8" else {}
    x = b.tensor("x", (1, 5, 5, 2), dtype, **quant)  # type: ignore[arg-type]
    size = (3, 3) if padding == "SAME" else (2, 2)
    y = b.tensor("y", (1, *size, 2), dtype, **quant)  # type: ignore[arg-type]
    b.op("MAX_POOL_2D", [x], [y], padding=padding, stride_h=2, stride_w=2, filter_height=3, filter_width=2)
    check(b.build([x], [y]), host=True)


@given(pools(), SEEDS)
@FAST
def test_random(case: dict[str, Any], seed: int) -> None:
    check(pool_model(kind="MAX_POOL_2D", **case), seed=seed)


@pytest.mark.slow
@given(pools(), SEEDS)
@SLOW
def test_random_often(case: dict[str, Any], seed: int) -> None:
    check(pool_model(kind="MAX_POOL_2D", **case), seed=seed)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_on_host(padding: Any) -> None:
    check(pool_model(kind="MAX_POOL_2D", padding=padding, kernel=(3, 2), activation="RELU6"), host=True)


@pytest.mark.parametrize("dtype", ["uint8", "int16"])
@pytest.mark.parametrize("activation", ["NONE", "RELU6"])
def test_codes_of_other_types(dtype: str, activation: str) -> None:
    check(coded("MAX_POOL_2D", dtype, activation), host=True)
