"""Quantisation at run time: rounding by place, and numbers that are not finite."""

from __future__ import annotations

import numpy as np
import pytest

from aot.ir.type import TensorType
from aot.op.qnn.quantize import DynamicParamsAttrs, DynamicQuantizeAttrs, DynamicRange
from tests.op._differential import check
from tests.op._layer_models import Kind, LayerModel
from tests.op.qnn.test_hybrid import build


def test_what_is_not_finite_becomes_the_lowest_number() -> None:
    data = np.array([[np.inf, -1, np.nan, 2]], np.float32)
    ends = DynamicRange().evaluate(data, out_type=TensorType((1, 2), "float32"))
    assert ends.tolist() == [[1, np.inf]]
    params = DynamicParamsAttrs().evaluate(ends, out_type=TensorType((1, 3), "float32"))
    found = DynamicQuantizeAttrs().evaluate(data, params, out_type=TensorType((1, 4), "int8"))
    assert found.tolist() == [[-127, 0, -127, 0]]


JUST_BELOW = np.float32(0.49999997)


def test_rounding_depends_on_the_place() -> None:
    """0.49999997 becomes 1 where the reference takes eight values at once, and 0 behind them."""
    data = np.full((1, 9), JUST_BELOW, np.float32)
    params = np.array([[1, 1, 0]], np.float32)
    found = DynamicQuantizeAttrs().evaluate(data, params, out_type=TensorType((1, 9), "int8"))
    assert found.tolist() == [[1] * 8 + [0]]


@pytest.mark.parametrize("asymmetric", [False, True])
@pytest.mark.parametrize("depth", [3, 8, 13])
def test_factors_that_are_infinite(depth: int, asymmetric: bool) -> None:
    """Batches of the smallest numbers: what x86-64 makes of products that no integer can hold."""
    layer = LayerModel("FULLY_CONNECTED", Kind("float32", "int8", ""), (12, depth), 2, seed=depth)
    rng = np.random.default_rng(depth)
    x = rng.normal(size=(12, depth)) * 10.0 ** rng.uniform(-45, -36, (12, 1))
    x[:, ::4] = 0
    x[1], x[2] = np.abs(x[1]), -np.abs(x[2])
    check(build(layer, asymmetric=asymmetric), [x.astype(np.float32)], host=True)
