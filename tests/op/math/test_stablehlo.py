"""STABLEHLO_ADD, MULTIPLY, MAXIMUM and MINIMUM against the reference's kernels."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest

from tests.op._differential import FAST, OFTEN, SEEDS, Case, check_drawn, dims
from tests.op._one_op import Spec, draw_array, one_op

LIMITED = ("ADD", "MULTIPLY")


@st.composite
def stablehlos(draw: st.DrawFn, name: str) -> Case:
    shape, dtype, seed = draw(dims(draw(st.integers(1, 3)))), draw(st.sampled_from(["int32", "int64", "float32"])), draw(SEEDS)
    given = Spec(shape, dtype)
    pair = [draw_array(seed + i, shape, dtype) for i in range(2)]
    if dtype != "float32" and name in LIMITED:  # the reference's sums must not overflow
        pair = [a >> (a.dtype.itemsize * 4 + 1) for a in pair]
    elif dtype == "float32" and draw(st.booleans()):
        pair[seed % 2].flat[0] = np.nan if name not in LIMITED else np.inf
    return one_op(f"STABLEHLO_{name}", [given, given], [given]), pair


NAMES = ["ADD", "MULTIPLY", "MAXIMUM", "MINIMUM"]


@pytest.mark.parametrize("name", NAMES)
def test_random(name: str) -> None:
    check_drawn(stablehlos(name), FAST)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_random_often(name: str) -> None:
    check_drawn(stablehlos(name), OFTEN)
