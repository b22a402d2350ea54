"""Which rows a run on a moved window computes, and which it keeps from the run before.

A sliding tensor is asked for ranges of rows by its readers.  One that is kept computes its edges and its fresh rows, and takes
the rows between from the last run; one that is not computes whatever is requested, and so requests more of its own operands.
Inputs that slide are always kept, as only their fresh rows are given.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from itertools import combinations
from math import prod
from typing import Any

from aot.relay.analysis.cost import LAYERS, layer_cost
from aot.relay.analysis.row_map import Range, RowMap, clamped
from aot.relay.analysis.running_sum import RunningSum, running_sum
from aot.relay.analysis.sliding import Slide, Sliding
from aot.relay.expr import Call, Expr, Function, Var, is_call, operands, post_order, tensor_type, users
from aot.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Rows:
    """Of one tensor: the ranges that a run computes, and the rows that it finds in the state (None: none are kept).

    The kept rows end where the last of the computed ranges begins.
    """

    computed: tuple[Range, ...]
    kept: Range | None = None

    @property
    def count(self) -> int:
        """How many rows a run computes."""
        return sum(stop - first for first, stop in self.computed)


@dataclass(frozen=True, slots=True)
class LayerRows:
    """What a run computes of a layer: multiply-accumulates, `macs_full` on the whole window; rows, where the layer slides.

    `padded`: the layer itself has padding along time.
    """

    expr: Expr
    macs: int
    macs_full: int
    slide: Slide | None = None
    count: int = 0
    padded: bool = False


@dataclass(frozen=True, slots=True)
class SlidePlan:
    """The rows of each sliding tensor that anything asks for, by the identity of its node, operands before readers.

    `sums`: the reductions over all rows whose sums are kept, by the identity of the node.
    """

    sliding: Sliding
    rows: Mapping[int, Rows]
    nodes: tuple[Expr, ...]
    sums: Mapping[int, RunningSum] = field(default_factory=dict)

    @property
    def kept(self) -> list[Expr]:
        """The tensors that have a state."""
        return [e for e in self.nodes if id(e) in self.rows and self.rows[id(e)].kept is not None]

    def asked(self, expr: Expr) -> list[Range]:
        """The ranges of a sliding tensor's rows that a run reads."""
        found: list[Range] = []
        rows = self.sliding.table[id(expr)].rows
        for reader in self.nodes:
            slide = self.sliding.of(reader)
            if slide is None and any(o is expr for o in operands(reader)):
                found.append((0, rows))
            elif slide is not None and id(reader) in self.rows:
                maps = [m for a, m in _links(reader, slide) if a is expr]
                found += [clamped(m.reads(p), rows) for m in maps for p in self.rows[id(reader)].computed]
        return found

    def state_bytes(self, expr: Expr) -> int:
        """The bytes of a tensor's kept rows."""
        kept = self.rows[id(expr)].kept
        return 0 if kept is None else (kept[1] - kept[0]) * _row_bytes(expr, self.sliding.table[id(expr)])

    @property
    def total_bytes(self) -> int:
        """The bytes of all that is kept, rows and sums."""
        return sum(map(self.state_bytes, self.kept)) + sum(s.nbytes for s in self.sums.values())

    def macs(self) -> int:
        """Multiply-accumulates of a run."""
        return sum(round(_macs(e) * self.share(e)) for e in self.nodes)

    @property
    def macs_full(self) -> int:
        """Those of a run on the whole window."""
        return sum(_macs(e) for e in self.nodes)

    def layers(self) -> list[LayerRows]:
        """The layers with weights, in their order."""
        return [self._layer(e) for e in self.nodes if _macs(e)]

    def _layer(self, expr: Expr) -> LayerRows:
        slide = self.sliding.of(expr)
        if slide is None:
            return LayerRows(expr, _macs(expr), _macs(expr))
        count = self.rows[id(expr)].count if id(expr) in self.rows else 0
        padded = any(
            m.reads((0, slide.rows)) != clamped(m.reads((0, slide.rows)), self.sliding.table[id(a)].rows)
            for a, m in _links(expr, slide)
        )
        return LayerRows(expr, round(_macs(expr) * self.share(expr)), _macs(expr), slide, count, padded=padded)

    @property
    def gains(self) -> bool:
        """Whether a run computes less than one on the whole window, whatever that is made of."""
        full = sum(_work(e) for e in self.nodes)
        return sum(_work(e) * self.share(e) for e in self.nodes) < full

    def work(self) -> float:
        """What a run costs, in about the work of a multiply-accumulate: sums, other elements, and bytes that are moved."""
        total = 0.0
        for expr in self.nodes:
            total += _work(expr) * self.share(expr)
            rows = self.rows.get(id(expr))
            if rows is not None and rows.kept is not None:
                total += _BYTE * (self.state_bytes(expr) + rows.count * _row_bytes(expr, self.sliding.table[id(expr)]))
            if id(expr) in self.sums:
                total += 2 * self.sums[id(expr)].numbers
        return total

    def share(self, expr: Expr) -> float:
        """The part of a tensor's rows that a run computes."""
        slide = self.sliding.of(expr)
        if slide is None:
            return self.sums[id(expr)].share if id(expr) in self.sums else 1.0
        return self.rows[id(expr)].count / slide.rows if id(expr) in self.rows else 0.0


EXACT = 9
"""So many tensors are kept or not in all ways; each way takes about a millisecond."""

_BYTE = 0.5
_MOVEMENT = frozenset({"reshape", "strided_slice", "concatenate", "transpose", "nn.pad"})


def slide_plan(main: Function, sliding: Sliding) -> SlidePlan:
    """The plan with the least work: all candidates are kept, then each is given up whose rows are cheaper to compute again."""
    nodes = tuple(post_order(main.body))
    keep = {id(e) for e in nodes if _is_candidate(e, sliding, users(main))}
    best = _planned(main, nodes, sliding, keep)
    for expr in nodes:
        if id(expr) in keep and not isinstance(expr, Var) and best.rows.get(id(expr), Rows(())).kept is not None:
            trial = _planned(main, nodes, sliding, keep - {id(expr)})
            if trial.work() <= best.work():
                keep, best = keep - {id(expr)}, trial
    return best


@dataclass(frozen=True, slots=True)
class SlideFront:
    """`plans` that none of those that were tried beats both in the bytes that are kept and in work, the least work first.

    `tried`: how many of the `ways` to keep some of the tensors that the plan of the least work keeps beside the inputs.
    """

    plans: tuple[SlidePlan, ...]
    tried: int
    ways: int

    @property
    def optimal(self) -> bool:
        """Whether no way beats one of the plans."""
        return self.tried == self.ways


def slide_front(main: Function, sliding: Sliding) -> SlideFront:
    """The plans worth having, among the ways to keep what `slide_plan` keeps, or a part of it.

    Exact for up to EXACT tensors beside the inputs; of more, one after the other is given up that costs the least for a byte.
    """
    best = slide_plan(main, sliding)
    inputs = {id(e) for e in best.nodes if isinstance(e, Var) and sliding.of(e) is not None}
    given = [id(e) for e in best.kept if not isinstance(e, Var)]

    def planned(keep: Collection[int]) -> SlidePlan:
        return _planned(main, best.nodes, sliding, inputs | set(keep))

    if len(given) <= EXACT:
        plans = [planned(keep) for n in range(len(given)) for keep in combinations(given, n)]
        tried = len(plans) + 1
    else:
        plans, keep, tried = [], given, 1
        while keep:
            trials = {k: planned([other for other in keep if other != k]) for k in keep}
            gone = min(keep, key=lambda k: (trials[k].work(), trials[k].total_bytes))
            keep = [k for k in keep if k != gone]
            tried += len(trials)
            plans.append(trials[gone])
    front: list[SlidePlan] = []
    for plan in sorted([best, *(p for p in plans if p.gains)], key=lambda p: (p.work(), p.total_bytes)):
        if not front or plan.total_bytes < front[-1].total_bytes:
            front.append(plan)
    return SlideFront(tuple(front), tried, 1 << len(given))


def _is_candidate(expr: Expr, sliding: Sliding, readers: Mapping[int, Sequence[Expr]]) -> bool:
    """Inputs, and what is not just read row by row by one reader."""
    if sliding.of(expr) is None:
        return False
    own = readers.get(id(expr), ())
    if isinstance(expr, Var) or len(own) != 1:
        return True
    slide = sliding.of(own[0])
    return slide is None or any(a is expr and m != RowMap() for a, m in _links(own[0], slide))


def _links(expr: Expr, slide: Slide) -> list[tuple[Expr, RowMap]]:
    """The operands of a sliding tensor that slide, with how it reads them."""
    return [] if slide.form is None else [(a, m) for a, m in zip(operands(expr), slide.form.maps, strict=True) if m is not None]


def _planned(main: Function, nodes: Sequence[Expr], sliding: Sliding, keep: Collection[int]) -> SlidePlan:
    asked: dict[int, list[Range]] = {}
    found: dict[int, Rows] = {}
    if (slide := sliding.of(main.body)) is not None:
        asked[id(main.body)] = [(0, slide.rows)]
    for expr in reversed(nodes):
        slide = sliding.of(expr)
        if slide is None:
            for operand in operands(expr):
                if (other := sliding.of(operand)) is not None:
                    asked.setdefault(id(operand), []).append((0, other.rows))
            continue
        if id(expr) not in asked:
            continue
        found[id(expr)] = rows = _rows(slide, asked[id(expr)], kept=id(expr) in keep)
        for operand, row_map in _links(expr, slide):
            for part in rows.computed:
                first, stop = clamped(row_map.reads(part), sliding.table[id(operand)].rows)
                if first < stop:
                    asked.setdefault(id(operand), []).append((first, stop))
    sums = {id(e): s for e in nodes if (s := running_sum(e, sliding)) is not None and _keeps(found[id(s.data)], s)}
    return SlidePlan(sliding, found, tuple(nodes), sums)


def _keeps(rows: Rows, total: RunningSum) -> bool:
    """Whether the kept rows include the evicted ones."""
    return rows.kept is not None and rows.kept[0] <= total.slide.lo


def _rows(slide: Slide, asked: Sequence[Range], *, kept: bool) -> Rows:
    inner = [max(a, slide.lo) for a, b in asked if max(a, slide.lo) < min(b, slide.hi)]
    first, (fresh, _) = min(inner, default=slide.hi), slide.fresh
    if not kept or first >= fresh:
        return Rows(_merged(asked))
    top = [(a, min(b, slide.lo)) for a, b in asked if a < slide.lo]
    return Rows((*_merged(top), (fresh, max(slide.hi, *(b for _, b in asked)))), (first, fresh))


def _merged(ranges: Sequence[Range]) -> tuple[Range, ...]:
    """The same rows in ranges that neither meet nor touch, ascending."""
    merged: list[Range] = []
    for first, stop in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(stop, merged[-1][1])
        else:
            merged.append((first, stop))
    return tuple(merged)


def _row_bytes(expr: Expr, slide: Slide) -> int:
    return tensor_type(expr).nbytes // slide.rows


def _macs(expr: Expr) -> int:
    is_layer = isinstance(expr, Call) and getattr(expr.op, "name", "") in LAYERS
    return layer_cost(expr).macs if isinstance(expr, Call) and is_layer else 0


def _work(expr: Expr) -> float:
    if not isinstance(expr, Call) or not hasattr(expr.type, "size"):
        return 0.0
    if macs := _macs(expr):
        return macs
    if is_call(expr, "reshape"):
        return 0.0
    size = tensor_type(expr).size
    if getattr(expr.op, "name", "") in _MOVEMENT:
        return _BYTE * tensor_type(expr).nbytes
    return float(size * _STEPS.get(getattr(expr.op, "name", ""), _pooled)(expr.attrs))


def _pooled(attrs: Any) -> int:
    return prod(getattr(attrs, "pool_size", (1,)))


_STEPS: Mapping[str, Callable[[Any], int]] = {
    "signal.spectrogram": lambda attrs: 4 * attrs.length.bit_length(),
    "signal.mfcc": lambda attrs: attrs.channels,
}
"""About the multiplications of one element, by the attributes: a transform's levels, a cosine transform's sum."""
