"""What the planner is given and returns: conflicts in time, starts that a distance forbids, how far a plan may be off."""

from __future__ import annotations

import pytest

from aot.memory.plan import BufferInfo, Conflict, align_up, conflicts, forbidden_starts

A, B = BufferInfo("a", 20, 4, 0, 2), BufferInfo("b", 10, 4, 2, 3)


def test_buffers_of_one_step_conflict() -> None:
    later = BufferInfo("c", 1, 1, 3, 3)
    assert conflicts((A, B, later)) == (Conflict("a", "b"), Conflict("b", "c"))


@pytest.mark.parametrize(("distance", "high"), [(None, 20), (0, 0), (7, 7), (99, 20), (-4, -4), (-50, -10)])
def test_starts_that_are_forbidden(distance: int | None, high: int) -> None:
    """Every start of b outside is apart from a, or at the distance; every one inside is neither."""
    low, found = forbidden_starts(Conflict("a", "b", distance), A, B)
    assert (low, found) == (-10, high)
    for start in range(-30, 40):
        apart = start + B.size <= 0 or start >= A.size
        assert (not low < start < found) == (apart or (distance is not None and start >= distance))


def test_alignment() -> None:
    assert [align_up(n, 4) for n in (0, 1, 4, 5)] == [0, 4, 4, 8]
