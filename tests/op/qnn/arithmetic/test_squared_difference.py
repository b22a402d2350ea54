"""SQUARED_DIFFERENCE of int16 codes, which TFLM alone has; of other types: tests/op/math/test_arithmetic.py."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from aot.errors import AotError
from aot.testing import Quant
from tests.op._differential import FAST, SEEDS, SLOW, check_tflm, main_of, scales
from tests.op._one_op import Spec, one_op


@st.composite
def squares(draw: st.DrawFn) -> bytes:
    """Of results with a scale that is too small, too, whose 32 bits wrap."""
    shapes: Any = draw(st.sampled_from([((40,), (40,)), ((4, 1, 3), (5, 1)), ((2, 3), (1, 3))]))
    a, b, y = (Quant(float(np.float32(draw(scales()) / 256)), 0) for _ in range(3))
    inputs = [Spec(s, "int16", q) for s, q in zip(shapes, (a, b), strict=True)]
    return one_op("SQUARED_DIFFERENCE", inputs, [Spec(tuple(np.broadcast_shapes(*shapes)), "int16", y)])


@given(squares(), SEEDS)
@settings(FAST, max_examples=4)
def test_random(model: bytes, seed: int) -> None:
    check_tflm(model, seed=seed)


@pytest.mark.slow
@given(squares(), SEEDS)
@SLOW
def test_random_often(model: bytes, seed: int) -> None:
    check_tflm(model, seed=seed)


def test_zero_points_of_int16() -> None:
    with pytest.raises(AotError, match="E1224"):
        main_of(one_op("SQUARED_DIFFERENCE", [Spec((4,), "int16", Quant(0.5, 1))] * 2, [Spec((4,), "int16", Quant(0.5, 0))]))
