"""BROADCAST_TO and TILE."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from aot.errors import AotError
from tests.op._differential import FAST, SEEDS, SLOW, check, dims, main_of
from tests.op._one_op import EVERY, MOVABLE, const, moving


@st.composite
def broadcasts(draw: st.DrawFn) -> bytes:
    shape = draw(dims(draw(st.integers(1, 5)), largest=4))
    own = tuple(draw(st.sampled_from([1, n])) for n in shape)[draw(st.integers(0, len(shape) - 1)) :]
    dtype, index = draw(st.sampled_from(EVERY)), draw(st.sampled_from(["int32", "int64"]))
    return moving("BROADCAST_TO", dtype, [own, shape], [const(shape, index)], version=2)


@st.composite
def tiles(draw: st.DrawFn) -> bytes:
    shape = draw(dims(draw(st.integers(1, 4)), largest=4))
    reps = draw(dims(len(shape), largest=3))
    result = [n * r for n, r in zip(shape, reps, strict=True)]
    return moving("TILE", draw(st.sampled_from(EVERY)), [shape, result], [const(reps)])


@given(broadcasts(), tiles(), SEEDS)
@FAST
def test_random(broadcast: bytes, tile: bytes, seed: int) -> None:
    check(broadcast, seed=seed)
    check(tile, seed=seed)


@pytest.mark.slow
@given(broadcasts(), tiles(), SEEDS)
@SLOW
def test_random_often(broadcast: bytes, tile: bytes, seed: int) -> None:
    check(broadcast, seed=seed)
    check(tile, seed=seed)


@pytest.mark.parametrize("dtype", MOVABLE)
def test_types(dtype: str) -> None:
    check(moving("BROADCAST_TO", dtype, [(3, 1), (2, 3, 4)], [const([2, 3, 4])], version=2), host=True)
    check(moving("TILE", dtype, [(3, 2), (3, 6)], [const([1, 3])]), host=True)


def test_refused() -> None:
    with pytest.raises(AotError, match="E112"):
        main_of(moving("BROADCAST_TO", "int8", [(3,), (4,)], [const([4])], version=2))
    with pytest.raises(AotError, match="E1132"):
        main_of(moving("TILE", "int8", [(3,), (6,)], [const([2, 1])]))
