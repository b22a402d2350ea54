"""COMPLEX_ABS, REAL and IMAG; complex tensors through operators that move data: exact to LiteRT."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest

from tests.op._differential import FAST, OFTEN, SEEDS, Case, check, check_drawn
from tests.op._one_op import Spec, const, draw_array, one_op

ROWS = st.sampled_from([(), (1,), (3,), (2, 2)])


@st.composite
def parts(draw: st.DrawFn, opcode: str) -> Case:
    shape, seed = (*draw(ROWS), draw(st.integers(1, 5))), draw(SEEDS)
    pairs = draw_array(seed, (*shape, 2), "float32")
    extremes = np.array([np.inf, -np.inf, 0.0, -0.0, 3e38, 1e-44], np.float32)
    rng = np.random.default_rng(seed)
    pairs = np.where(rng.random(pairs.shape) < 0.2, rng.choice(extremes, pairs.shape), pairs)
    data = np.ascontiguousarray(pairs).view(np.complex64).reshape(shape)
    return one_op(opcode, [Spec(shape, "complex64")], [Spec(shape, "float32")]), [data]


@st.composite
def views(draw: st.DrawFn) -> Case:
    shape = (draw(st.integers(1, 4)), 1, draw(st.integers(1, 4)))
    data = np.ascontiguousarray(draw_array(draw(SEEDS), (*shape, 2), "float32")).view(np.complex64).reshape(shape)
    given = Spec(shape, "complex64")
    opcode = draw(st.sampled_from(["RESHAPE", "EXPAND_DIMS", "SQUEEZE"]))
    if opcode == "RESHAPE":
        return one_op(opcode, [given, const([-1])], [Spec((shape[0] * shape[2],), "complex64")]), [data]
    if opcode == "EXPAND_DIMS":
        return one_op(opcode, [given, const(0)], [Spec((1, *shape), "complex64")]), [data]
    return one_op(opcode, [given], [Spec((shape[0], shape[2]), "complex64")], squeeze_dims=[1]), [data]


OPCODES = ["COMPLEX_ABS", "REAL", "IMAG"]


@pytest.mark.parametrize("opcode", OPCODES)
def test_random(opcode: str) -> None:
    check_drawn(parts(opcode), FAST)


@pytest.mark.slow
@pytest.mark.parametrize("opcode", OPCODES)
def test_random_often(opcode: str) -> None:
    check_drawn(parts(opcode), OFTEN)


def test_random_views() -> None:
    check_drawn(views(), FAST)


@pytest.mark.slow
def test_random_views_often() -> None:
    check_drawn(views(), OFTEN)


@pytest.mark.parametrize("opcode", OPCODES)
def test_on_host(opcode: str) -> None:
    pairs = np.array([complex(np.inf, np.nan), complex(np.nan, -np.inf), complex(np.nan, 1), complex(3e38, 3e38)], np.complex64)
    check(one_op(opcode, [Spec((4,), "complex64")], [Spec((4,), "float32")]), [pairs[[0, 1, 3]].repeat(2)[:4]], host=True)
