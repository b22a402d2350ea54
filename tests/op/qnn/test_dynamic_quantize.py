"""Quantisation at run time: rounding by place, and numbers that are not finite."""

from __future__ import annotations

import numpy as np

from aot.ir.type import TensorType
from aot.op.qnn.dynamic_quantize import DynamicQuantizeAttrs, evaluate_params, evaluate_quantize, evaluate_range


def test_what_is_not_finite_becomes_zero() -> None:
    data = np.array([[np.inf, -1, np.nan, 2]], np.float32)
    ends = evaluate_range(data, attrs=None, out_type=TensorType((1, 2), "float32"))
    assert ends.tolist() == [[1, np.inf]]
    params = evaluate_params(ends, attrs=DynamicQuantizeAttrs(), out_type=TensorType((1, 3), "float32"))
    found = evaluate_quantize(data, params, attrs=DynamicQuantizeAttrs(), out_type=TensorType((1, 4), "int8"))
    assert found.tolist() == [[0, 0, 0, 0]]


JUST_BELOW = np.float32(0.49999997)


def test_rounding_depends_on_the_place() -> None:
    """0.49999997 becomes 1 where the reference takes eight values at once, and 0 behind them."""
    data = np.full((1, 9), JUST_BELOW, np.float32)
    params = np.array([[1, 1, 0]], np.float32)
    found = evaluate_quantize(data, params, attrs=DynamicQuantizeAttrs(), out_type=TensorType((1, 9), "int8"))
    assert found.tolist() == [[1] * 8 + [0]]
