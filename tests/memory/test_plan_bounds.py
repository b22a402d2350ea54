"""Bytes that no plan can go below."""

from __future__ import annotations

import pytest

from aot.memory.plan import BufferInfo, Conflict, liveness_bound, lower_bound, possible_savings
from aot.memory.planner import plan


def test_padding_that_cannot_be_avoided() -> None:
    buffers = [BufferInfo("a", 5, 4, 0, 0), BufferInfo("b", 6, 4, 0, 0)]
    assert lower_bound(buffers) == 13  # a below b: 8 + 6; b below a: 8 + 5
    assert plan(buffers).size == 13


def test_the_busiest_step_counts() -> None:
    buffers = [
        BufferInfo("a", 10, 1, 0, 1),
        BufferInfo("b", 20, 1, 1, 2),
        BufferInfo("c", 5, 1, 2, 3),
        BufferInfo("d", 0, 1, 0, 9),
    ]
    assert lower_bound(buffers) == 30
    assert liveness_bound([*buffers, BufferInfo("s", 100, 1, 1, 1, "scratch")]) == 30


@pytest.mark.parametrize(("distance", "bound"), [(None, 30), (0, 20), (12, 22), (-5, 20), (40, 30)])
def test_what_may_overlap_is_counted_once(distance: int | None, bound: int) -> None:
    """b of 10 bytes starts at least `distance` after a of 20."""
    buffers = [BufferInfo("a", 20, 1, 0, 0), BufferInfo("b", 10, 1, 0, 0)]
    assert lower_bound(buffers, [Conflict("a", "b", distance)]) == bound


def test_several_pairs_share_at_most_what_they_have_in_common() -> None:
    """x may lie over y and over z, but these keep apart: no more than x itself is saved."""
    buffers = [BufferInfo(n, 10, 1, 0, 0) for n in "xyz"]
    clashes = [Conflict("x", "y", 0), Conflict("x", "z", 0), Conflict("y", "z")]
    assert possible_savings(buffers, clashes) == {("x", "y"): 10, ("x", "z"): 10}
    assert lower_bound(buffers, clashes) == 20
