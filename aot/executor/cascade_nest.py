"""The static order of a cascade: when the rows of each tensor are computed, and how many rows each window must hold.

One step of the last tensor drives everything, depth first: before a node computes its rows, its inputs compute theirs.  Each node
is driven by one reader, the one that is furthest ahead; all others find their rows further back in the window.  So every row
number is an affine function of the loop variables, and every read is at a constant offset.  Row numbers continue beyond both ends
of the image; such rows are filled instead of computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction
from typing import Any

from aot.executor.lowered import KernelCall, TensorRef
from aot.ir.op import T_OP_PATTERN, Op, OpPattern
from aot.ir.type import TensorType, Type
from aot.memory.plan import align_up
from aot.relay.expr import Call, Constant, Expr, Function, Var, call, post_order, tensor_type
from aot.support.dataclass import dataclass
from aot.support.dtype import lowest

# ---- row forms: which input rows a fused function needs for an output row, and the same function over only those rows
#
# Row-local are windows along the height (convolution, depthwise convolution, pooling), movement that keeps rows separate (pad,
# resize by an integer factor) and everything element-wise.


@dataclass(frozen=True, slots=True)
class RowPropagator:
    """Output row y reads the `extent` input rows from y * stride // repeat - before on; one of stride and repeat is 1.

    In rows outside the image all elements are `fill` (None: there are no such rows).  So are the columns outside that the window
    covers: `sides` (left, right), with the value `edge`.
    """

    extent: int = 1
    stride: int = 1
    before: int = 0
    repeat: int = 1
    fill: int | float | None = None
    sides: tuple[int, int] = (0, 0)
    edge: int | float = 0

    def window(self, rows: int) -> int:
        """Input rows needed for `rows` output rows that start at a multiple of `repeat`."""
        return rows // self.repeat if self.repeat > 1 else (rows - 1) * self.stride + self.extent

    def advance(self, rows: int) -> int:
        """Input rows between the starts of two consecutive blocks of `rows` output rows."""
        return rows * self.stride // self.repeat

    def first(self, row: int) -> int:
        """The first input row of the block that starts at output row `row`."""
        return row * self.stride // self.repeat - self.before


RowForm = tuple[RowPropagator, ...]
"""How a function reads each of its parameters."""


def row_form(func: Function) -> RowForm | None:
    """The row form of a primitive function, or None if it is not row-local.

    At most one operator may have a window, and it must read parameters only; all tensors are [1, H, W, C] with any W and C.
    """
    if not all(_is_image(e.type) for e in (*func.params, func.body)):
        return None
    propagators: dict[int, RowPropagator] = {}
    windowed: set[int] = set()
    for expr in post_order(func.body):
        if isinstance(expr, (Var, Constant)):
            continue
        if not isinstance(expr, Call) or not isinstance(expr.op, Op):
            return None
        if expr.op.name not in _WINDOWS:
            if not _is_elementwise(expr):
                return None
            continue
        rows, data = _WINDOWS[expr.op.name][0](expr), expr.args[0]
        if rows is None or not isinstance(data, Var) or id(data) in propagators or any(isinstance(a, Var) for a in expr.args[1:]):
            return None
        propagators[id(data)] = rows
        windowed.add(id(expr))
    if len(windowed) > 1 or not _windows_alone(func, propagators):
        return None
    return tuple(propagators.get(id(v), RowPropagator()) for v in func.params)


def row_variant(func: Function, form: RowForm, rows: int, wide: Sequence[bool] = ()) -> Function:
    """`func` for `rows` output rows at a time: inputs [1, window, W, C], no vertical padding.

    Inputs that are `wide` come with the columns outside (`RowPropagator.sides`), without padding.
    """
    params, widened = [], False
    for k, (v, r) in enumerate(zip(func.params, form, strict=True)):
        _, _, width, channels = v.type.shape
        if wide and wide[k]:
            width, widened = width + sum(r.sides), True
        params.append(Var(v.name, replace(v.type, shape=(1, r.window(rows), width, channels)), v.span))
    done: dict[int, Expr] = {id(old): new for old, new in zip(func.params, params, strict=True)}
    for expr in post_order(func.body):
        if isinstance(expr, Constant):
            done[id(expr)] = expr
        elif isinstance(expr, Call):
            assert isinstance(expr.op, Op)
            attrs = expr.attrs
            if expr.op.name in _WINDOWS:
                attrs = _WINDOWS[expr.op.name][1](attrs, rows)
                attrs = replace(attrs, padding=(0, 0, 0, 0)) if widened else attrs
            done[id(expr)] = call(expr.op, [done[id(a)] for a in expr.args], attrs, span=expr.span)
    return Function(tuple(params), done[id(func.body)], func.attrs)


def _is_image(type_: Type) -> bool:
    return isinstance(type_, TensorType) and len(type_.shape) == 4 and type_.shape[0] == 1 and type_.size > 0


def _is_elementwise(expr: Call) -> bool:
    """Whether row y of the result depends only on row y of the operands; constants must be the same for all rows."""
    assert isinstance(expr.op, Op)
    if T_OP_PATTERN.get(expr.op.name) > OpPattern.BROADCAST or not isinstance(expr.type, TensorType):
        return False
    shape = expr.type.shape
    for arg in expr.args:
        other = tensor_type(arg).shape
        if isinstance(arg, Constant):
            if len(other) >= 3 and other[-3] != 1:
                return False
        elif other != shape:
            return False
    return len(shape) == 4


def _windows_alone(func: Function, windows: Mapping[int, RowPropagator]) -> bool:
    """Whether every parameter that is read through a window is read in no other way."""
    reads = [id(a) for e in post_order(func.body) if isinstance(e, Call) for a in e.args]
    return all(reads.count(v) == 1 for v in windows)


# ---- windows of the operators


def _layer(expr: Call) -> RowPropagator:
    kernel = tensor_type(expr.args[1]).shape[1]
    return _window(expr, (kernel - 1) * expr.attrs.dilation[0] + 1, expr.attrs.pad_value)


def _max_pool(expr: Call) -> RowPropagator:
    return _window(expr, expr.attrs.pool_size[0], lowest(tensor_type(expr).dtype))


def _avg_pool(expr: Call) -> RowPropagator | None:
    """A mean counts only rows inside the image, so no row may be outside."""
    rows = _window(expr, expr.attrs.pool_size[0], 0)
    return replace(rows, sides=(0, 0)) if rows.fill is None else None


def _window(expr: Call, extent: int, fill: int | float) -> RowPropagator:
    top, left, bottom, right = expr.attrs.padding
    return _clean(expr, RowPropagator(extent, expr.attrs.strides[0], top, fill=fill, sides=(left, right), edge=fill), bottom)


def _pad(expr: Call) -> RowPropagator | None:
    (_, (top, bottom), _, _) = expr.attrs.pad_width
    return _clean(expr, RowPropagator(before=top, fill=expr.attrs.pad_value), bottom)


def _resize(expr: Call) -> RowPropagator | None:
    """Each input row is repeated the same number of times."""
    rows, height = expr.attrs.rows, tensor_type(expr.args[0]).shape[1]
    factor = len(rows) // height
    return RowPropagator(repeat=factor) if rows == tuple(i // factor for i in range(height * factor)) and factor else None


def _clean(expr: Call, rows: RowPropagator, after: int) -> RowPropagator:
    """`fill` only if a window really leaves the image."""
    height, out = tensor_type(expr.args[0]).shape[1], tensor_type(expr).shape[1]
    last = rows.first(out - 1) + rows.extent - 1
    return rows if rows.before > 0 or (after > 0 and last >= height) else replace(rows, fill=None)


def _flat_padding(attrs: Any, _rows: int) -> Any:
    _, left, _, right = attrs.padding
    return replace(attrs, padding=(0, left, 0, right))


def _flat_pad(attrs: Any, _rows: int) -> Any:
    n, _, width, channels = attrs.pad_width
    return replace(attrs, pad_width=(n, (0, 0), width, channels))


def _first_rows(attrs: Any, rows: int) -> Any:
    factor = attrs.rows.count(0)
    return replace(attrs, rows=tuple(i // factor for i in range(rows)))


_WINDOWS: Mapping[str, tuple[Callable[[Call], RowPropagator | None], Callable[[Any, int], Any]]] = {
    "nn.conv2d": (_layer, _flat_padding),
    "nn.depthwise_conv2d": (_layer, _flat_padding),
    "nn.max_pool2d": (_max_pool, _flat_padding),
    "nn.avg_pool2d": (_avg_pool, _flat_padding),
    "nn.pad": (_pad, _flat_pad),
    "image.resize_nearest": (_resize, _first_rows),
}
"""The rows that an operator reads, and its attributes for so many output rows without padding above and below."""


# ---- the nest


ALIGN = 4
"""Alignment of windows, in bytes."""


@dataclass(frozen=True, slots=True)
class Link:
    """An input of a node: the result of node `node`, or if that is None, rows of external tensor `external` read in place.

    `wide`: rows are read with the node's margins.
    """

    rows: RowPropagator
    node: int | None = None
    external: int = -1
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """A tensor that is computed `rows` rows at a time; `fill` is the value of everything outside the image.

    `maker`: the number of the part that computes it; None if it is a copy of an external tensor's rows.  `margins`: bytes left
    and right of each row in its window, for the columns outside.
    """

    type: TensorType
    rows: int
    links: tuple[Link, ...]
    maker: int | None = None
    fill: int | float | None = None
    margins: tuple[int, int] = (0, 0)

    @property
    def height(self) -> int:
        return self.type.shape[1]

    @property
    def row_bytes(self) -> int:
        return self.type.nbytes // self.height

    @property
    def pitch(self) -> int:
        """Bytes between two rows of the window."""
        return self.row_bytes + sum(self.margins)

    def reading(self, source: int) -> RowPropagator:
        """How the node reads the node that it drives, by the link that looks furthest ahead."""
        return max((k.rows for k in self.links if k.node == source), key=lambda r: r.first(0) + r.window(self.rows))


@dataclass(frozen=True, slots=True)
class Nest:
    """The order of `nodes` (inputs before readers, the result last), which read `externals` from outside.

    `drives[n]`: (input node, its blocks per block of n, offset): its first block starts at the first row that n reads plus the
    offset. `windows`: rows that each node keeps (the result: 0).  `lags[n][k]`: how far before the window's end the rows of link
    k start. `lead`: steps before row 0 of the result.  `guards`: (first, last) block that is computed, by its first row.
    """

    nodes: tuple[Node, ...]
    externals: tuple[TensorRef, ...]
    drives: tuple[tuple[tuple[int, int, int], ...], ...]
    windows: tuple[int, ...] = ()
    lags: tuple[tuple[int, ...], ...] = ()
    lead: int = 0
    guards: tuple[tuple[int, int], ...] = ()

    @property
    def steps(self) -> int:
        """Steps that compute rows of the result."""
        return self.nodes[-1].height // self.nodes[-1].rows

    def window_bytes(self, n: int) -> int:
        return self.windows[n] * self.nodes[n].pitch

    def placed(self) -> tuple[tuple[int, ...], int]:
        """Offsets of the windows, those that are finished first at the bottom, and the end of the last."""
        offsets, end = [0] * len(self.nodes), 0
        for n in range(len(self.nodes)):
            offsets[n] = align_up(end, ALIGN)
            if self.window_bytes(n):
                end = offsets[n] + self.window_bytes(n)
        return tuple(offsets), end

    @property
    def feeding(self) -> tuple[int, ...]:
        """The nodes that new rows pass first: from the input that is driven first to the result."""
        path = [len(self.nodes) - 1]
        while self.drives[path[0]]:
            path.insert(0, self.drives[path[0]][0][0])
        return tuple(path)

    @property
    def is_fed(self) -> bool:
        """Whether external tensor 0 is only copied, row by row, and its rows drive everything else."""
        readers = [n for n, node in enumerate(self.nodes) if any(k.node is None and k.external == 0 for k in node.links)]
        return readers == [self.feeding[0]] and self.nodes[readers[0]].maker is None

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
            start = self.nodes[n].reading(source).first(first) + offset
            for i in range(count):
                yield from self._block(source, start + i * self.nodes[source].rows)
        yield n, first


def make_nest(nodes: Sequence[Node], externals: Sequence[TensorRef]) -> Nest | None:
    """The order of the nodes, or None if their rates or blocks do not fit each other."""
    driven = _drivers(nodes)
    if driven is None:
        return None
    drives, ends, rates = driven
    nest = Nest(tuple(nodes), tuple(externals), drives)
    lags = _lags(nest)
    if lags is None:
        return None
    windows = [node.rows for node in nodes[:-1]] + [0]
    for node, row in zip(nodes, lags, strict=True):
        for link, lag in zip(node.links, row, strict=True):
            if link.node is not None:
                windows[link.node] = max(windows[link.node], lag)
    lead = max(0, *(-(-(end - rate + _top(nodes, n)) // rate) for n, (end, rate) in enumerate(zip(ends, rates, strict=True))))
    nest = replace(nest, windows=tuple(windows), lags=lags, lead=lead)
    guards = _guards(nest)
    return None if guards is None else replace(nest, guards=guards)


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
        own = nodes[-c].reading(t)
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
                log.reads.setdefault(link.external, []).append((time, link.rows.first(first) * _row_bytes(nest, link)))
        if n == last:
            log.writes.append((time, (first + node.rows) * node.row_bytes))
    return log


def _row_bytes(nest: Nest, link: Link) -> int:
    """Bytes per row of the external tensor that a link reads."""
    type_ = nest.externals[link.external].type
    return type_.nbytes // type_.shape[1]


def distances(nest: Nest) -> dict[tuple[str, str], int]:
    """(a, b) -> d: start(b) - start(a) >= d is safe, for pairs of the result, the windows and external tensors."""
    log, (offsets, total) = _run(nest), nest.placed()
    windows = [(offset, nest.window_bytes(n)) for n, offset in enumerate(offsets)]
    out_bytes = nest.nodes[-1].type.nbytes
    safe: dict[tuple[str, str], int] = {}
    for e, tensor in enumerate(nest.externals):
        size = tensor.type.nbytes
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

    @staticmethod
    def of(call: KernelCall) -> Part:
        assert call.fused is not None
        return Part(call.fused, call.inputs, call.outputs, row_form(call.fused))

    @property
    def granule(self) -> int:
        """Output rows are computed in multiples of this."""
        return max((r.repeat for r in self.form or ()), default=1)

    def at(self, rows: int, wide: Sequence[bool]) -> Function:
        """The function for `rows` output rows at a time (`row_variant`)."""
        assert self.form is not None
        return row_variant(self.func, self.form, rows, wide)


@dataclass(frozen=True, slots=True)
class StripeConfig:
    """How a part of a cascade works: at most `rows` rows at a time; `wide`: its input rows include the columns outside."""

    rows: int
    wide: bool = False


def make_stripe(parts: Sequence[Part], styles: Sequence[StripeConfig], fed: TensorRef | None = None) -> Nest | None:
    """The cascade of `parts`, in which the last part computes the result; None if there is none.

    The external tensor `fed` is not in memory: its rows arrive one by one, so they are copied even if they need no window.

    The rows that a part computes at a time divide both its tensor's height and the rows that its driver needs per block.
    """
    results = {p.outputs[0] for p in parts}
    if any(p.form is None or len(p.outputs) != 1 for p in parts):
        return None
    rows = _rows(parts, styles)
    if rows is None:
        return None
    nodes: list[Node] = []
    externals: list[TensorRef] = []
    numbers: dict[TensorRef, int] = {}
    for k, part in enumerate(parts):
        links = []
        for ref, form in zip(part.inputs, part.form or (), strict=True):
            if ref not in results and ref not in externals:
                externals.append(ref)
            if ref not in results and form.fill is None and ref is not fed:
                links.append(Link(form, external=externals.index(ref)))
                continue
            if ref not in numbers:  # an external tensor whose rows are copied
                numbers[ref] = len(nodes)
                nodes.append(Node(ref.type, 1, (Link(RowPropagator(), external=externals.index(ref)),)))
            links.append(Link(form, numbers[ref]))
        numbers[part.outputs[0]] = len(nodes)
        nodes.append(Node(part.outputs[0].type, rows[k], tuple(links), k))
    filled = _with_fills(nodes)
    return None if filled is None else make_nest(_with_margins(filled, styles), externals)


def _rows(parts: Sequence[Part], styles: Sequence[StripeConfig]) -> list[int] | None:
    """Rows at a time of each part, from the last to the first."""
    rows = [0] * len(parts)
    for k in range(len(parts) - 1, -1, -1):
        result, unit = parts[k].outputs[0], parts[k].granule
        limits = [result.type.shape[1]]
        for c in range(k + 1, len(parts)):
            reads = [r for ref, r in zip(parts[c].inputs, parts[c].form or (), strict=True) if ref is result]
            limits += [r.advance(rows[c]) for r in reads]
        if k < len(parts) - 1 and len(limits) == 1:
            return None
        fitting = [d for d in range(1, min(limits) + 1) if d % unit == 0 and not any(n % d for n in limits)]
        if not fitting:
            return None
        rows[k] = max([d for d in fitting if d <= max(styles[k].rows, unit)] or [fitting[0]])
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


def _with_margins(nodes: Sequence[Node], styles: Sequence[StripeConfig]) -> list[Node]:
    """Give the rows of a window the columns outside if its readers want and agree on them; row kernels then need no padding.

    A node that computes several rows at a time writes them without gaps, so it cannot.  Readers of one row use it without
    margins.
    """
    new = list(nodes)
    is_wide = [node.maker is not None and styles[node.maker].wide for node in nodes]
    for t, node in enumerate(nodes):
        reads = [(c, k, link) for c, other in enumerate(nodes) for k, link in enumerate(other.links) if link.node == t]
        wide = [(c, k, link) for c, k, link in reads if link.rows.sides != (0, 0)]
        values = {link.rows.edge for _, _, link in wide} | ({node.fill} if node.fill is not None else set())
        column = node.row_bytes // node.type.shape[2]
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
