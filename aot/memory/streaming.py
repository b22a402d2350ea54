"""How little memory a graph needs when its row-local operators run row by row: the limit that cascades approach.

The *streaming bound* is the smallest possible peak of live rows when chains of row-local operators run row by row on demand,
nothing is computed twice, chains are cut at the best places, rows are packed perfectly, and the inputs are resident at the start;
scratch memory does not count.

* A chain is a run of operators in the order of execution.  External inputs are fully resident at its start, what is needed
  after it is fully resident at its end.  An operator that is not row-local is a chain of its own and runs at once.
* Inside, the rows of the last operator are requested one by one; an operator asks for the rows that its next row needs, those of
  its first operand first.  A row takes its place before the rows it is made from go, and a row goes when all of its readers are
  past it.  Rows that nobody reads are not made.
* Chains are chosen so that the largest peak is as small as it can be: the bottleneck path from the first operator to the last.

This is a bound for whole rows: a kernel that overlaps pixels inside a row, or works in place, may go below it.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import add

import numpy as np

from aot.support.dataclass import dataclass

NEVER = 1 << 40
"""Later than every step and every row."""

CHAIN_LENGTH = 400
"""Operators in one chain at most: rows are requested recursively."""

WORK = 2_000_000
"""Rows to make in all, over all chains that are looked at; then the best bound so far is the answer."""

SET_UP = 20
"""Rows of WORK that each operator of a chain counts for, besides those that it makes."""


@dataclass(frozen=True, slots=True)
class RowTensor:
    """`rows` of `row_bytes` bytes each; what has no rows is one."""

    name: str
    rows: int
    row_bytes: int

    @property
    def nbytes(self) -> int:
        return self.rows * self.row_bytes


@dataclass(frozen=True, slots=True)
class Read:
    """Row y of the result needs the `extent` rows from y * stride // repeat - before on, as far as they exist."""

    tensor: int
    extent: int = 1
    stride: int = 1
    before: int = 0
    repeat: int = 1


@dataclass(frozen=True, slots=True)
class RowOp:
    """An operator by the indices of its tensors.  One that is not row-local reads and writes whole tensors."""

    reads: tuple[Read, ...]
    writes: tuple[int, ...]
    row_local: bool = False


@dataclass(frozen=True, slots=True)
class RowGraph:
    """Operators in the order of execution; `inputs` hold values at the start, `outputs` are needed at the end."""

    tensors: tuple[RowTensor, ...]
    ops: tuple[RowOp, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def whole_tensor_bound(graph: RowGraph) -> int:
    """The liveness bound: bytes of all tensors that are alive during the busiest operator, as they are with whole tensors."""
    lives = _Lives(graph)
    return max((lives.during(k) for k in range(len(graph.ops))), default=sum(graph.tensors[t].nbytes for t in graph.inputs))


def fed_by_rows(graph: RowGraph) -> RowGraph:
    """The same graph where the rows of its inputs are delivered when they are requested, instead of being resident."""
    feeds = tuple(RowOp((), (t,), row_local=True) for t in graph.inputs)
    return RowGraph(graph.tensors, feeds + graph.ops, (), graph.outputs)


@dataclass(frozen=True, slots=True)
class RowBound:
    """The streaming bound in bytes, as far as it was searched for; it is at least `lower_bound`.

    Where these differ, chains were not looked at, for WORK or CHAIN_LENGTH.
    """

    nbytes: int
    lower_bound: int

    @property
    def optimal(self) -> bool:
        """Whether it is the bound over all chains."""
        return self.nbytes == self.lower_bound


def streaming_bound(graph: RowGraph) -> RowBound:
    """The bound; at most the liveness bound."""
    lives = _Lives(graph)
    count = len(graph.ops)
    whole = whole_tensor_bound(graph)
    best = [NEVER] * count + [whole + 1]
    best[0] = 0
    heap, done, work, is_cut = [(0, 0)], set[int](), 0, False
    known: dict[tuple[int, int], int] = {}
    while heap:
        peak, i = heapq.heappop(heap)
        if i in done or i == count:
            continue
        done.add(i)
        for j in range(i, count):
            op = graph.ops[j]
            if j > i and not (op.row_local and graph.ops[i].row_local):
                break
            if j - i >= CHAIN_LENGTH:
                is_cut = True
                break
            limit = min(best[j + 1], best[count])
            if max(peak, lives.before(i), lives.before(j + 1)) >= limit:
                continue
            if op.row_local and work < WORK:
                chain = _Chain(graph, lives, i, j)
                known[i, j] = chain.run(limit)
                found = max(peak, known[i, j])
                work += chain.made_rows + SET_UP * (j + 1 - i)
            else:
                is_cut |= op.row_local
                found = max(peak, lives.during(j)) if j == i else NEVER
            if found < best[j + 1]:
                best[j + 1] = found
                heapq.heappush(heap, (found, j + 1))
    bound = min(best[count], whole)
    return RowBound(bound, min(bound, _least(lives, known)) if is_cut else bound)


def _least(lives: _Lives, known: Mapping[tuple[int, int], int]) -> int:
    """What no way through the chains goes below, where the peaks of some are `known`, from below.

    The others need at least what is there when they start and when they end.
    """
    ops = lives.graph.ops
    count = len(ops)
    chains: list[list[int]] = [[] for _ in ops]
    for i, j in known:
        chains[j].append(i)
    least = np.full(count + 1, NEVER, np.int64)
    start = np.full(count, NEVER, np.int64)  # of a chain from an operator on, with what was before
    least[0], first = 0, 0
    for j, op in enumerate(ops):
        if not op.row_local:
            least[j + 1] = min(NEVER, max(least[j], lives.during(j)))
            first = j + 1
            continue
        start[j] = max(least[j], lives.before(j))
        peaks = np.maximum(start[first : j + 1], lives.before(j + 1))
        for i in chains[j]:
            peaks[i - first] = max(least[i], known[i, j])
        least[j + 1] = min(NEVER, peaks.min())
    return int(least[count])


class _Lives:
    """From which operator on and to which one each tensor is needed; -1 and NEVER outside of the graph."""

    def __init__(self, graph: RowGraph) -> None:
        self.graph = graph
        self.first = [NEVER] * len(graph.tensors)
        self.last = [-1] * len(graph.tensors)
        for t in graph.inputs:
            self.first[t] = -1
        for k, op in enumerate(graph.ops):
            for t in op.writes:
                self.first[t] = min(self.first[t], k)
                self.last[t] = max(self.last[t], k)
            for read in op.reads:
                self.last[read.tensor] = max(self.last[read.tensor], k)
        for t in graph.outputs:
            self.last[t] = NEVER

        steps = len(graph.ops) + 1
        during, before = [0] * (steps + 1), [0] * (steps + 1)
        for tensor, a, b in zip(graph.tensors, self.first, self.last, strict=True):
            for changes, start in ((during, max(a, 0)), (before, max(a + 1, 0))):
                end = min(b + 1, steps)
                if start < end:
                    changes[start] += tensor.nbytes
                    changes[end] -= tensor.nbytes
        self._during, self._before = list(accumulate(during)), list(accumulate(before))
        self.windows = [tuple(self._windows(op, read) for read in op.reads) if op.row_local else () for op in graph.ops]
        """For each operator and what it reads the tensor, and the first row and the end of those that each of its rows needs."""
        self.wants = [tuple(_wants(rows, graph.tensors[t].rows) for t, rows in reads) for reads in self.windows]
        """How many rows of the operator need each row of what it reads."""

    def _windows(self, op: RowOp, read: Read) -> tuple[int, list[tuple[int, int]]]:
        height, rows = (self.graph.tensors[t].rows for t in (op.writes[0], read.tensor))
        firsts = (y * read.stride // read.repeat - read.before for y in range(height))
        return read.tensor, [(max(first, 0), min(first + read.extent, rows)) for first in firsts]

    def during(self, k: int) -> int:
        """Bytes that are alive while operator k runs as a whole."""
        return self._during[k]

    def before(self, k: int) -> int:
        """Bytes that are there when operator k starts and needed by it or later."""
        return self._before[k]


def _wants(windows: Sequence[tuple[int, int]], rows: int) -> list[int]:
    """How many of the windows hold each row."""
    changes = [0] * (rows + 1)
    for first, end in windows:
        if first < end:
            changes[first] += 1
            changes[end] -= 1
    return list(accumulate(changes))[:rows]


@dataclass(frozen=True, slots=True)
class _Feed:
    """What an operator of a chain reads: `maker` is the place of the operator that makes it, -1 where none of the chain does."""

    maker: int
    windows: list[tuple[int, int]]
    wanted: list[int]
    row_bytes: int


class _Chain:
    """The rows of the operators from i to j, made on demand; operators by their place in the chain."""

    def __init__(self, graph: RowGraph, lives: _Lives, i: int, j: int) -> None:
        self.live = self.peak = lives.before(i)
        self.limit = NEVER
        self.made_rows = 0
        ops = range(i, j + 1)
        tensors = [graph.tensors[graph.ops[k].writes[0]] for k in ops]
        maker = {graph.ops[k].writes[0]: k - i for k in ops}
        touched = {t for k in ops for t, _ in lives.windows[k]} | set(maker)
        wanted = {t: [1 if lives.last[t] > j else 0] * graph.tensors[t].rows for t in touched}
        for k in ops:
            for (t, _), wants in zip(lives.windows[k], lives.wants[k], strict=True):
                wanted[t] = list(map(add, wanted[t], wants))
        self.next = [0] * len(ops)
        self.row_bytes = [t.row_bytes for t in tensors]
        self.height = [t.rows for t in tensors]
        self.wanted = [wanted[graph.ops[k].writes[0]] for k in ops]
        self.stays = [lives.last[graph.ops[k].writes[0]] > j for k in ops]
        self.feeds = [
            [_Feed(maker.get(t, -1), rows, wanted[t], graph.tensors[t].row_bytes) for t, rows in lives.windows[k]] for k in ops
        ]
        # what nobody in the chain reads goes when it starts
        for t in touched - set(maker):
            self.live -= wanted[t].count(0) * graph.tensors[t].row_bytes

    def run(self, limit: int) -> int:
        """The peak in bytes, or something >= `limit` as soon as that is certain."""
        self.limit = limit
        for k in reversed(range(len(self.next))):
            if self.stays[k]:
                while self.next[k] < self.height[k] and self.peak < limit:
                    self.make(k)
        return self.peak

    def make(self, k: int) -> None:
        """The next row of operator k, where it is wanted, with the rows that it needs."""
        following, feeds = self.next, self.feeds[k]
        y = following[k]
        if self.wanted[k][y]:
            for feed in feeds:
                maker = feed.maker
                if maker >= 0:
                    top = feed.windows[y][1]
                    while following[maker] < top and self.peak < self.limit:
                        self.make(maker)
            self.live += self.row_bytes[k]
            if self.live > self.peak:
                self.peak = self.live
            self.made_rows += 1
        following[k] = y + 1
        for feed in feeds:
            wanted = feed.wanted
            made = following[feed.maker] if feed.maker >= 0 else NEVER
            first, end = feed.windows[y]
            for row in range(first, end):
                left = wanted[row] = wanted[row] - 1
                if not left and row < made:
                    self.live -= feed.row_bytes
