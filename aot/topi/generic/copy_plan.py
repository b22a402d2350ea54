"""Where movement of data takes each element from, as a few loop nests.

Nothing here knows an operator: the group is run on the numbers of the elements instead of their values, and the nests are read
off the result.  A code is an element's number, with the number of its source (from 1) above it; codes around 0 are plain values
(what a pad fills with).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from aot.support.dataclass import dataclass

Codes = npt.NDArray[np.int64]

SOURCE_BITS = 40
SOURCE = 1 << SOURCE_BITS
HALF = SOURCE >> 1

MAX_RUNS = 1 << 17
MAX_NESTS = 12


@dataclass(frozen=True, slots=True)
class Axis:
    """A loop: how often, and by how many elements it moves on in the result and in the source."""

    count: int
    out: int
    source: int


@dataclass(frozen=True, slots=True)
class Nest:
    """out[out + sum i*axis.out] = source[start + sum i*axis.source], outermost axis first; or all become `fill` (source 0)."""

    source: int
    out: int
    start: int
    axes: tuple[Axis, ...]
    fill: int = 0

    @property
    def inner(self) -> Axis:
        return self.axes[-1]

    @property
    def size(self) -> int:
        size = 1
        for axis in self.axes:
            size *= axis.count
        return size


def codes_of(source: int, shape: tuple[int, ...]) -> Codes:
    """The elements of a whole source, by number."""
    return (np.arange(int(np.prod(shape)), dtype=np.int64) + source * SOURCE).reshape(shape)


def source_numbers(codes: Codes) -> Codes:
    """Which source each code belongs to; 0 for plain values."""
    return (codes + HALF) >> SOURCE_BITS


def find_nests(codes: Codes) -> list[Nest] | None:
    """Nests that together move every element once; None if there is too little order in it."""
    flat = codes.reshape(-1)
    sources = source_numbers(flat)
    nests: list[Nest] = []
    for source in np.unique(sources):
        if source:
            found = _nests(int(source), np.flatnonzero(sources == source), flat, fill=None)
            if found is None:
                return None
            nests += found
    for value in np.unique(flat[sources == 0]):
        found = _nests(0, np.flatnonzero(flat == value), flat, fill=int(value))
        if found is None:
            return None
        nests += found
    return nests if len(nests) <= MAX_NESTS else None


_Item = tuple[int, int, tuple[Axis, ...]]
"""(first element of the result, of the source, axes)"""


def _nests(source: int, out: Codes, flat: Codes, *, fill: int | None) -> list[Nest] | None:
    """The nests of one source.

    Runs and rows of runs as long as possible are not always best: where an image is enlarged, the second half of a doubled pixel
    and the first half of the next one are a run.  So all lengths are also cut to their common divisor, and the shorter result is
    taken.
    """
    taken = out if fill is not None else flat[out] - source * SOURCE
    breaks = np.flatnonzero((np.diff(out) != 1) | (np.diff(taken) != 1)) + 1
    starts = np.concatenate([[0], breaks])
    lengths = np.diff(np.concatenate([starts, [out.size]]))
    common = int(np.gcd.reduce(lengths))
    if starts.size > MAX_RUNS:
        return None
    found = _loops(_runs(out, taken, starts, lengths), cut=False)
    if len(found) > 1 and out.size // common <= MAX_RUNS:
        starts = np.arange(0, out.size, common)
        found = min(found, _loops(_runs(out, taken, starts, np.full(starts.size, common)), cut=True), key=len)
    return [Nest(source, o, 0 if fill is not None else s, _tidy(axes), fill or 0) for o, s, axes in found]


def _runs(out: Codes, taken: Codes, starts: Codes, lengths: Codes) -> list[_Item]:
    return [(int(out[s]), int(taken[s]), (Axis(int(n), 1, 1),)) for s, n in zip(starts, lengths, strict=True)]


def _loops(items: list[_Item], *, cut: bool) -> list[_Item]:
    """Neighbours of one form at equal distances become one item with one more axis, again and again."""
    while True:
        rows = list(_rows(items))
        if len(rows) == len(items):
            return items
        common = math.gcd(*(end - start for start, end in rows)) if cut else 0
        if common > 1:
            rows = [(i, i + common) for start, end in rows for i in range(start, end, common)]
        items = [_joined(items, start, end) for start, end in rows]


def _rows(items: list[_Item]) -> Iterator[tuple[int, int]]:
    """[start, end) of neighbours of one form at equal distances, from left to right."""
    i = 0
    while i < len(items):
        step = _step(items, i)
        end = i + 1
        while step is not None and _step(items, end - 1) == step:
            end += 1
        after = _step(items, end - 1) if end - i == 2 else None
        if after is not None and after == _step(items, end):
            end = i + 1  # the second one belongs to a longer row, this one stands alone
        yield i, end
        i = end


def _joined(items: list[_Item], start: int, end: int) -> _Item:
    out, source, axes = items[start]
    step = _step(items, start)
    return (out, source, (Axis(end - start, *step), *axes)) if end - start > 1 and step is not None else items[start]


def _step(items: list[_Item], i: int) -> tuple[int, int] | None:
    """The distance from item i to the next one, if both have one form."""
    if i + 1 >= len(items) or items[i][2] != items[i + 1][2]:
        return None
    return items[i + 1][0] - items[i][0], items[i + 1][1] - items[i][1]


def _tidy(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """Without axes of one step; an axis that continues where the one inside it ends is merged with it."""
    out: list[Axis] = []
    for axis in reversed([a for a in axes if a.count > 1] or [axes[-1]]):
        if out and axis.out == out[0].count * out[0].out and axis.source == out[0].count * out[0].source:
            out[0] = Axis(axis.count * out[0].count, out[0].out, out[0].source)
        else:
            out.insert(0, axis)
    return tuple(out)
