"""REVERSE_V2 and REVERSE_SEQUENCE."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from aot.errors import AotError
from tests.op._differential import FAST, SEEDS, SLOW, check, dims, main_of
from tests.op._one_op import EVERY, Spec, const, draw_array, moving, one_op, same_quant


@st.composite
def reverses(draw: st.DrawFn) -> bytes:
    shape = draw(dims(draw(st.integers(1, 4))))
    first = draw(st.integers(0, len(shape) - 1))
    axes = list(range(first, draw(st.integers(first, len(shape) - 1)) + 1))  # the reference wants neighbours
    dtype = draw(st.sampled_from(EVERY))
    return moving("REVERSE_V2", dtype, [shape, shape], [const(axes)])


@st.composite
def sequences(draw: st.DrawFn) -> tuple[bytes, list[list[Any]]]:
    shape = draw(dims(draw(st.integers(2, 4)), largest=4))
    seq, batch = draw(st.permutations(range(len(shape))))[:2]
    dtype = draw(st.sampled_from(EVERY))
    index = draw(st.sampled_from(["int32", "int64"]))
    lengths = np.array([draw(st.integers(0, shape[seq])) for _ in range(shape[batch])], index)
    data = Spec(shape, dtype, same_quant(dtype))
    model = one_op("REVERSE_SEQUENCE", [data, Spec(lengths.shape, index)], [data], seq_dim=seq, batch_dim=batch)
    return model, [[draw_array(draw(SEEDS), shape, dtype), lengths]]


@given(reverses(), sequences(), SEEDS)
@FAST
def test_random(model: bytes, sequence: Any, seed: int) -> None:
    check(model, seed=seed)
    check(sequence[0], *sequence[1])


@pytest.mark.slow
@given(reverses(), sequences(), SEEDS)
@SLOW
def test_random_often(model: bytes, sequence: Any, seed: int) -> None:
    check(model, seed=seed)
    check(sequence[0], *sequence[1])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "bool", "float32"])
def test_types_on_host(dtype: str) -> None:
    check(moving("REVERSE_V2", dtype, [(2, 3, 4), (2, 3, 4)], [const([1])]), host=True)


def test_sequence_on_host() -> None:
    data = Spec((3, 5), "int32")
    model = one_op("REVERSE_SEQUENCE", [data, Spec((3,), "int64")], [data], seq_dim=1, batch_dim=0)
    check(model, [draw_array(0, (3, 5), "int32"), np.array([0, 5, 3])], host=True)


def test_refused() -> None:
    with pytest.raises(AotError, match="E1126"):
        main_of(moving("REVERSE_V2", "int8", [(2, 3), (2, 3)], [const([2])]))
    data = Spec((3, 3), "int32")
    with pytest.raises(AotError, match="E1126"):
        main_of(one_op("REVERSE_SEQUENCE", [data, const([1, 2, 3])], [data], seq_dim=1, batch_dim=1))
