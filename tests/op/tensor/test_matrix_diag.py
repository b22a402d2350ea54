"""MATRIX_DIAG and MATRIX_SET_DIAG against the reference's kernels."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest

from aot.errors import AotError
from tests.op._differential import FAST, OFTEN, SEEDS, Case, check_drawn, dims, main_of
from tests.op._one_op import Spec, draw_array, one_op, same_quant

DIAGONALS = ["int8", "uint8", "int16", "int32", "int64", "float32"]


@st.composite
def diagonals(draw: st.DrawFn) -> Case:
    shape, dtype = draw(dims(draw(st.integers(1, 3)), largest=4)), draw(st.sampled_from(DIAGONALS))
    quant = same_quant(dtype)
    model = one_op("MATRIX_DIAG", [Spec(shape, dtype, quant)], [Spec((*shape, shape[-1]), dtype, quant)])
    return model, [draw_array(draw(SEEDS), shape, dtype)]


@st.composite
def set_diagonals(draw: st.DrawFn) -> Case:
    shape, dtype = draw(dims(draw(st.integers(2, 3)), largest=4)), draw(st.sampled_from(DIAGONALS))
    quant, seed = same_quant(dtype), draw(SEEDS)
    data, diagonal = Spec(shape, dtype, quant), Spec((*shape[:-2], min(shape[-2:])), dtype, quant)
    model = one_op("MATRIX_SET_DIAG", [data, diagonal], [data])
    return model, [draw_array(seed, shape, dtype), draw_array(seed + 1, diagonal.shape, dtype)]


def test_random() -> None:
    check_drawn(diagonals(), FAST)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(diagonals(), OFTEN)


def test_random_set() -> None:
    check_drawn(set_diagonals(), FAST)


@pytest.mark.slow
def test_random_set_often() -> None:
    check_drawn(set_diagonals(), OFTEN)


def test_refused() -> None:
    with pytest.raises(AotError, match="E1207"):
        main_of(one_op("MATRIX_SET_DIAG", [Spec((2, 3), "float32"), Spec((3,), "float32")], [Spec((2, 3), "float32")]))
