"""DYNAMIC_UPDATE_SLICE, with starts outside too."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest

from tests.op._differential import FAST, SEEDS, SLOW, Case, check, check_drawn, dims
from tests.op._one_op import EVERY, Spec, draw_array, one_op, same_quant


@st.composite
def updates(draw: st.DrawFn) -> Case:
    shape = draw(dims(draw(st.integers(1, 4)), largest=4))
    part = tuple(draw(st.integers(1, n)) for n in shape)
    dtype, index = draw(st.sampled_from(EVERY)), draw(st.sampled_from(["int32", "int64"]))
    start = np.array([draw(st.integers(-2, n + 2)) for n in shape], index)
    data, update = (Spec(s, dtype, same_quant(dtype)) for s in (shape, part))
    model = one_op("DYNAMIC_UPDATE_SLICE", [data, update, Spec(start.shape, index)], [data])
    seed = draw(SEEDS)
    return model, [draw_array(seed, shape, dtype), draw_array(seed + 1, part, dtype), start]


def test_random() -> None:
    check_drawn(updates(), FAST)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(updates(), SLOW)


def test_on_host() -> None:
    data = Spec((4, 3), "int8", same_quant("int8"))
    update = one_op("DYNAMIC_UPDATE_SLICE", [data, Spec((2, 3), "int8", data.quant), Spec((2,), "int32")], [data])
    inputs = [draw_array(0, (4, 3), "int8"), draw_array(1, (2, 3), "int8")]
    check(update, *[[*inputs, np.array([start, 0], np.int32)] for start in (0, 2, 99)], host=True)
