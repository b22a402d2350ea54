"""STABLEHLO_ADD, _MULTIPLY, _MAXIMUM, _MINIMUM, _AND and _SHIFT_LEFT against LiteRT's own kernels."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest

from aot.errors import AotError
from tests.op._differential import FAST, OFTEN, SEEDS, Case, check_drawn, dims, main_of
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


@st.composite
def bitwise(draw: st.DrawFn) -> Case:
    shape, seed = draw(dims(draw(st.integers(1, 3)))), draw(SEEDS)
    dtype = draw(st.sampled_from(["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64"]))
    return one_op("STABLEHLO_AND", [Spec(shape, dtype)] * 2, [Spec(shape, dtype)]), [
        draw_array(seed + i, shape, dtype) for i in range(2)
    ]


@st.composite
def shifts(draw: st.DrawFn) -> Case:
    shape, dtype, seed = draw(dims(draw(st.integers(1, 3)))), draw(st.sampled_from(["int8", "int16", "int32"])), draw(SEEDS)
    distances = np.asarray(np.random.default_rng(seed).integers(0, 32, shape), dtype)
    return one_op("STABLEHLO_SHIFT_LEFT", [Spec(shape, dtype)] * 2, [Spec(shape, dtype)]), [
        draw_array(seed, shape, dtype),
        distances,
    ]


DRAWN = {
    **{name: stablehlos(name) for name in ("ADD", "MULTIPLY", "MAXIMUM", "MINIMUM")},
    "AND": bitwise(),
    "SHIFT_LEFT": shifts(),
}


@pytest.mark.parametrize("name", DRAWN)
def test_random(name: str) -> None:
    check_drawn(DRAWN[name], FAST)


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWN)
def test_random_often(name: str) -> None:
    check_drawn(DRAWN[name], OFTEN)


def test_refused() -> None:
    row = Spec((4,), "float32")
    with pytest.raises(AotError, match="E1202"):
        main_of(one_op("STABLEHLO_SHIFT_LEFT", [row, row], [row]))
