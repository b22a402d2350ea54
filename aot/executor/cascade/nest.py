"""The static order of a cascade: which rows of which tensor are made when, and how many rows each window must hold.

One step of the last tensor drives everything, depth first: before a node makes its rows it has its inputs make theirs.  Each
node is driven by one reader, the one that is furthest ahead; all others find their rows further back in the window.  So every
row number is an affine function of the loop variables, and every read is at a constant offset.  Row numbers run on beyond
both ends of the image; a row out there is filled instead of computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from aot.executor.cascade.rows import RowPropagator
from aot.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Link:
    """An input of a node: the result of node `node`, or where that is None rows of external tensor `external` in place.

    `row_bytes`: of a row of the external tensor.  `wide`: rows are read with the node's margins.
    """

    rows: RowPropagator
    node: int | None = None
    external: int = -1
    row_bytes: int = 0
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """A tensor of `height` rows of `row_bytes`, made `rows` at a time; `fill` is the value of everything outside the image.

    `margins`: bytes left and right of each row in its window, for the columns outside.
    """

    name: str
    height: int
    row_bytes: int
    rows: int
    links: tuple[Link, ...]
    fill: int | float | None = None
    margins: tuple[int, int] = (0, 0)

    @property
    def pitch(self) -> int:
        """Bytes between two rows of the window."""
        return self.row_bytes + sum(self.margins)


@dataclass(frozen=True, slots=True)
class Nest:
    """The order of `nodes` (inputs before readers, the result last).

    `drives[n]`: (input node, blocks of it for each block of n, offset): its first block starts at the first row that n reads
    plus the offset.  `windows`: rows that each node keeps (the result: 0).  `lags[n][k]`: how far before the window's end
    the rows of link k start.  `lead`: steps before row 0 of the result.  `guards`: (first, last) block that is made, by its
    first row.
    """

    nodes: tuple[Node, ...]
    drives: tuple[tuple[tuple[int, int, int], ...], ...]
    windows: tuple[int, ...]
    lags: tuple[tuple[int, ...], ...]
    lead: int
    guards: tuple[tuple[int, int], ...]

    @property
    def steps(self) -> int:
        """Steps that make rows of the result."""
        return self.nodes[-1].height // self.nodes[-1].rows

    def window_bytes(self, n: int) -> int:
        return self.windows[n] * self.nodes[n].pitch

    @property
    def feeding(self) -> tuple[int, ...]:
        """The nodes that new rows pass first: from the input of inputs that is driven first to the result."""
        path = [len(self.nodes) - 1]
        while self.drives[path[0]]:
            path.insert(0, self.drives[path[0]][0][0])
        return tuple(path)

    def arrivals(self) -> tuple[int, int]:
        """First and last row of the first node of `feeding` that is made, rows outside of the image included."""
        rows = [first for n, first in self.events(-self.lead, self.steps) if n == self.feeding[0]]
        return rows[0], rows[-1]

    def events(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """(node, first row of its block) in order of execution, from step `start` to `stop`, without guards."""
        for step in range(start, stop):
            yield from self._block(len(self.nodes) - 1, step * self.nodes[-1].rows)

    def _block(self, n: int, first: int) -> Iterator[tuple[int, int]]:
        for source, count, offset in self.drives[n]:
            start = reading(self.nodes[n], source).first(first) + offset
            for i in range(count):
                yield from self._block(source, start + i * self.nodes[source].rows)
        yield n, first


def reading(node: Node, source: int) -> RowPropagator:
    """How a node reads the node that it drives (the link that looks furthest ahead)."""
    return max((k.rows for k in node.links if k.node == source), key=lambda r: r.first(0) + r.window(node.rows))


def make_nest(nodes: Sequence[Node]) -> Nest | None:
    """The order of the nodes, or None if their rates or blocks do not fit each other."""
    driven = _drivers(nodes)
    if driven is None:
        return None
    drives, ends, rates = driven
    nest = Nest(tuple(nodes), drives, (), (), 0, ())
    lags = _lags(nest)
    if lags is None:
        return None
    windows = [node.rows for node in nodes[:-1]] + [0]
    for node, row in zip(nodes, lags, strict=True):
        for link, lag in zip(node.links, row, strict=True):
            if link.node is not None:
                windows[link.node] = max(windows[link.node], lag)
    lead = max(0, *(-(-(end - rate + _top(nodes, n)) // rate) for n, (end, rate) in enumerate(zip(ends, rates, strict=True))))
    nest = Nest(tuple(nodes), drives, tuple(windows), lags, lead, ())
    guards = _guards(nest)
    return None if guards is None else Nest(tuple(nodes), drives, tuple(windows), lags, lead, guards)


def _top(nodes: Sequence[Node], n: int) -> int:
    """Rows above the image that readers want."""
    return max((k.rows.before for node in nodes for k in node.links if k.node == n), default=0)


Drives = tuple[tuple[tuple[int, int, int], ...], ...]


def _drivers(nodes: Sequence[Node]) -> tuple[Drives, list[int], list[int]] | None:
    """(drives of each node, end of its rows after step 0, rows in a step)."""
    last = len(nodes) - 1
    ends, rates = [0] * len(nodes), [0] * len(nodes)
    ends[last] = rates[last] = nodes[last].rows
    drives: list[list[tuple[int, int, int]]] = [[] for _ in nodes]
    for t in range(last - 1, -1, -1):
        wanted: list[tuple[int, Fraction, int, int]] = []
        for c in range(t + 1, len(nodes)):
            for link in nodes[c].links:
                if link.node == t:
                    size = nodes[c].rows
                    need = link.rows.first(ends[c] - size) + link.rows.window(size)
                    wanted.append((need, Fraction(ends[c], rates[c]), -c, rates[c] // size * link.rows.advance(size)))
        if not wanted or len({w[3] for w in wanted}) != 1:
            return None
        need, _, c, rate = max(wanted)
        size, rows = nodes[-c].rows, nodes[t].rows
        own = reading(nodes[-c], t)
        advance = own.advance(size)
        if advance % rows or size % own.repeat or rate < 1:
            return None
        slack = -(own.first(0) + own.window(size)) % rows
        ends[t], rates[t] = need + slack, rate
        drives[-c].append((t, advance // rows, own.window(size) + slack - advance))
    order = _reach(drives, ends, rates)
    return tuple(tuple(sorted(d, key=lambda e: (-order[e[0]], e[0]))) for d in drives), ends, rates


def _reach(drives: Sequence[Sequence[tuple[int, int, int]]], ends: Sequence[int], rates: Sequence[int]) -> list[Fraction]:
    """How many steps ahead a node, or the most advanced of those that it drives, is; inputs come before their readers."""
    found: list[Fraction] = []
    for n, own in enumerate(drives):
        found.append(max([Fraction(ends[n], rates[n]), *(found[t] for t, _, _ in own)]))
    return found


def _lags(nest: Nest) -> tuple[tuple[int, ...], ...] | None:
    """How far back each link reads, from two steps after one to warm up.

    None if that changes, or the rows are not there yet.
    """
    ends: dict[int, int] = {}
    found: dict[tuple[int, int], set[int]] = {}
    for phase, steps in enumerate(((-1, 0), (0, 2))):
        for n, first in nest.events(*steps):
            node = nest.nodes[n]
            ends[n] = first + node.rows
            for k, link in enumerate(node.links if phase else ()):
                if link.node is not None:
                    found.setdefault((n, k), set()).add(ends[link.node] - link.rows.first(first))
    rows = []
    for n, node in enumerate(nest.nodes):
        own = []
        for k, link in enumerate(node.links):
            lags = found.get((n, k), {0})
            if len(lags) != 1 or (link.node is not None and min(lags) < link.rows.window(node.rows)):
                return None
            own.append(min(lags))
        rows.append(tuple(own))
    return tuple(rows)


def _guards(nest: Nest) -> tuple[tuple[int, int], ...] | None:
    """The blocks between the first and the last that a read inside of the image needs; checks every read on the way."""
    ends: dict[int, int] = {}
    needed: list[tuple[int, int] | None] = [None] * len(nest.nodes)
    for n, first in nest.events(-nest.lead, nest.steps):
        node = nest.nodes[n]
        ends[n] = first + node.rows
        if not 0 <= first < node.height:
            continue
        for k, link in enumerate(node.links):
            if link.node is None:
                continue
            start = link.rows.first(first)
            source = nest.nodes[link.node]
            if ends.get(link.node) != start + nest.lags[n][k]:
                return None
            low = start - (start - ends[link.node]) % source.rows
            before = needed[link.node] or (low, 0)
            needed[link.node] = min(low, before[0]), ends[link.node] - source.rows
    last = nest.nodes[-1]
    needed[-1] = (0, last.height - last.rows)
    return None if None in needed else tuple(n for n in needed if n is not None)
