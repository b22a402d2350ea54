"""From fused groups to the nodes of a cascade."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from aot.executor.cascade.nest import Link, Nest, Node, make_nest
from aot.executor.cascade.rows import RowForm, RowPropagator, divisors
from aot.executor.lowered import TensorRef
from aot.ir.type import TensorType
from aot.relay.expr import Function
from aot.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """A fused group in a lowered module: what it reads and writes, and its row form (None: it runs as a whole)."""

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
    """How a part of a cascade works: at most `rows` rows at a time; `wide`: its input rows have the columns outside."""

    rows: int
    wide: bool = False


def make_chain(parts: Sequence[Part], styles: Sequence[StripeConfig], fed: TensorRef | None = None) -> StripePlan | None:
    """The cascade of `parts`, the last of which makes the result (None: there is none).

    The external tensor `fed` is not in memory: its rows come one by one, so they are copied even where they need no window.

    A part makes a common divisor of its tensor's height and of the rows that its driver wants for a block.
    """
    made = {p.outputs[0]: k for k, p in enumerate(parts)}
    if any(p.form is None or len(p.outputs) != 1 for p in parts):
        return None
    rows = _rows(parts, made, styles)
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
            if ref in made:
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


def is_fed(chain: StripePlan) -> bool:
    """Whether external tensor 0 is only copied, row by row, and its rows drive all the rest."""
    nodes = chain.nest.nodes
    readers = [n for n, node in enumerate(nodes) if any(k.node is None and k.external == 0 for k in node.links)]
    return readers == [chain.nest.feeding[0]] and chain.makers[readers[0]] is None


def _node(ref: TensorRef, rows: int, links: tuple[Link, ...]) -> Node:
    return Node(ref.name, ref.type.shape[1], _row_bytes(ref), rows, links)


def _row_bytes(ref: TensorRef) -> int:
    return ref.type.nbytes // ref.type.shape[1]


def _rows(parts: Sequence[Part], made: Mapping[TensorRef, int], styles: Sequence[StripeConfig]) -> list[int] | None:
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
    """The nodes with the value of rows outside that their readers agree on (None: they do not)."""
    fills: list[set[int | float]] = [set() for _ in nodes]
    for node in nodes:
        for link in node.links:
            if link.node is not None and link.rows.fill is not None:
                fills[link.node].add(link.rows.fill)
    if any(len(f) > 1 for f in fills):
        return None
    return [replace(node, fill=next(iter(f), None)) for node, f in zip(nodes, fills, strict=True)]


def _with_margins(nodes: Sequence[Node], types: Sequence[TensorType], wanted: Sequence[bool]) -> list[Node]:
    """Where the readers of a window want and agree on the columns outside, its rows have them; row kernels then need no padding.

    A node that makes several rows at a time writes them without gaps, so it cannot.  Readers of one row take it without margins.
    """
    new = list(nodes)
    for t, node in enumerate(nodes):
        reads = [(c, k, link) for c, other in enumerate(nodes) for k, link in enumerate(other.links) if link.node == t]
        wide = [(c, k, link) for c, k, link in reads if link.rows.sides != (0, 0)]
        values = {link.rows.edge for _, _, link in wide} | ({node.fill} if node.fill is not None else set())
        column = node.row_bytes // types[t].shape[2]
        margins = {(link.rows.sides[0] * column, link.rows.sides[1] * column) for _, _, link in wide}
        narrow = [link.rows.window(nodes[c].rows) for c, _, link in reads if link.rows.sides == (0, 0)]
        if not all(wanted[c] for c, _, _ in wide):
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
