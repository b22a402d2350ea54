"""PACK along any axis."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.op._differential import FAST, SEEDS, SLOW, check, dims
from tests.op._one_op import EVERY, Spec, one_op, same_quant


@st.composite
def packs(draw: st.DrawFn) -> bytes:
    shape = draw(dims(draw(st.integers(0, 3)), largest=4))
    count, axis = draw(st.integers(1, 4)), draw(st.integers(-len(shape) - 1, len(shape)))
    where = axis % (len(shape) + 1)
    dtype = draw(st.sampled_from(EVERY))
    data = Spec(shape, dtype, same_quant(dtype))
    result = Spec((*shape[:where], count, *shape[where:]), dtype, same_quant(dtype))
    return one_op("PACK", [data] * count, [result], values_count=count, axis=axis)


@given(packs(), SEEDS)
@FAST
def test_random(model: bytes, seed: int) -> None:
    check(model, seed=seed)


@pytest.mark.slow
@given(packs(), SEEDS)
@SLOW
def test_random_often(model: bytes, seed: int) -> None:
    check(model, seed=seed)


def test_on_host() -> None:
    data = Spec((3, 2), "int16", same_quant("int16"))
    check(one_op("PACK", [data] * 3, [Spec((3, 3, 2), "int16", same_quant("int16"))], values_count=3, axis=1), host=True)
