"""Circular windows in the state: the window moves forward in memory, so that the rows it keeps need not be copied in every run.

A window (`state_windows`, `shifted_states`) has `size` bytes.  Each run adds `hop` bytes at its end (it writes `fresh` bytes in
all) and keeps `kept` bytes.  In run k the window begins `k * hop` bytes after its start, so nothing is copied; every `turns`
runs, all windows are moved back at once.  A counter in the state holds the number of the run.  All windows share it, and the room
behind the last one:

    | counter | window | window | ... | window | room |       sorted by hop, the smallest first

A window follows one that moves as fast or faster and never catches up with it, so `(turns - 1) * hop` bytes behind the last
window are enough for all.  Windows with a hop that is large for what they keep do not take part: they are moved in every run.

The new bytes of a window may overlap the bytes that leave the next one if the order of the layers allows it; the windows then
need little more than what they keep.  With `turns` = 1 the windows are only packed like this, and moved in every run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from aot.memory.plan import align_up
from aot.support.dataclass import dataclass

MOST_MOVED = (6, 5)
"""Limit on copying, averaged over the runs: at most 6 bytes are moved per 5 new bytes."""

COUNTER = "int32"
"""C type of the counter."""


@dataclass(frozen=True, slots=True)
class Ring:
    """A window of `size` bytes at byte `start` of the state that advances by `hop` bytes per run and keeps `kept` bytes.

    A run writes `fresh` bytes: the `hop` new bytes at its end, or bytes anywhere in it if its parts are replaced in turn.
    """

    start: int
    size: int
    hop: int
    kept: int
    fresh: int
    align: int = 1


@dataclass(frozen=True, slots=True)
class Rings:
    """Windows that advance together for `turns` runs; `counter` is the byte offset of the run counter in the state."""

    windows: tuple[Ring, ...]
    turns: int
    counter: int = 0

    @property
    def room(self) -> int:
        """Bytes needed in addition to the windows themselves."""
        return max((w.hop for w in self.windows), default=0) * (self.turns - 1)

    @property
    def moved(self) -> int:
        """Bytes moved back in one of `turns` runs."""
        return sum(w.kept for w in self.windows)


def choose_rings(windows: Sequence[Ring], most_room: int | None = None) -> Rings | None:
    """Return the windows to advance and for how many runs: the least memory that moves no more than MOST_MOVED.

    Windows with the same hop keep their order.  Return None if moving them in every run already meets MOST_MOVED.  With
    `most_room`, return instead what moves the fewest bytes within that many bytes of room.
    """
    able = sorted((w for w in windows if w.hop % w.align == 0), key=lambda w: w.hop)
    most, of = MOST_MOVED
    new, every = sum(w.fresh for w in windows), sum(w.kept for w in windows)
    if of * every <= most * new or not able:
        return None
    if most_room is not None:
        return _within(able, every, most_room, enough=most * new)
    options = []
    for k in range(1, len(able) + 1):
        kept = sum(w.kept for w in able[:k])
        left = most * new - of * (every - kept)  # the limit for these windows if the others are moved in every run
        if left > 0:
            options.append(Rings(tuple(able[:k]), -(-of * kept // left)))
    if not options:  # the windows that cannot advance exceed the limit alone
        kept, fresh = sum(w.kept for w in able), sum(w.fresh for w in able)
        options.append(Rings(tuple(able), -(-of * kept // (most * fresh))))
    best = min(options, key=lambda r: (r.room, r.turns))
    return best if best.turns > 1 else None


def tight_rings(windows: Sequence[Ring]) -> Rings | None:
    """All windows that can advance, packed without room to do so; None if there are none."""
    able = sorted((w for w in windows if w.hop % w.align == 0), key=lambda w: w.hop)
    return Rings(tuple(able), 1) if able else None


def packed(windows: Sequence[Ring], start: int, share: Callable[[Ring, Ring, int], bool]) -> tuple[list[Ring], int]:
    """Return the windows one after the other from `start`, and the end of the last one.

    `share(window, next, distance)`: whether the new bytes of a window may overlap those that leave the next one, which starts
    `distance` bytes later.
    """
    placed: list[Ring] = []
    end, last = start, None
    for w in windows:
        to = align_up(end, w.align)
        if last is not None:
            over = align_up(end - min(last.hop, w.hop, w.kept), w.align)
            if over < to and share(last, w, over - placed[-1].start):
                to = over
        placed.append(replace(w, start=to))
        last, end = w, to + w.size
    return placed, end


def _within(able: Sequence[Ring], every: int, room: int, *, enough: int) -> Rings | None:
    """The choice that moves the fewest of `every` bytes, down to `enough` / MOST_MOVED[1]; None if no window can advance once."""
    best: tuple[float, Rings] | None = None
    for k, last in enumerate(able, 1):
        kept = sum(w.kept for w in able[:k])
        left = enough - MOST_MOVED[1] * (every - kept)
        turns = room // last.hop + 1
        turns = min(turns, -(-MOST_MOVED[1] * kept // left)) if left > 0 else turns
        moved = every - kept + kept / turns
        if turns > 1 and (best is None or moved < best[0]):
            best = moved, Rings(tuple(able[:k]), turns)
    return None if best is None else best[1]
