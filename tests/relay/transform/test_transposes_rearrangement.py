"""Chains of transposes and reshapes against numpy."""

from __future__ import annotations

from math import prod

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from aot.relay.transform.transposes import Rearrangement, refine
from tests.op._differential import FAST

SIZES = st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4).map(tuple)


def applied(by: Rearrangement, x: np.ndarray) -> list[int]:
    found: list[int] = np.transpose(x.reshape(by.sizes), by.order).ravel().tolist()
    return found


@st.composite
def shapes_of(draw: st.DrawFn, count: int) -> tuple[int, ...]:
    """Of that many elements, with a 1 somewhere."""
    found = []
    while count > 1:
        found.append(draw(st.sampled_from([n for n in (2, 3, 4, 6, count) if count % n == 0])))
        count //= found[-1]
    return (*found, 1)


@given(st.data(), SIZES)
@FAST
def test_two_transposes_with_a_reshape_between(data: st.DataObject, shape: tuple[int, ...]) -> None:
    axes = data.draw(st.permutations(range(len(shape))))
    x = np.arange(prod(shape)).reshape(shape)
    y = np.transpose(x, axes)
    by = Rearrangement.of(shape, axes)
    assert applied(by, x) == y.ravel().tolist()
    assert applied(by.inverse(), y) == x.ravel().tolist()
    second = data.draw(shapes_of(prod(shape)))
    again = data.draw(st.permutations(range(len(second))))
    both = by.then(second, again)
    if both is not None:
        assert applied(both, x) == np.transpose(y.reshape(second), again).ravel().tolist()
        assert 1 not in both.sizes


@given(st.data(), SIZES)
@FAST
def test_atoms_of_one_dimension_each(data: st.DataObject, shape: tuple[int, ...]) -> None:
    axes = data.draw(st.permutations(range(len(shape))))
    x = np.arange(prod(shape)).reshape(shape)
    by = Rearrangement.of(shape, axes)
    result = data.draw(shapes_of(prod(shape)))
    for found, wanted, sizes in (
        (by.split_result(result), result, lambda r: r.moved),
        (by.split_source(shape), shape, lambda r: r.sizes),
    ):
        if found is not None:
            fine, groups = found
            assert applied(fine, x) == applied(by, x)
            assert tuple(prod(sizes(fine)[i] for i in group) for group in groups) == wanted


def test_factors_that_two_shapes_share() -> None:
    assert refine((4, 6), (2, 12)) == ([[2, 2], [6]], [[2], [2, 6]])
    assert refine((1, 8), (8,)) == ([[], [8]], [[8]])
    assert refine((2, 3), (3, 2)) is None


def test_what_stays_in_place_is_one_atom() -> None:
    assert Rearrangement.of((1, 8, 6, 4), (0, 3, 1, 2)) == Rearrangement((48, 4), (1, 0))
    assert Rearrangement.of((1, 1, 16, 5), (0, 2, 3, 1)).is_identity
