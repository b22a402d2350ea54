"""Which rows of each tensor are already known when a network runs again on a window that has moved on by some rows.

Contract.  The inputs slide: row r of an input in this run is its row r + hop of the last run, for r < rows - hop.  For each
tensor in the result, rows lie along `axis`, and for all r and r' in [lo, hi) with r' = r + shift: row r of this run has the
very bytes of row r' of the last run.  Rows before lo and from hi on (the edges) are those that padding touches somewhere on the
way; they have to be computed in every run.  So of the rows in [lo, hi), only the last `shift` are new.

A tensor is not in the result if its operator is not local in rows (`row_map`), if operands move by different numbers of rows,
if the shift is no multiple of the stride, or if no row is free of padding; `reasons` says which.  Everything that reads such a
tensor is not in the result either.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from itertools import combinations
from math import gcd, prod
from typing import Any

from aot.ir.op import T_OP_PATTERN, Op, OpPattern
from aot.ir.type import TensorType
from aot.relay.analysis import LAYERS, layer_cost
from aot.relay.expr import Call, Constant, Expr, Function, Var, call, is_call, operands, post_order, tensor_type, users
from aot.relay.state import input_vars
from aot.support.dataclass import dataclass
from aot.support.dtype import bits

Range = tuple[int, int]
"""Rows from the first to before the second."""


@dataclass(frozen=True, slots=True)
class RowMap:
    """Row r of the result reads the `extent` rows from r * stride - before on."""

    extent: int = 1
    stride: int = 1
    before: int = 0

    def reads(self, rows: Range) -> Range:
        """The rows that a range of the result reads, those outside of the operand included."""
        return rows[0] * self.stride - self.before, (rows[1] - 1) * self.stride - self.before + self.extent


@dataclass(frozen=True, slots=True)
class RowForm:
    """The axis of the result that its rows lie along, and a RowMap for each operand (None: it has no rows, a constant)."""

    axis: int
    maps: tuple[RowMap | None, ...]


class NotLocalError(ValueError):
    """Why an operator is not local in rows, in words that follow its name; a hop `factor` times as large would help (1: none)."""

    def __init__(self, message: str, factor: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.factor = factor


Axes = Sequence[int | None]
"""For each operand the axis of its rows; None if it has none."""

Rule = Callable[[Call, Axes], RowForm]


def row_form(expr: Call, axes: Axes) -> RowForm:
    """How `expr` reads the rows of its operands, of which one at least has some; NotLocalError where it is not local."""
    if not isinstance(expr.op, Op) or not isinstance(expr.type, TensorType):
        raise NotLocalError("has several results")
    for arg, axis in zip(expr.args, axes, strict=True):
        if axis is None and not isinstance(arg, Constant):
            raise NotLocalError("also reads what does not slide")
    rule = _RULES.get(expr.op.name)
    if rule is None and T_OP_PATTERN.get(expr.op.name) <= OpPattern.BROADCAST and expr.op.name not in _SHAPED:
        rule = _elementwise
    if rule is None:
        raise NotLocalError("reads all rows at once")
    return rule(expr, axes)


def over_rows(expr: Call, form: RowForm, rows: Range, args: Sequence[Expr]) -> Call:
    """`expr` for a range of its rows; `args` are those rows of the operands that exist and that the range reads."""
    assert isinstance(expr.op, Op)
    change = _ATTRS.get(expr.op.name)
    attrs = expr.attrs if change is None else change(expr, form, rows)
    return call(expr.op, args, attrs, span=expr.span)


def clamped(rows: Range, size: int) -> Range:
    """The rows of a range that exist in an operand of `size` rows."""
    return min(max(rows[0], 0), size), min(max(rows[1], 0), size)


def _outside(expr: Call, form: RowForm, rows: Range) -> tuple[int, int]:
    """How many rows that a range reads lie before the first row of operand 0, and after its last one."""
    (row_map, *_), axis = form.maps, form.axis
    assert row_map is not None
    first, stop = row_map.reads(rows)
    return max(0, -first), max(0, stop - tensor_type(expr.args[0]).shape[axis])


# ---- element-wise operators

_SHAPED = frozenset({"broadcast_to", "tile", "full", "qnn.dynamic_params", "qnn.dynamic_quantize", "qnn.hybrid_output"})
"""Operators of element-wise kind whose attributes say the shape, or that look at whole tensors."""


def _elementwise(expr: Call, axes: Axes) -> RowForm:
    axis, out = _common_axis(axes), tensor_type(expr).shape
    for arg, own in zip(expr.args, axes, strict=True):
        shape = tensor_type(arg).shape
        if own is not None and (len(shape) != len(out) or shape[axis] != out[axis]):
            raise NotLocalError("stretches its rows")
        at = axis - (len(out) - len(shape))
        if own is None and at >= 0 and shape[at] != 1:
            raise NotLocalError("has a constant that differs from row to row")
    if (axis == len(out) - 1 or hasattr(expr.attrs, "axis")) and _has_lists(expr.attrs):
        raise NotLocalError("has attributes that differ from row to row")
    return RowForm(axis, tuple(None if a is None else RowMap() for a in axes))


def _has_lists(attrs: Any) -> bool:
    names = getattr(type(attrs), "__dataclass_fields__", ())
    return any(isinstance(v := getattr(attrs, name), tuple) and len(v) > 1 for name in names)


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


def _cut_window(expr: Call, form: RowForm, rows: Range) -> Any:
    padding = list(expr.attrs.padding)
    padding[form.axis - 1], padding[form.axis + 1] = _outside(expr, form, rows)
    return replace(expr.attrs, padding=tuple(padding))


# ---- movement


def _pad(expr: Call, axes: Axes) -> RowForm:
    axis = _common_axis(axes)
    return RowForm(axis, (RowMap(before=expr.attrs.pad_width[axis][0]),))


def _cut_pad(expr: Call, form: RowForm, rows: Range) -> Any:
    widths = list(expr.attrs.pad_width)
    widths[form.axis] = _outside(expr, form, rows)
    return replace(expr.attrs, pad_width=tuple(widths))


def _slice(expr: Call, axes: Axes) -> RowForm:
    axis = _common_axis(axes)
    step = expr.attrs.strides[axis]
    if step < 1:
        raise NotLocalError("turns time round")
    return RowForm(axis, (RowMap(stride=step, before=-expr.attrs.begin[axis]),))


def _cut_slice(expr: Call, form: RowForm, rows: Range) -> Any:
    begin, extents = list(expr.attrs.begin), list(expr.attrs.extents)
    begin[form.axis], extents[form.axis] = 0, rows[1] - rows[0]
    return replace(expr.attrs, begin=tuple(begin), extents=tuple(extents))


def _reshape(expr: Call, axes: Axes) -> RowForm:
    """Rows stay rows, or a whole number of them becomes one; with nothing but 1 in front of them, or the same sizes."""
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
    shape = list(expr.attrs.newshape)
    shape[form.axis] = rows[1] - rows[0]
    return replace(expr.attrs, newshape=tuple(shape))


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
    """Softmax and its like: over the last axis."""
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
    """[samples, channels] -> [channels, frames, bins]: a frame reads `window` samples, one begins every `stride`."""
    if axes[0] != 0:
        raise NotLocalError("mixes the channels")
    return RowForm(1, (RowMap(expr.attrs.window, expr.attrs.stride),))


_WINDOWS = (
    "nn.conv2d",
    "nn.conv2d_float",
    "nn.depthwise_conv2d",
    "nn.depthwise_conv2d_float",
    "nn.avg_pool2d",
    "nn.max_pool2d",
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
    """Whether a range of a bordered tensor (nn.pad) is nothing but border."""
    if not is_call(expr, "nn.pad"):
        return False
    (row_map, *_) = form.maps
    assert row_map is not None
    first, stop = clamped(row_map.reads(rows), tensor_type(expr.args[0]).shape[form.axis])
    return first == stop


@dataclass(frozen=True, slots=True)
class Slide:
    """How a tensor moves: `rows` along `axis`, by `shift` each run; those in [lo, hi) keep their values.

    `form` is that of its operator, None for an input.
    """

    axis: int
    rows: int
    shift: int
    lo: int
    hi: int
    form: RowForm | None = None

    @property
    def fresh(self) -> Range:
        """The rows of [lo, hi) that no earlier run has computed."""
        return max(self.lo, self.hi - self.shift), self.hi


@dataclass(frozen=True, slots=True)
class Sliding:
    """The tensors that slide, and why the others that read one do not, by the identity of the node.

    `factor`: a hop so many times as large suits the first stride that this one does not suit (1: there is none).
    """

    table: Mapping[int, Slide]
    reasons: Mapping[int, str]
    factor: int = 1

    def of(self, expr: Expr) -> Slide | None:
        """How `expr` moves, None if it does not."""
        return self.table.get(id(expr))


def sliding(main: Function, hops: Mapping[str, tuple[int, int]]) -> Sliding:
    """`hops`: for each input that slides, by name, the axis and the number of new rows, from 1 to its rows."""
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


# Reductions over all rows of a window that moves, as sums that are kept from run to run.
#
# Of the rows [lo, hi) that keep their values, a run adds the new ones to the sum of those that have stayed, and subtracts the
# ones that leave before the next run; the rows at the edges are added anew each time.  Sums of integers are exact whatever their
# order.  A maximum has no such form: two stacks of partial maxima would need twice the rows, which are there to be looked at
# again.


WORTH = 1 / 8
"""The part of the rows up to which a running sum pays: kernels of whole windows add four bytes at a time, sums are in 32 bits."""


@dataclass(frozen=True, slots=True)
class RunningSum:
    """The reduction of `data`, whose rows move by `slide`, over `axes`, time among them; of `count` numbers each."""

    data: Expr
    slide: Slide
    axes: tuple[int, ...]
    count: int

    @property
    def edges(self) -> tuple[Range, ...]:
        """Rows that are added anew each time."""
        return tuple(r for r in ((0, self.slide.lo), (self.slide.hi, self.slide.rows)) if r[0] < r[1])

    @property
    def leaving(self) -> Range:
        """Rows that the next run does not have."""
        return self.slide.lo, self.slide.lo + self.slide.shift

    @property
    def share(self) -> float:
        """The part of the rows that a run reads."""
        return (2 * self.slide.shift + sum(b - a for a, b in self.edges)) / self.slide.rows

    @property
    def numbers(self) -> int:
        """How many sums there are."""
        return tensor_type(self.data).size // self.count

    @property
    def nbytes(self) -> int:
        return 4 * self.numbers


def running_sum(expr: Expr, sliding: Sliding) -> RunningSum | None:
    """`expr` as a sum that is kept, where that reads few rows and 32 bits hold it; else None."""
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
    """The axes that a mean or sum of quantised values is over, if it is one over whole axes."""
    if is_call(expr, "mean") or is_call(expr, "qnn.sum"):
        rank = len(tensor_type(expr.args[0]).shape)
        return tuple(sorted(a % rank for a in expr.attrs.axes))
    if is_call(expr, "nn.avg_pool2d"):
        whole = tensor_type(expr.args[0]).shape[1:3] == tuple(expr.attrs.pool_size)
        return (1, 2) if whole and not any(expr.attrs.padding) else ()
    return ()


# Which rows a run on a moved window computes, and which it keeps from the run before.
#
# A sliding tensor is asked for ranges of rows by its readers.  One that is kept computes its edges and its fresh rows, and takes
# the rows between from the last run; one that is not computes whatever is requested, and so requests more of its own operands.
# Inputs that slide are always kept, as only their fresh rows are given.


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
