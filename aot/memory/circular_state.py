"""Windows that move on: instead of moving the rows that stay to the front in every run, the window begins behind them.

A window (`state_windows`, `shifted_states`) of `size` bytes gets `fresh` new ones a run, `hop` of them behind its end, and `kept`
bytes stay.  In run k it begins `k * hop` bytes behind its start, so nothing has to be copied; after `turns` runs, all are moved
back at once.  A counter in the state says which run it is, and all windows share it and the room in front of them:

    | counter | window | window | ... | window | room |       sorted by hop, the smallest first

A window runs after one that is as fast or faster and never catches up with it, so `(turns - 1) * hop` bytes behind the last of
them are enough for all.  Windows whose hop is large for what they keep stay where they are and are moved in every run.

What is new in a window may lie over what leaves the one behind it, where the order of the layers allows that; then windows need
little more than what they keep.  With one turn nothing moves on: the windows are only packed so, and moved in every run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from aot.memory.plan import align_up
from aot.support.dataclass import dataclass

MOST_MOVED = (6, 5)
"""How many bytes may be moved for how many new ones, on average over the runs."""

COUNTER = "int32"
"""The type of the counter."""


@dataclass(frozen=True, slots=True)
class Ring:
    """A window of `size` bytes at byte `start` of the state, which moves on by `hop` a run; `kept` bytes of it stay.

    A run writes `fresh` bytes of it: at its end the `hop` that are new, or others of which one part after the other is replaced.
    """

    start: int
    size: int
    hop: int
    kept: int
    fresh: int
    align: int = 1


@dataclass(frozen=True, slots=True)
class Rings:
    """Windows that move on together for `turns` runs; `counter` is the byte of the state where they are counted."""

    windows: tuple[Ring, ...]
    turns: int
    counter: int = 0

    @property
    def room(self) -> int:
        """Bytes that the windows need beside their own."""
        return max((w.hop for w in self.windows), default=0) * (self.turns - 1)

    @property
    def moved(self) -> int:
        """Bytes that are moved back, in one run of `turns`."""
        return sum(w.kept for w in self.windows)


def choose_rings(windows: Sequence[Ring], most_room: int | None = None) -> Rings | None:
    """Which windows move on, and how often, for the least memory that moves no more than MOST_MOVED.

    Those of one hop stay in the order in which they are given.  None where the rows that stay are no more than that anyway.  With
    `most_room` the least that is moved within so many bytes of room instead.
    """
    able = sorted((w for w in windows if w.hop % w.align == 0), key=lambda w: w.hop)
    most, of = MOST_MOVED
    new, every = sum(w.fresh for w in windows), sum(w.kept for w in windows)
    if of * every <= most * new or not able:
        return None
    if most_room is not None:
        return _within(able, every, most_room, enough=most * new)
    found = []
    for k in range(1, len(able) + 1):
        kept = sum(w.kept for w in able[:k])
        left = most * new - of * (every - kept)  # for these, when the others are moved in every run
        if left > 0:
            found.append(Rings(tuple(able[:k]), -(-of * kept // left)))
    if not found:  # those that cannot move on take more than all may
        kept, fresh = sum(w.kept for w in able), sum(w.fresh for w in able)
        found.append(Rings(tuple(able), -(-of * kept // (most * fresh))))
    best = min(found, key=lambda r: (r.room, r.turns))
    return best if best.turns > 1 else None


def tight_rings(windows: Sequence[Ring]) -> Rings | None:
    """All windows that can move on, without room to do so; None if there are none."""
    able = sorted((w for w in windows if w.hop % w.align == 0), key=lambda w: w.hop)
    return Rings(tuple(able), 1) if able else None


def packed(windows: Sequence[Ring], start: int, share: Callable[[Ring, Ring, int], bool]) -> tuple[list[Ring], int]:
    """The windows one behind another from `start` on, and the end of the last.

    `share` (one, the next, bytes from start to start): whether what is new in one may lie over what leaves the next.
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
    """The fewest bytes moved of `every`, until `enough` / MOST_MOVED[1]; None where the room is not one step of any window."""
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
