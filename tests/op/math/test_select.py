"""SELECT and SELECT_V2 with broadcasting."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from tests.op._differential import FAST, SEEDS, SLOW, check, dims
from tests.op._one_op import EVERY, Spec, one_op, same_quant


@st.composite
def selects(draw: st.DrawFn, name: str = "") -> bytes:
    """Of that operator, or of either."""
    dtype = draw(st.sampled_from(EVERY))
    quant = same_quant(dtype)
    name = name or draw(st.sampled_from(["SELECT_V2", "SELECT"]))
    if name == "SELECT":
        shape = draw(dims(draw(st.integers(1, 3)), largest=4))
        cond = draw(st.sampled_from([shape, shape[:1]]))
        data = Spec(shape, dtype, quant)
        return one_op("SELECT", [Spec(cond, "bool"), data, data], [data])
    shape = draw(dims(draw(st.integers(0, 4)), largest=4))

    def part() -> tuple[int, ...]:
        return tuple(draw(st.sampled_from([1, n])) for n in shape)[draw(st.integers(0, len(shape))) :]

    shapes = part(), part(), part()
    result = np.broadcast_shapes(*shapes)
    operands = [Spec(shapes[0], "bool"), *(Spec(s, dtype, quant) for s in shapes[1:])]
    return one_op("SELECT_V2", operands, [Spec(result, dtype, quant)])


@given(selects(), SEEDS)
@FAST
def test_random(model: bytes, seed: int) -> None:
    check(model, seed=seed)


@pytest.mark.slow
@given(selects(), SEEDS)
@SLOW
def test_random_often(model: bytes, seed: int) -> None:
    check(model, seed=seed)


def test_on_host() -> None:
    data = Spec((2, 3), "int8", same_quant("int8"))
    check(one_op("SELECT_V2", [Spec((3,), "bool"), data, data], [data]), host=True)
