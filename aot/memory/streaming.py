"""How little memory a graph needs if its row-local operators run row by row: the limit that cascades approach.

The *streaming bound* is the smallest possible peak of live rows if chains of row-local operators run row by row on demand,
nothing is computed twice, chains are cut at the best places, rows are packed perfectly, and the inputs are resident at the start.
Scratch memory does not count.

* A chain is a run of operators in the order of execution.  External inputs are fully resident when it starts; everything needed
  later is fully resident when it ends.  An operator that is not row-local is a chain of its own and runs at once.
* Inside a chain, the rows of the last operator are requested one by one.  An operator requests the rows that its next row needs,
  starting with its first operand.  A row gets its memory before the rows that it is computed from are freed; a row is freed once
  all its readers are past it.  Rows that nobody reads are not computed.
* Chains are chosen to minimise the largest peak: the bottleneck path from the first operator to the last.

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


@dataclass(frozen=True, slots=True)
class RowTensor:
    """`rows` of `row_bytes` bytes each; a tensor without rows counts as one row."""

    rows: int
    row_bytes: int

    @property
    def nbytes(self) -> int:
        return self.rows * self.row_bytes


@dataclass(frozen=True, slots=True)
class Read:
    """Row y of the result needs `extent` rows from y * stride // repeat - before on, clipped to those that exist."""

    tensor: int
    extent: int = 1
    stride: int = 1
    before: int = 0
    repeat: int = 1


@dataclass(frozen=True, slots=True)
class RowOp:
    """An operator, by the indices of its tensors.  An operator that is not row-local reads and writes whole tensors."""

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
    """The liveness bound: bytes of all tensors that are live during the busiest operator."""
    lives = _Lives(graph)
    return max((lives.during(k) for k in range(len(graph.ops))), default=sum(graph.tensors[t].nbytes for t in graph.inputs))


def fed_by_rows(graph: RowGraph) -> RowGraph:
    """The same graph with inputs whose rows are delivered on request instead of being resident."""
    feeds = tuple(RowOp((), (t,), row_local=True) for t in graph.inputs)
    return RowGraph(graph.tensors, feeds + graph.ops, (), graph.outputs)


@dataclass(frozen=True, slots=True)
class RowBound:
    """The streaming bound in bytes, as far as the search went, and a lower bound on it.

    If they differ, WORK or CHAIN_LENGTH kept some chains from being tried.
    """

    nbytes: int
    lower_bound: int

    @property
    def optimal(self) -> bool:
        """Whether this is the bound over all chains."""
        return self.nbytes == self.lower_bound


CHAIN_LENGTH = 400
"""Most operators in one chain: rows are requested recursively."""

WORK = 2_000_000
"""Rows to compute in total, over all chains tried; after that the best bound so far is the answer."""

SET_UP = 20
"""What each operator of a chain adds to the count of WORK, besides the rows that it computes."""


def streaming_bound(graph: RowGraph) -> RowBound:
    """Return the streaming bound; it is at most the liveness bound."""
    lives = _Lives(graph)
    count = len(graph.ops)
    whole = whole_tensor_bound(graph)
    best = [NEVER] * count + [whole + 1]
    best[0] = 0
    heap, done, work, is_cut = [(0, 0)], set[int](), 0, False
    peaks: dict[tuple[int, int], int] = {}
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
                peaks[i, j] = chain.run(limit)
                reached = max(peak, peaks[i, j])
                work += chain.made_rows + SET_UP * (j + 1 - i)
            else:
                is_cut |= op.row_local
                reached = max(peak, lives.during(j)) if j == i else NEVER
            if reached < best[j + 1]:
                best[j + 1] = reached
                heapq.heappush(heap, (reached, j + 1))
    bound = min(best[count], whole)
    return RowBound(bound, min(bound, _least(lives, peaks)) if is_cut else bound)


def _least(lives: _Lives, peaks_of: Mapping[tuple[int, int], int]) -> int:
    """Return a lower bound on every path through the chains, given lower bounds on the peaks of some of them (`peaks_of`).

    The other chains need at least the bytes that are live when they start and when they end.
    """
    ops = lives.graph.ops
    count = len(ops)
    chains: list[list[int]] = [[] for _ in ops]
    for i, j in peaks_of:
        chains[j].append(i)
    least = np.full(count + 1, NEVER, np.int64)
    start = np.full(count, NEVER, np.int64)  # of a chain that starts at this operator
    least[0], first = 0, 0
    for j, op in enumerate(ops):
        if not op.row_local:
            least[j + 1] = min(NEVER, max(least[j], lives.during(j)))
            first = j + 1
            continue
        start[j] = max(least[j], lives.before(j))
        peaks = np.maximum(start[first : j + 1], lives.before(j + 1))
        for i in chains[j]:
            peaks[i - first] = max(least[i], peaks_of[i, j])
        least[j + 1] = min(NEVER, peaks.min())
    return int(least[count])


class _Lives:
    """The first and last operator that need each tensor; -1 and NEVER outside the graph."""

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
        """Per operator and operand: the tensor and, for each row of the operator, the first row that it needs and their end."""
        self.wants = [tuple(_wants(rows, graph.tensors[t].rows) for t, rows in reads) for reads in self.windows]
        """How many rows of the operator need each row of its operand."""

    def _windows(self, op: RowOp, read: Read) -> tuple[int, list[tuple[int, int]]]:
        height, rows = (self.graph.tensors[t].rows for t in (op.writes[0], read.tensor))
        firsts = (y * read.stride // read.repeat - read.before for y in range(height))
        return read.tensor, [(max(first, 0), min(first + read.extent, rows)) for first in firsts]

    def during(self, k: int) -> int:
        """Bytes that are live while operator k runs as a whole."""
        return self._during[k]

    def before(self, k: int) -> int:
        """Bytes that are live when operator k starts and that it or a later operator needs."""
        return self._before[k]


def _wants(windows: Sequence[tuple[int, int]], rows: int) -> list[int]:
    """How many of the windows contain each row."""
    changes = [0] * (rows + 1)
    for first, end in windows:
        if first < end:
            changes[first] += 1
            changes[end] -= 1
    return list(accumulate(changes))[:rows]


@dataclass(frozen=True, slots=True)
class _Feed:
    """An operand in a chain: `maker` is the place in the chain of the operator that computes it, -1 if none does."""

    maker: int
    windows: list[tuple[int, int]]
    pending: list[int]
    row_bytes: int


class _Chain:
    """The rows of the operators from i to j, computed on demand; operators are numbered by their place in the chain."""

    def __init__(self, graph: RowGraph, lives: _Lives, i: int, j: int) -> None:
        self.live = self.peak = lives.before(i)
        self.limit = NEVER
        self.made_rows = 0
        ops = range(i, j + 1)
        tensors = [graph.tensors[graph.ops[k].writes[0]] for k in ops]
        maker = {graph.ops[k].writes[0]: k - i for k in ops}
        touched = {t for k in ops for t, _ in lives.windows[k]} | set(maker)
        pending = {t: [1 if lives.last[t] > j else 0] * graph.tensors[t].rows for t in touched}
        for k in ops:
            for (t, _), wants in zip(lives.windows[k], lives.wants[k], strict=True):
                pending[t] = list(map(add, pending[t], wants))
        self.next = [0] * len(ops)
        self.row_bytes = [t.row_bytes for t in tensors]
        self.height = [t.rows for t in tensors]
        self.pending = [pending[graph.ops[k].writes[0]] for k in ops]
        self.stays = [lives.last[graph.ops[k].writes[0]] > j for k in ops]
        self.feeds = [
            [_Feed(maker.get(t, -1), rows, pending[t], graph.tensors[t].row_bytes) for t, rows in lives.windows[k]] for k in ops
        ]
        # rows that nobody in the chain reads are freed when it starts
        for t in touched - set(maker):
            self.live -= pending[t].count(0) * graph.tensors[t].row_bytes

    def run(self, limit: int) -> int:
        """Return the peak in bytes, or something >= `limit` as soon as that is certain."""
        self.limit = limit
        for k in reversed(range(len(self.next))):
            if self.stays[k]:
                while self.next[k] < self.height[k] and self.peak < limit:
                    self.make(k)
        return self.peak

    def make(self, k: int) -> None:
        """Compute the next row of operator k, if it is needed, with the rows that it reads."""
        following, feeds = self.next, self.feeds[k]
        y = following[k]
        if self.pending[k][y]:
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
            pending = feed.pending
            computed = following[feed.maker] if feed.maker >= 0 else NEVER
            first, end = feed.windows[y]
            for row in range(first, end):
                left = pending[row] = pending[row] - 1
                if not left and row < computed:
                    self.live -= feed.row_bytes
