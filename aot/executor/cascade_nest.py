"""The static order of a cascade: when the rows of each tensor are computed, and how many rows each window must hold.

One step of the last tensor drives everything, depth first: before a node computes its rows, its inputs compute theirs.  Each node
is driven by one reader, the one that is furthest ahead; all others find their rows further back in the window.  So every row
number is an affine function of the loop variables, and every read is at a constant offset.  Row numbers continue beyond both ends
of the image; such rows are filled instead of computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction

from aot.executor.cascade_rows import RowForm, RowPropagator, divisors
from aot.executor.lowered import TensorRef
from aot.ir.type import TensorType
from aot.relay.expr import Function
from aot.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Link:
    """An input of a node: the result of node `node`, or if that is None, rows of external tensor `external` read in place.

    `row_bytes`: bytes per row of the external tensor.  `wide`: rows are read with the node's margins.
    """

    rows: RowPropagator
    node: int | None = None
    external: int = -1
    row_bytes: int = 0
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """A tensor of `height` rows of `row_bytes`, computed `rows` at a time; `fill` is the value of everything outside the image.

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

    `drives[n]`: (input node, its blocks per block of n, offset): its first block starts at the first row that n reads plus the
    offset. `windows`: rows that each node keeps (the result: 0).  `lags[n][k]`: how far before the window's end the rows of link
    k start. `lead`: steps before row 0 of the result.  `guards`: (first, last) block that is computed, by its first row.
    """

    nodes: tuple[Node, ...]
    drives: tuple[tuple[tuple[int, int, int], ...], ...]
    windows: tuple[int, ...]
    lags: tuple[tuple[int, ...], ...]
    lead: int
    guards: tuple[tuple[int, int], ...]

    @property
    def steps(self) -> int:
        """Steps that compute rows of the result."""
        return self.nodes[-1].height // self.nodes[-1].rows

    def window_bytes(self, n: int) -> int:
        return self.windows[n] * self.nodes[n].pitch

    @property
    def feeding(self) -> tuple[int, ...]:
        """The nodes that new rows pass first: from the input that is driven first to the result."""
        path = [len(self.nodes) - 1]
        while self.drives[path[0]]:
            path.insert(0, self.drives[path[0]][0][0])
        return tuple(path)

    def arrivals(self) -> tuple[int, int]:
        """First and last row that the first node of `feeding` computes, including rows outside the image."""
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
    """How a node reads the node that it drives, by the link that looks furthest ahead."""
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
    """Rows above the image that readers need."""
    return max((k.rows.before for node in nodes for k in node.links if k.node == n), default=0)


Drives = tuple[tuple[tuple[int, int, int], ...], ...]


def _drivers(nodes: Sequence[Node]) -> tuple[Drives, list[int], list[int]] | None:
    """(drives of each node, end of its rows after step 0, rows per step)."""
    last = len(nodes) - 1
    ends, rates = [0] * len(nodes), [0] * len(nodes)
    ends[last] = rates[last] = nodes[last].rows
    drives: list[list[tuple[int, int, int]]] = [[] for _ in nodes]
    for t in range(last - 1, -1, -1):
        requests: list[tuple[int, Fraction, int, int]] = []
        for c in range(t + 1, len(nodes)):
            for link in nodes[c].links:
                if link.node == t:
                    size = nodes[c].rows
                    need = link.rows.first(ends[c] - size) + link.rows.window(size)
                    requests.append((need, Fraction(ends[c], rates[c]), -c, rates[c] // size * link.rows.advance(size)))
        if not requests or len({w[3] for w in requests}) != 1:
            return None
        need, _, c, rate = max(requests)
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
    """How many steps ahead a node, or the most advanced node that it drives, is; inputs come before their readers."""
    reach: list[Fraction] = []
    for n, own in enumerate(drives):
        reach.append(max([Fraction(ends[n], rates[n]), *(reach[t] for t, _, _ in own)]))
    return reach


def _lags(nest: Nest) -> tuple[tuple[int, ...], ...] | None:
    """How far back each link reads, from two steps after one to warm up.

    None if that varies, or if the rows are not there yet.
    """
    ends: dict[int, int] = {}
    lags_of: dict[tuple[int, int], set[int]] = {}
    for phase, steps in enumerate(((-1, 0), (0, 2))):
        for n, first in nest.events(*steps):
            node = nest.nodes[n]
            ends[n] = first + node.rows
            for k, link in enumerate(node.links if phase else ()):
                if link.node is not None:
                    lags_of.setdefault((n, k), set()).add(ends[link.node] - link.rows.first(first))
    rows = []
    for n, node in enumerate(nest.nodes):
        own = []
        for k, link in enumerate(node.links):
            lags = lags_of.get((n, k), {0})
            if len(lags) != 1 or (link.node is not None and min(lags) < link.rows.window(node.rows)):
                return None
            own.append(min(lags))
        rows.append(tuple(own))
    return tuple(rows)


def _guards(nest: Nest) -> tuple[tuple[int, int], ...] | None:
    """The blocks from the first to the last that a read inside the image needs; checks every read on the way."""
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


# ---- which parts of a cascade's memory may overlap, from running its order over row numbers
#
# The row-level counterpart of `tir.analysis`: no byte of the result or of a window is written before the last read of a
# byte that it overlaps.  Within a block, everything is assumed to be written before it is read.


OUT, WINDOWS = "out", "windows"


def external_name(index: int) -> str:
    return f"external_{index}"


@dataclass(slots=True)
class _Log:
    """`windows[n]`: first and last instant; `reads[e]`: (instant, first byte); `writes`: (instant, end) of the result."""

    windows: dict[int, tuple[int, int]] = field(default_factory=dict)
    reads: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    writes: list[tuple[int, int]] = field(default_factory=list)

    def touch(self, n: int, time: int) -> None:
        first, _ = self.windows.get(n, (time, time))
        self.windows[n] = first, time

    def live_from(self, external: int, time: int) -> int | None:
        """The lowest byte of an external tensor that is read at `time` or later; None if there is none."""
        return min((start for t, start in self.reads.get(external, ()) if t >= time), default=None)


def _run(nest: Nest) -> _Log:
    log = _Log()
    last = len(nest.nodes) - 1
    for time, (n, first) in enumerate(nest.events(-nest.lead, nest.steps)):
        low, high = nest.guards[n]
        node = nest.nodes[n]
        if not low <= first <= high:
            continue
        if n != last:
            log.touch(n, time)
        if not 0 <= first < node.height:
            continue
        for link in node.links:
            if link.node is not None:
                log.touch(link.node, time)
            else:
                log.reads.setdefault(link.external, []).append((time, link.rows.first(first) * link.row_bytes))
        if n == last:
            log.writes.append((time, (first + node.rows) * node.row_bytes))
    return log


def distances(nest: Nest, externals: Sequence[int], windows: Sequence[tuple[int, int]]) -> dict[tuple[str, str], int]:
    """(a, b) -> d: start(b) - start(a) >= d is safe, for pairs of the result, the windows and external tensors.

    `externals`: bytes of each; `windows`: (offset, bytes) of each node's window in the buffer of all windows.
    """
    log = _run(nest)
    total = max((o + s for o, s in windows), default=0)
    out_bytes = nest.nodes[-1].height * nest.nodes[-1].row_bytes
    safe: dict[tuple[str, str], int] = {}
    for e, size in enumerate(externals):
        d = -size
        for time, end in log.writes:
            start = log.live_from(e, time)
            d = max(d, -size if start is None else end - start)
        safe[OUT, external_name(e)] = min(d, out_bytes)
        if total:
            safe[WINDOWS, external_name(e)] = min(total, _behind_windows(log, e, size, windows))
    if total:
        d = -total
        for n, (_, last) in log.windows.items():
            done = max((end for time, end in log.writes if time <= last), default=0)
            if done and windows[n][1]:
                d = max(d, done - windows[n][0])
        safe[OUT, WINDOWS] = min(d, out_bytes)
    return safe


def _behind_windows(log: _Log, external: int, size: int, windows: Sequence[tuple[int, int]]) -> int:
    """Distance from `windows` to `external`: no window is used before the bytes that it overlaps are dead."""
    d = -size
    for n, (first, _) in log.windows.items():
        start = log.live_from(external, first)
        if start is not None and windows[n][1]:
            d = max(d, sum(windows[n]) - start)
    return d


# ---- from fused functions to the nodes of a cascade


@dataclass(frozen=True, slots=True)
class Part:
    """A fused function in a lowered module: what it reads and writes, and its row form (None: it runs as a whole)."""

    func: Function
    inputs: tuple[TensorRef, ...]
    outputs: tuple[TensorRef, ...]
    form: RowForm | None


@dataclass(frozen=True, slots=True)
class StripePlan:
    """Parts that run row by row: `nest` over their results, and copies of external tensors' rows.

    `makers[n]`: the number of the part behind node n, or None for a copy.
    """

    nest: Nest
    externals: tuple[TensorRef, ...]
    makers: tuple[int | None, ...]
    types: tuple[TensorType, ...]


@dataclass(frozen=True, slots=True)
class StripeConfig:
    """How a part of a cascade works: at most `rows` rows at a time; `wide`: its input rows include the columns outside."""

    rows: int
    wide: bool = False


def make_stripe(parts: Sequence[Part], styles: Sequence[StripeConfig], fed: TensorRef | None = None) -> StripePlan | None:
    """The cascade of `parts`, in which the last part computes the result; None if there is none.

    The external tensor `fed` is not in memory: its rows arrive one by one, so they are copied even if they need no window.

    The rows that a part computes at a time divide both its tensor's height and the rows that its driver needs per block.
    """
    producer = {p.outputs[0]: k for k, p in enumerate(parts)}
    if any(p.form is None or len(p.outputs) != 1 for p in parts):
        return None
    rows = _rows(parts, producer, styles)
    if rows is None:
        return None
    nodes: list[Node] = []
    makers: list[int | None] = []
    types: list[TensorType] = []
    externals: list[TensorRef] = []
    copies: dict[TensorRef, int] = {}
    numbers: dict[TensorRef, int] = {}
    for k, part in enumerate(parts):
        assert part.form is not None
        links = []
        for ref, form in zip(part.inputs, part.form.inputs, strict=True):
            if ref in producer:
                links.append(Link(form, numbers[ref]))
                continue
            if ref not in externals:
                externals.append(ref)
            number = externals.index(ref)
            if form.fill is None and ref is not fed:
                links.append(Link(form, None, number, _row_bytes(ref)))
                continue
            if ref not in copies:
                copies[ref] = len(nodes)
                nodes.append(_node(ref, 1, (Link(RowPropagator(), None, number, _row_bytes(ref)),)))
                makers.append(None)
                types.append(ref.type)
            links.append(Link(form, copies[ref]))
        numbers[part.outputs[0]] = len(nodes)
        nodes.append(_node(part.outputs[0], rows[k], tuple(links)))
        makers.append(k)
        types.append(part.outputs[0].type)
    filled = _with_fills(nodes)
    nest = None if filled is None else make_nest(_with_margins(filled, types, [k is not None and styles[k].wide for k in makers]))
    return None if nest is None else StripePlan(nest, tuple(externals), tuple(makers), tuple(types))


def is_fed(stripe: StripePlan) -> bool:
    """Whether external tensor 0 is only copied, row by row, and its rows drive everything else."""
    nodes = stripe.nest.nodes
    readers = [n for n, node in enumerate(nodes) if any(k.node is None and k.external == 0 for k in node.links)]
    return readers == [stripe.nest.feeding[0]] and stripe.makers[readers[0]] is None


def _node(ref: TensorRef, rows: int, links: tuple[Link, ...]) -> Node:
    return Node(ref.name, ref.type.shape[1], _row_bytes(ref), rows, links)


def _row_bytes(ref: TensorRef) -> int:
    return ref.type.nbytes // ref.type.shape[1]


def _rows(parts: Sequence[Part], producer: Mapping[TensorRef, int], styles: Sequence[StripeConfig]) -> list[int] | None:
    """Rows at a time of each part, from the last to the first."""
    rows = [0] * len(parts)
    for k in range(len(parts) - 1, -1, -1):
        part = parts[k]
        assert part.form is not None
        granule, limits = part.form.granule, [part.outputs[0].type.shape[1]]
        for c in range(k + 1, len(parts)):
            form = parts[c].form
            assert form is not None
            reads = [r for ref, r in zip(parts[c].inputs, form.inputs, strict=True) if ref is part.outputs[0]]
            limits += [r.advance(rows[c]) for r in reads]
        if k < len(parts) - 1 and len(limits) == 1:
            return None
        fitting = [d for d in divisors(*limits) if d % granule == 0]
        if not fitting:
            return None
        rows[k] = max([d for d in fitting if d <= max(styles[k].rows, granule)] or [fitting[0]])
    return rows


def _with_fills(nodes: Sequence[Node]) -> list[Node] | None:
    """The nodes with the value of outside rows on which their readers agree (None: they do not)."""
    fills: list[set[int | float]] = [set() for _ in nodes]
    for node in nodes:
        for link in node.links:
            if link.node is not None and link.rows.fill is not None:
                fills[link.node].add(link.rows.fill)
    if any(len(f) > 1 for f in fills):
        return None
    return [replace(node, fill=next(iter(f), None)) for node, f in zip(nodes, fills, strict=True)]


def _with_margins(nodes: Sequence[Node], types: Sequence[TensorType], is_wide: Sequence[bool]) -> list[Node]:
    """Give the rows of a window the columns outside if its readers want and agree on them; row kernels then need no padding.

    A node that computes several rows at a time writes them without gaps, so it cannot.  Readers of one row use it without
    margins.
    """
    new = list(nodes)
    for t, node in enumerate(nodes):
        reads = [(c, k, link) for c, other in enumerate(nodes) for k, link in enumerate(other.links) if link.node == t]
        wide = [(c, k, link) for c, k, link in reads if link.rows.sides != (0, 0)]
        values = {link.rows.edge for _, _, link in wide} | ({node.fill} if node.fill is not None else set())
        column = node.row_bytes // types[t].shape[2]
        margins = {(link.rows.sides[0] * column, link.rows.sides[1] * column) for _, _, link in wide}
        narrow = [link.rows.window(nodes[c].rows) for c, _, link in reads if link.rows.sides == (0, 0)]
        if not all(is_wide[c] for c, _, _ in wide):
            continue
        if node.rows > 1 or len(margins) != 1 or len(values) != 1 or any(rows > 1 for rows in narrow):
            continue
        (sides,) = margins
        if node.row_bytes % 4 == 0 and (sum(sides) % 4 or sides[0] % 4):
            continue  # whole words move faster
        new[t] = replace(new[t], margins=sides, fill=values.pop())
        for c, k, link in wide:
            links = list(new[c].links)
            links[k] = replace(link, wide=True)
            new[c] = replace(new[c], links=tuple(links))
    return new
