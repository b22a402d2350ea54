"""Which windows of the state move on, and how often before they are moved back."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from aot.memory.circular_state import Ring, Rings, choose_rings, packed, tight_rings


@pytest.mark.parametrize("seed", range(40))
def test_the_choice(seed: int) -> None:
    rng = np.random.default_rng(seed)
    windows = []
    for _ in range(int(rng.integers(1, 8))):
        unit = int(rng.choice([1, 4, 16]))
        hop, kept = (unit * int(rng.integers(1, n)) for n in (20, 200))
        windows.append(Ring(0, hop + kept, hop, kept, hop, unit if rng.random() < 0.9 else 32))
    new, kept = sum(w.hop for w in windows), sum(w.kept for w in windows)
    rings = choose_rings(windows)
    if rings is None:
        assert 5 * kept <= 6 * new or all(w.hop % w.align for w in windows)
        return
    moved = (kept - rings.moved) + rings.moved / rings.turns
    assert all(w.hop % w.align == 0 for w in rings.windows)
    assert all(a.hop <= b.hop for a, b in pairwise(rings.windows)), "the fastest in front"
    if all(w.hop % w.align == 0 for w in windows):
        assert moved <= 1.2 * new
        fewer = Rings(rings.windows, rings.turns - 1)
        assert (kept - fewer.moved) + fewer.moved / fewer.turns > 1.2 * new, "and no sooner than needed"


def test_within_some_room_the_fewest_bytes_are_moved() -> None:
    slow, fast = Ring(0, 84, 4, 80, 4, 4), Ring(84, 240, 40, 200, 40, 4)
    assert choose_rings([slow, fast], 3) is None, "not one step"
    found = choose_rings([slow, fast], 16)
    assert found is not None
    assert (found.windows, found.turns, found.room) == ((slow,), 5, 16)
    both = choose_rings([slow, fast], 120)
    assert both is not None
    assert (len(both.windows), both.turns, both.room) == (2, 4, 120)


def test_what_is_new_lies_over_what_leaves_the_next() -> None:
    one, two, three = Ring(0, 12, 4, 8, 4, 4), Ring(0, 24, 4, 20, 4, 4), Ring(0, 80, 8, 72, 8, 8)
    apart, end = packed([one, two, three], 4, lambda *_: False)
    assert [w.start for w in apart] == [4, 16, 40]
    assert end == 120
    asked = []
    tight, end = packed([one, two, three], 4, lambda a, b, gap: asked.append((a, b, gap)) is None)
    assert [w.start for w in tight] == [4, 12, 32], "the last at a multiple of 8"
    assert end == 112
    assert asked == [(one, two, 8), (two, three, 20)]
    assert packed([one, replace(two, kept=2, size=6)], 0, lambda *_: True)[0][1].start == 12, "not over more than what is old"


def test_windows_without_room() -> None:
    found = tight_rings([Ring(0, 12, 4, 8, 4, 4), Ring(0, 13, 5, 8, 5, 4), Ring(0, 12, 2, 10, 2)])
    assert found is not None
    assert ([w.hop for w in found.windows], found.turns, found.room) == ([2, 4], 1, 0)
    assert tight_rings([Ring(0, 13, 5, 8, 5, 4)]) is None
