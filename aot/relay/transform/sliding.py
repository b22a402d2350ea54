"""Which rows of each tensor are already known when a network runs again on a window that has advanced by some rows.

Contract.  The inputs slide: row r of an input in this run is its row r + hop of the last run, for r < rows - hop.  Each tensor
in the result has its rows along `axis`, and for all r and r' in [lo, hi) with r' = r + shift, row r of this run has exactly the
bytes of row r' of the last run.  Rows before lo and from hi on (the edges) depend on padding, directly or indirectly; every run
has to compute them again.  So of the rows in [lo, hi), only the last `shift` are new.

A tensor is not in the result if its operator is not local in rows (`row_map`), if operands move by different numbers of rows,
if the shift is not a multiple of the stride, or if padding affects every row; `reasons` says which.  Tensors computed from
such a tensor are not in the result either.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from itertools import combinations
from math import gcd, prod
from typing import Any

from aot.ir.op import T_OP_PATTERN, OpPattern
from aot.ir.type import TensorType
from aot.relay.analysis import LAYERS, layer_cost
from aot.relay.expr import Call, Constant, Expr, Function, Var, again, is_call, operands, post_order, tensor_type, users
from aot.relay.state import input_vars
from aot.support.dataclass import dataclass
from aot.support.dtype import bits

Range = tuple[int, int]
"""Rows from the first number up to, but not including, the second."""


@dataclass(frozen=True, slots=True)
class RowMap:
    """Row r of the result reads `extent` rows, starting at r * stride - before."""

    extent: int = 1
    stride: int = 1
    before: int = 0

    def reads(self, rows: Range) -> Range:
        """The rows that a range of the result reads, including rows outside the operand."""
        return rows[0] * self.stride - self.before, (rows[1] - 1) * self.stride - self.before + self.extent


@dataclass(frozen=True, slots=True)
class RowForm:
    """The axis of the result's rows, and a RowMap for each operand (None for a constant, which has no rows)."""

    axis: int
    maps: tuple[RowMap | None, ...]


class NotLocalError(ValueError):
    """Why an operator is not local in rows, as words to follow its name; a hop `factor` times as large would help (1: none)."""

    def __init__(self, message: str, factor: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.factor = factor


Axes = Sequence[int | None]
"""The axis of each operand's rows; None if it has no rows."""

Rule = Callable[[Call, Axes], RowForm]


def row_form(expr: Call, axes: Axes) -> RowForm:
    """How `expr` reads rows; at least one operand has rows.  NotLocalError if a result row needs rows that are not near it."""
    if not expr.name or not isinstance(expr.type, TensorType):
        raise NotLocalError("has several results")
    for arg, axis in zip(expr.args, axes, strict=True):
        if axis is None and not isinstance(arg, Constant):
            raise NotLocalError("also reads what does not slide")
    rule = _RULES.get(expr.name)
    if rule is None and T_OP_PATTERN.get(expr.name) <= OpPattern.BROADCAST and expr.name not in _SHAPED:
        rule = _elementwise
    if rule is None:
        raise NotLocalError("reads all rows at once")
    return rule(expr, axes)


def over_rows(expr: Call, form: RowForm, rows: Range, args: Sequence[Expr]) -> Call:
    """`expr` for a range of its rows; `args` are the operands' existing rows that the range reads."""
    change = _ATTRS.get(expr.name)
    return again(expr, args, None if change is None else change(expr, form, rows))


def clamped(rows: Range, size: int) -> Range:
    """The rows of a range that exist in an operand of `size` rows."""
    return min(max(rows[0], 0), size), min(max(rows[1], 0), size)


def _outside(expr: Call, form: RowForm, rows: Range) -> tuple[int, int]:
    """How many of the rows that a range reads are before the first row of operand 0, and how many after its last row."""
    (row_map, *_), axis = form.maps, form.axis
    assert row_map is not None
    first, stop = row_map.reads(rows)
    return max(0, -first), max(0, stop - tensor_type(expr.args[0]).shape[axis])


# ---- element-wise operators

_SHAPED = frozenset({"broadcast_to", "tile", "full", "qnn.dynamic_params", "qnn.dynamic_quantize", "qnn.hybrid_output"})
"""Element-wise operators whose attributes contain the shape, or that read whole tensors."""


def _elementwise(expr: Call, axes: Axes) -> RowForm:
    axis, out = _common_axis(axes), tensor_type(expr).shape
    for arg, own in zip(expr.args, axes, strict=True):
        shape = tensor_type(arg).shape
        if own is not None and (len(shape) != len(out) or shape[axis] != out[axis]):
            raise NotLocalError("stretches its rows")
        at = axis - (len(out) - len(shape))
        if own is None and at >= 0 and shape[at] != 1:
            raise NotLocalError("has a constant that differs from row to row")
    values = (getattr(expr.attrs, name) for name in getattr(type(expr.attrs), "__dataclass_fields__", ()))
    has_lists = any(isinstance(v, tuple) and len(v) > 1 for v in values)
    if (axis == len(out) - 1 or hasattr(expr.attrs, "axis")) and has_lists:
        raise NotLocalError("has attributes that differ from row to row")
    return RowForm(axis, tuple(None if a is None else RowMap() for a in axes))


def _common_axis(axes: Axes) -> int:
    found = {a for a in axes if a is not None}
    if len(found) != 1:
        raise NotLocalError("joins rows along different axes")
    return found.pop()


# ---- windows


def _window(expr: Call, axes: Axes) -> RowForm:
    """Convolutions and pooling: [N, H, W, C], rows along H or W."""
    axis = axes[0]
    if axis not in (1, 2) or any(a is not None for a in axes[1:]):
        raise NotLocalError("sums over the axis that slides")
    d = axis - 1
    attrs = expr.attrs
    size = attrs.pool_size[d] if hasattr(attrs, "pool_size") else tensor_type(expr.args[1]).shape[1 + d]
    extent = (size - 1) * getattr(attrs, "dilation", (1, 1))[d] + 1
    before, after = attrs.padding[d], attrs.padding[d + 2]
    if max(before, after) >= extent:
        raise NotLocalError("has more padding than its window")
    return RowForm(axis, (RowMap(extent, attrs.strides[d], before), *[None] * (len(axes) - 1)))


def _with(values: Sequence[Any], changes: Mapping[int, Any]) -> tuple[Any, ...]:
    """The values, some of them changed by index."""
    return tuple(changes.get(i, v) for i, v in enumerate(values))


def _cut_window(expr: Call, form: RowForm, rows: Range) -> Any:
    before, after = _outside(expr, form, rows)
    return replace(expr.attrs, padding=_with(expr.attrs.padding, {form.axis - 1: before, form.axis + 1: after}))


# ---- movement


def _pad(expr: Call, axes: Axes) -> RowForm:
    axis = _common_axis(axes)
    return RowForm(axis, (RowMap(before=expr.attrs.pad_width[axis][0]),))


def _cut_pad(expr: Call, form: RowForm, rows: Range) -> Any:
    return replace(expr.attrs, pad_width=_with(expr.attrs.pad_width, {form.axis: _outside(expr, form, rows)}))


def _slice(expr: Call, axes: Axes) -> RowForm:
    axis = _common_axis(axes)
    step = expr.attrs.strides[axis]
    if step < 1:
        raise NotLocalError("turns time round")
    return RowForm(axis, (RowMap(stride=step, before=-expr.attrs.begin[axis]),))


def _cut_slice(expr: Call, form: RowForm, rows: Range) -> Any:
    begin, extents = _with(expr.attrs.begin, {form.axis: 0}), _with(expr.attrs.extents, {form.axis: rows[1] - rows[0]})
    return replace(expr.attrs, begin=begin, extents=extents)


def _reshape(expr: Call, axes: Axes) -> RowForm:
    """Rows stay rows, or a whole number of rows becomes one; the dimensions before them are all 1, or keep their size."""
    axis, old, new = _common_axis(axes), tensor_type(expr.args[0]).shape, expr.attrs.newshape
    before, size = prod(old[:axis]), old[axis]
    for at, rows in enumerate(new):
        if prod(new[:at]) != before or rows == 1:
            continue
        if rows == size:
            return RowForm(at, (RowMap(),))
        if before == 1 and size % rows == 0:
            return RowForm(at, (RowMap(size // rows, size // rows),))
        break
    raise NotLocalError("takes rows apart or puts them together")


def _cut_reshape(expr: Call, form: RowForm, rows: Range) -> Any:
    return replace(expr.attrs, newshape=_with(expr.attrs.newshape, {form.axis: rows[1] - rows[0]}))


def _transpose(expr: Call, axes: Axes) -> RowForm:
    return RowForm(expr.attrs.axes.index(_common_axis(axes)), (RowMap(),))


def _concatenate(expr: Call, axes: Axes) -> RowForm:
    if None in axes:
        raise NotLocalError("joins rows with constants")
    axis = _common_axis(axes)
    if expr.attrs.axis == axis:
        raise NotLocalError("joins tensors along the axis that slides")
    return RowForm(axis, (RowMap(),) * len(axes))


# ---- sums over other axes


def _last_axis(expr: Call, axes: Axes) -> RowForm:
    """Softmax and similar operators over the last axis."""
    axis = _common_axis(axes)
    if axis == len(tensor_type(expr).shape) - 1:
        raise NotLocalError("works over the axis that slides")
    return RowForm(axis, (RowMap(),))


def _dense(expr: Call, axes: Axes) -> RowForm:
    if axes[0] != 0 or any(a is not None for a in axes[1:]):
        raise NotLocalError("sums over the axis that slides")
    return RowForm(0, (RowMap(), *[None] * (len(axes) - 1)))


def _reduce(expr: Call, axes: Axes) -> RowForm:
    axis, rank = _common_axis(axes), len(tensor_type(expr.args[0]).shape)
    over = {a % rank for a in expr.attrs.axes}
    if axis in over:
        raise NotLocalError("works over the axis that slides")
    return RowForm(axis if expr.attrs.keepdims else axis - sum(a < axis for a in over), (RowMap(),))


# ---- sound


def _spectrogram(expr: Call, axes: Axes) -> RowForm:
    """[samples, channels] -> [channels, frames, bins]: a frame reads `window` samples; a frame starts every `stride` samples."""
    if axes[0] != 0:
        raise NotLocalError("mixes the channels")
    return RowForm(1, (RowMap(expr.attrs.window, expr.attrs.stride),))


_WINDOWS = (
    *("nn.conv2d", "nn.conv2d_float", "nn.depthwise_conv2d", "nn.depthwise_conv2d_float"),
    *("nn.avg_pool2d", "nn.max_pool2d"),
)

_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_WINDOWS, _window),
    **dict.fromkeys(("qnn.softmax", "qnn.softmax16", "qnn.log_softmax", "qnn.l2_normalize", "signal.mfcc"), _last_axis),
    **dict.fromkeys(("mean", "sum", "average", "reduce_max", "reduce_min", "qnn.sum"), _reduce),
    **dict.fromkeys(("nn.dense", "nn.dense_float"), _dense),
    "signal.spectrogram": _spectrogram,
    "nn.pad": _pad,
    "strided_slice": _slice,
    "reshape": _reshape,
    "transpose": _transpose,
    "concatenate": _concatenate,
}

_ATTRS: Mapping[str, Callable[[Call, RowForm, Range], Any]] = {
    **dict.fromkeys(_WINDOWS, _cut_window),
    "nn.pad": _cut_pad,
    "strided_slice": _cut_slice,
    "reshape": _cut_reshape,
}


def is_border(expr: Call, form: RowForm, rows: Range) -> bool:
    """Whether a range of a padded tensor (nn.pad) consists only of border."""
    if not is_call(expr, "nn.pad"):
        return False
    (row_map, *_) = form.maps
    assert row_map is not None
    first, stop = clamped(row_map.reads(rows), tensor_type(expr.args[0]).shape[form.axis])
    return first == stop


@dataclass(frozen=True, slots=True)
class Slide:
    """How a tensor moves: `rows` along `axis`, by `shift` per run; the rows in [lo, hi) keep their values.

    `form` is the RowForm of the tensor's operator; None for an input.
    """

    axis: int
    rows: int
    shift: int
    lo: int
    hi: int
    form: RowForm | None = None

    @property
    def fresh(self) -> Range:
        """The rows of [lo, hi) that no earlier run computed."""
        return max(self.lo, self.hi - self.shift), self.hi


@dataclass(frozen=True, slots=True)
class Sliding:
    """The tensors that slide, and why other tensors that read one do not, by the id of the node.

    `factor`: a hop this many times as large would suit the first stride that the hop does not suit (1: there is none).
    """

    table: Mapping[int, Slide]
    reasons: Mapping[int, str]
    factor: int = 1

    def of(self, expr: Expr) -> Slide | None:
        """How `expr` moves; None if it does not."""
        return self.table.get(id(expr))


def sliding(main: Function, hops: Mapping[str, tuple[int, int]]) -> Sliding:
    """The tensors of `main` that slide; `hops`: axis and number of new rows (1 to all) of each sliding input, by name."""
    table: dict[int, Slide] = {}
    reasons: dict[int, str] = {}
    factor = 1
    for var in input_vars(main):
        if var.name in hops:
            axis, hop = hops[var.name]
            rows = var.type.shape[axis]
            table[id(var)] = Slide(axis, rows, hop, 0, rows)
    for expr in post_order(main.body):
        if isinstance(expr, Call) and any(id(a) in table for a in expr.args):
            try:
                table[id(expr)] = _slide(expr, [table.get(id(a)) for a in expr.args])
            except NotLocalError as reason:
                reasons[id(expr)] = reason.message
                factor = reason.factor if factor == 1 else factor
    return Sliding(table, reasons, factor)


def _slide(expr: Call, operands: list[Slide | None]) -> Slide:
    form = row_form(expr, [None if s is None else s.axis for s in operands])
    rows = tensor_type(expr).shape[form.axis]
    if rows == 1 and any(s and m and s.rows <= m.extent > 1 for s, m in zip(operands, form.maps, strict=True)):
        raise NotLocalError("works over all rows")
    shifts, lo, hi = set(), 0, rows
    for slide, row_map in zip(operands, form.maps, strict=True):
        if slide is None or row_map is None:
            continue
        if slide.shift % row_map.stride:
            rows_text = f"{slide.shift} rows are" if slide.shift > 1 else "1 row is"
            factor = row_map.stride // gcd(slide.shift, row_map.stride)
            message = f"has the stride {row_map.stride}, which {rows_text} no multiple of (a hop {factor} times as large is)"
            raise NotLocalError(message, factor)
        shifts.add(slide.shift // row_map.stride)
        lo = max(lo, -(-(slide.lo + row_map.before) // row_map.stride))
        hi = min(hi, (slide.hi - row_map.extent + row_map.before) // row_map.stride + 1)
    if len(shifts) > 1:
        raise NotLocalError(f"joins tensors that move by {' and '.join(map(str, sorted(shifts)))} rows")
    if hi <= lo:
        raise NotLocalError("has padding in every row")
    return Slide(form.axis, rows, shifts.pop(), lo, hi, form)


# Reductions over all rows of a sliding window, as sums that are kept from run to run.
#
# Of the rows [lo, hi), which keep their values, a run adds the new ones to the sum of the rows that stayed, and subtracts the
# rows that leave before the next run; the edge rows are added again in every run.  Integer sums are exact in any order.  A
# maximum cannot be updated this way: two stacks of partial maxima would need twice the rows, and the rows are available anyway.


WORTH = 1 / 8
"""The fraction of the rows up to which reading them for a running sum pays.

Kernels for whole windows add four bytes at a time; running sums are in 32 bits.
"""


@dataclass(frozen=True, slots=True)
class RunningSum:
    """A reduction of `data`, whose rows move by `slide`, over `axes`, which include time; each sum adds `count` numbers."""

    data: Expr
    slide: Slide
    axes: tuple[int, ...]
    count: int

    @property
    def edges(self) -> tuple[Range, ...]:
        """Rows that are added again in every run."""
        return tuple(r for r in ((0, self.slide.lo), (self.slide.hi, self.slide.rows)) if r[0] < r[1])

    @property
    def leaving(self) -> Range:
        """Rows that leave before the next run."""
        return self.slide.lo, self.slide.lo + self.slide.shift

    @property
    def share(self) -> float:
        """The fraction of the rows that a run reads."""
        return (2 * self.slide.shift + sum(b - a for a, b in self.edges)) / self.slide.rows

    @property
    def numbers(self) -> int:
        """How many sums there are."""
        return tensor_type(self.data).size // self.count

    @property
    def nbytes(self) -> int:
        return 4 * self.numbers


def running_sum(expr: Expr, sliding: Sliding) -> RunningSum | None:
    """`expr` as a kept sum, if that reads few rows and the sum fits 32 bits; else None."""
    if not isinstance(expr, Call) or sliding.of(expr) is not None:
        return None
    axes = _axes(expr)
    slide = sliding.of(expr.args[0]) if axes else None
    if slide is None or slide.axis not in axes or slide.lo + slide.shift > slide.hi - slide.shift:
        return None
    type_ = tensor_type(expr.args[0])
    count = type_.size // max(1, tensor_type(expr).size)
    if type_.dtype not in ("int8", "uint8", "int16") or count >= 1 << (30 - bits(type_.dtype)):
        return None
    found = RunningSum(expr.args[0], slide, axes, count)
    return found if found.share <= WORTH else None


def _axes(expr: Call) -> tuple[int, ...]:
    """The axes of a mean or sum of quantised values over whole axes; empty for anything else."""
    if is_call(expr, "mean", "qnn.sum"):
        rank = len(tensor_type(expr.args[0]).shape)
        return tuple(sorted(a % rank for a in expr.attrs.axes))
    if is_call(expr, "nn.avg_pool2d"):
        whole = tensor_type(expr.args[0]).shape[1:3] == tuple(expr.attrs.pool_size)
        return (1, 2) if whole and not any(expr.attrs.padding) else ()
    return ()


# Which rows a run on an advanced window computes, and which it keeps from the previous run.
#
# Readers request ranges of rows from a sliding tensor.  For a kept tensor, a run computes the edge rows and the fresh rows, and
# gets the rows between from the last run.  For other tensors, it computes everything requested, and thus requests more rows from
# their operands.  Sliding inputs are always kept, as the caller passes only their fresh rows.


@dataclass(frozen=True, slots=True)
class Rows:
    """The ranges of a tensor's rows that a run computes, and the range that is in the state (None: no rows are kept).

    The kept rows end where the last computed range begins.
    """

    computed: tuple[Range, ...]
    kept: Range | None = None

    @property
    def count(self) -> int:
        """How many rows a run computes."""
        return sum(stop - first for first, stop in self.computed)


@dataclass(frozen=True, slots=True)
class LayerRows:
    """The part of a layer that a run computes: multiply-accumulates (`macs_full`: on the whole window) and rows, if it slides.

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
    """The rows of each sliding tensor that is read, by the id of its node; `nodes` has operands before readers.

    `sums`: the reductions over all rows whose sums are kept, by the id of the node.
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
        """The bytes of all kept rows and sums."""
        return sum(map(self.state_bytes, self.kept)) + sum(s.nbytes for s in self.sums.values())

    def macs(self) -> int:
        """Multiply-accumulates per run."""
        return sum(round(_macs(e) * self.share(e)) for e in self.nodes)

    @property
    def macs_full(self) -> int:
        """Multiply-accumulates of a run on the whole window."""
        return sum(_macs(e) for e in self.nodes)

    def layers(self) -> list[LayerRows]:
        """The layers with weights, in order."""
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
        """Whether a run does less work, of all kinds together, than a run on the whole window."""
        full = sum(_work(e) for e in self.nodes)
        return sum(_work(e) * self.share(e) for e in self.nodes) < full

    def work(self) -> float:
        """The cost of a run, in units of about one multiply-accumulate; it includes sums, other elements, and moved bytes."""
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
        """The fraction of a tensor's rows that a run computes."""
        slide = self.sliding.of(expr)
        if slide is None:
            return self.sums[id(expr)].share if id(expr) in self.sums else 1.0
        return self.rows[id(expr)].count / slide.rows if id(expr) in self.rows else 0.0


EXACT = 9
"""Up to this many tensors, all combinations of kept tensors are tried; each costs about a millisecond."""

_BYTE = 0.5
_MOVEMENT = frozenset({"reshape", "strided_slice", "concatenate", "transpose", "nn.pad"})


def slide_plan(main: Function, sliding: Sliding) -> SlidePlan:
    """The plan with the least work: keep all candidates, then drop each tensor whose rows are cheaper to compute again."""
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
    """The Pareto-optimal `plans` among those tried, by kept bytes and work; least work first.

    A way is a subset of the tensors that the least-work plan keeps besides the inputs; `tried` of the `ways` were tried.
    """

    plans: tuple[SlidePlan, ...]
    tried: int
    ways: int

    @property
    def optimal(self) -> bool:
        """Whether all ways were tried, so that no way beats any of the plans."""
        return self.tried == self.ways


def slide_front(main: Function, sliding: Sliding) -> SlideFront:
    """The plans worth having, among those that keep all or part of what `slide_plan` keeps.

    Exact for up to EXACT tensors besides the inputs; with more, the tensor whose loss costs the least work is dropped repeatedly.
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
    """Whether a tensor may be kept: it slides, and is an input or not merely read row by row by a single reader."""
    if sliding.of(expr) is None:
        return False
    own = readers.get(id(expr), ())
    if isinstance(expr, Var) or len(own) != 1:
        return True
    slide = sliding.of(own[0])
    return slide is None or any(a is expr and m != RowMap() for a, m in _links(own[0], slide))


def _links(expr: Expr, slide: Slide) -> list[tuple[Expr, RowMap]]:
    """The sliding operands of a sliding tensor, with the RowMap by which it reads each."""
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
    sums = {}
    for expr in nodes:
        total = running_sum(expr, sliding)
        kept = found[id(total.data)].kept if total is not None else None
        if total is not None and kept is not None and kept[0] <= total.slide.lo:  # the kept rows include the leaving ones
            sums[id(expr)] = total
    return SlidePlan(sliding, found, tuple(nodes), sums)


def _rows(slide: Slide, asked: Sequence[Range], *, kept: bool) -> Rows:
    inner = [max(a, slide.lo) for a, b in asked if max(a, slide.lo) < min(b, slide.hi)]
    first, (fresh, _) = min(inner, default=slide.hi), slide.fresh
    if not kept or first >= fresh:
        return Rows(_merged(asked))
    top = [(a, min(b, slide.lo)) for a, b in asked if a < slide.lo]
    return Rows((*_merged(top), (fresh, max(slide.hi, *(b for _, b in asked)))), (first, fresh))


def _merged(ranges: Sequence[Range]) -> tuple[Range, ...]:
    """The same rows as ascending ranges that neither overlap nor touch."""
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
    return layer_cost(expr).macs if is_call(expr, *LAYERS) else 0


def _work(expr: Expr) -> float:
    if not isinstance(expr, Call) or not hasattr(expr.type, "size"):
        return 0.0
    if macs := _macs(expr):
        return macs
    if is_call(expr, "reshape"):
        return 0.0
    size = tensor_type(expr).size
    if expr.name in _MOVEMENT:
        return _BYTE * tensor_type(expr).nbytes
    steps = _STEPS.get(expr.name)
    return float(size * (prod(getattr(expr.attrs, "pool_size", (1,))) if steps is None else steps(expr.attrs)))


_STEPS: Mapping[str, Callable[[Any], int]] = {
    "signal.spectrogram": lambda attrs: 4 * attrs.length.bit_length(),
    "signal.mfcc": lambda attrs: attrs.channels,
}
"""Approximate multiplications per element, from the attributes: the levels of an FFT, the sum of a cosine transform."""
