"""ONE_HOT along any axis."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from tests.op._differential import FAST, SEEDS, SLOW, check, dims
from tests.op._one_op import EVERY, Spec, const, draw_array, one_op, same_quant


@st.composite
def one_hots(draw: st.DrawFn) -> tuple[bytes, list[Any]]:
    shape = draw(dims(draw(st.integers(0, 3)), largest=4))
    axis, depth = draw(st.integers(-1, len(shape))), draw(st.integers(1, 5))
    where = len(shape) if axis == -1 else axis
    dtype = draw(st.sampled_from(EVERY))
    index = draw(st.sampled_from(["int32", "int64"]))
    quant = same_quant(dtype)
    value, result = Spec((), dtype, quant), Spec((*shape[:where], depth, *shape[where:]), dtype, quant)
    model = one_op("ONE_HOT", [Spec(shape, index), const(depth), value, value], [result], axis=axis)
    seed = draw(SEEDS)
    indices = np.asarray(np.random.default_rng(seed).integers(-2, depth + 2, shape), index)
    return model, [indices, draw_array(seed, (), dtype), draw_array(seed + 1, (), dtype)]


@given(one_hots())
@FAST
def test_random(case: tuple[bytes, list[Any]]) -> None:
    check(case[0], case[1])


@pytest.mark.slow
@given(one_hots())
@SLOW
def test_random_often(case: tuple[bytes, list[Any]]) -> None:
    check(case[0], case[1])


def test_on_host() -> None:
    on, off = const(1.0, "float32"), const(0.0, "float32")
    model = one_op("ONE_HOT", [Spec((3,), "int32"), const(4), on, off], [Spec((3, 4), "float32")], axis=-1)
    check(model, [np.array([0, 3, 7], np.int32)], host=True)
