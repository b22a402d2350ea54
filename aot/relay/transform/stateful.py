"""Passes over functions that run again and again: slide_window, narrow_windows, compose_functions.

slide_window rewrites a network on a window as one that gets only the window's new rows, and keeps what it needs of earlier rows.

`main(x)` becomes `main'(rows, state ...)`: run after run, its results have exactly the bytes of `main` on the latest window.
Before the first run the window contains only zeros (the zero point, if the input is quantised); the initial state is the one
that runs on such a window leave behind.

For a kept tensor, the rewritten graph has `concatenate(state, fresh rows)`; a slice of that is the new state.  This has the form
of the sliding windows in streaming models written by hand, and gets the same memory layout.  If padding makes a run compute more
rows behind the new ones, layers read these together with the new ones, and nothing reads old and new rows as one tensor.  The
new state is then the old one without its leaving rows, followed by the new rows, and may be computed in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from itertools import zip_longest
from math import prod
from typing import Any

import numpy as np

from aot.ir.module import IRModule
from aot.ir.op import Array
from aot.ir.span import NO_SPAN, Span
from aot.ir.transform import PassContext, module_pass
from aot.ir.type import TensorType
from aot.relay import expr as ex
from aot.relay.construct import constructor, reshaped, with_span
from aot.relay.interpreter import evaluate, same_over_time
from aot.relay.state import STATE, StateTensor, input_vars, result_exprs, state_of, state_vars, zero_window
from aot.relay.transform.sliding import Range, RunningSum, Slide, SlidePlan, clamped, is_border, over_rows
from aot.support.dataclass import dataclass
from aot.support.dtype import numpy_dtype


@module_pass(required=True, law=same_over_time)
def slide_window(module: IRModule, _context: PassContext, *, plan: SlidePlan | None = None) -> IRModule:
    """Make main a function of its window's new rows that keeps what it needs from earlier rows, according to the plan."""
    main = module["main"]
    assert isinstance(main, ex.Function)
    return module if plan is None else module.with_function("main", over_new_rows(main, plan))


def over_new_rows(main: ex.Function, plan: SlidePlan) -> ex.Function:
    """`main` as a function of fresh rows, according to the plan; states that `main` already has come before the kept rows."""
    work = _Rewrite(plan)
    params = []
    for var in main.params:
        slide = plan.sliding.of(var)
        given = var
        if slide is not None and id(var) in plan.rows:
            given = replace(var, type=with_rows(var.type, slide.axis, min(slide.shift, slide.rows)))
        work.given[id(var)] = given
        params.append(given)
    outputs, assigned = ([work.whole(e) for e in exprs] for exprs in result_exprs(main))
    work.renew()
    kept = [*plan.kept, *(e for e in plan.nodes if id(e) in plan.sums)]
    slid = [StateTensor(work.old[id(e)].name, value, slid=True) for e, value in zip(kept, _initial(main, plan), strict=True)]
    states = (*state_of(main), *slid)
    news = [work.new[id(e)] for e in kept]
    olds = [work.old[id(e)] for e in kept]
    return ex.Function((*params, *olds), ex.make_tuple([*outputs, *assigned, *news]), {**main.attrs, STATE: states})


def _initial(main: ex.Function, plan: SlidePlan) -> list[Array]:
    """The kept rows and sums after runs on zeros, which make all rows of [lo, hi) equal."""
    if not plan.kept:
        return []
    totals = [(e, plan.sums[id(e)]) for e in plan.nodes if id(e) in plan.sums]
    probe = ex.Function(main.params, ex.make_tuple([*plan.kept, *(s.data for _, s in totals)]))
    values = evaluate(probe, [zero_window(v.type) for v in main.params])
    found = []
    values, rest = values[: len(plan.kept)], values[len(plan.kept) :]
    for expr, value in zip(plan.kept, values, strict=True):
        slide, kept = plan.sliding.table[id(expr)], plan.rows[id(expr)].kept
        assert kept is not None
        rows = range(kept[0] + slide.shift, kept[1] + slide.shift)
        found.append(np.ascontiguousarray(np.take(value, rows, axis=slide.axis)))
    for (expr, total), value in zip(totals, rest, strict=True):
        slide = total.slide
        stay = np.take(value, range(slide.lo + slide.shift, slide.hi), axis=slide.axis).astype(np.int64)
        sums = stay.sum(axis=total.axes, keepdims=True) - sum_offset(expr, total)
        found.append(np.ascontiguousarray(sums.astype(np.int32)))
    return found


@dataclass(slots=True)
class _Rewrite:
    """The new graph under construction; all tables are keyed by the id of the old node."""

    plan: SlidePlan
    given: dict[int, ex.Var] = field(default_factory=dict)
    old: dict[int, ex.Var] = field(default_factory=dict)
    new: dict[int, ex.Expr] = field(default_factory=dict)
    pieces: dict[int, list[tuple[Range, ex.Expr]]] = field(default_factory=dict)
    ranges: dict[tuple[int, Range], ex.Expr] = field(default_factory=dict)
    done: dict[int, ex.Expr] = field(default_factory=dict)
    renewed: list[ex.Expr] = field(default_factory=list)

    def whole(self, expr: ex.Expr) -> ex.Expr:
        """A whole tensor, computed in the order of the old graph; not recursive, so any depth works."""
        for node in self.plan.nodes:
            if id(node) in self.done or id(node) in self.pieces:
                continue
            if id(node) in self.plan.rows:
                self._slide(node)
            elif self.plan.sliding.of(node) is None:
                self.done[id(node)] = self._plain(node)
        return self._operand(expr)

    def _plain(self, node: ex.Expr) -> ex.Expr:
        """A node that does not slide, on whole tensors."""
        if isinstance(node, ex.Var):
            return self.given.get(id(node), node)
        if id(node) in self.plan.sums:
            assert isinstance(node, ex.Call)
            return self._running(node, self.plan.sums[id(node)])
        return ex.with_operands(node, [self._operand(o) for o in ex.operands(node)])

    def _running(self, node: ex.Call, total: RunningSum) -> ex.Expr:
        """A reduction over all rows, from the kept sum of the rows that stay; the sum for the next run is the new state."""
        span = self._span(node)

        def of_rows(rows: Range) -> ex.Expr:
            return sum_of(self._range(total.data, rows), total.axes, span)

        def add(a: ex.Expr, b: ex.Expr) -> ex.Expr:
            return with_span(constructor("add")(a, b), span)

        fresh = of_rows(total.slide.fresh)
        type_ = ex.tensor_type(fresh)
        old = ex.Var(f"kept_{len(self.old)}", type_, node.span)
        self.old[id(node)] = old
        self.new[id(node)] = with_span(constructor("subtract")(add(old, fresh), of_rows(total.leaving)), span)
        whole = add(old, fresh)
        for edge in total.edges:
            whole = add(whole, of_rows(edge))
        return finished_sum(node, total, whole)

    def _operand(self, expr: ex.Expr) -> ex.Expr:
        slide = self.plan.sliding.of(expr)
        return self.done[id(expr)] if slide is None else self._range(expr, (0, slide.rows))

    def _slide(self, node: ex.Expr) -> None:
        """The ranges of a sliding tensor that a run computes, and its window in the state."""
        rows, slide = self.plan.rows[id(node)], self.plan.sliding.table[id(node)]
        if isinstance(node, ex.Var):
            parts: list[tuple[Range, ex.Expr]] = [(slide.fresh, self.given[id(node)])]
        else:
            assert isinstance(node, ex.Call)
            parts = [(part, self._computed(node, slide, part)) for part in rows.computed]
        if rows.kept is not None:
            parts[-1:] = self._joined(node, slide, rows.kept, *parts[-1])
        self.pieces[id(node)] = parts

    def _computed(self, node: ex.Call, slide: Slide, part: Range) -> ex.Expr:
        assert slide.form is not None
        if is_border(node, slide.form, part):
            type_ = with_rows(ex.tensor_type(node), slide.axis, part[1] - part[0])
            value = np.full(type_.shape, node.attrs.pad_value, numpy_dtype(type_.dtype))
            return ex.const(value, quant=type_.quant, dtype=type_.dtype, span=node.span)
        args = []
        for arg, row_map in zip(node.args, slide.form.maps, strict=True):
            other = self.plan.sliding.of(arg)
            if other is None or row_map is None:
                args.append(self.done[id(arg)])
            else:
                args.append(self._range(arg, clamped(row_map.reads(part), other.rows)))
        return over_rows(node, slide.form, part, args)

    def _joined(self, node: ex.Expr, slide: Slide, kept: Range, part: Range, computed: ex.Expr) -> list[tuple[Range, ex.Expr]]:
        """The kept rows and the computed rows; one tensor if only the new rows are computed.

        Edge rows behind the new ones are not in the state, so the state has exactly the kept rows.
        """
        fresh, stays, span = slide.fresh, kept[1] - kept[0] - slide.shift, self._span(node)
        type_ = with_rows(ex.tensor_type(node), slide.axis, kept[1] - kept[0])
        old = ex.Var(f"kept_{len(self.old)}", type_, node.span)
        self.old[id(node)] = old
        # each requested range that includes both old and new rows extends beyond the new ones
        reads_past = all(stop > fresh[1] for first, stop in self.plan.asked(node) if first < fresh[0] < stop)
        if part != fresh and stays > 0 and reads_past:
            self.renewed.append(node)
            return [(kept, old), (part, computed)]
        new = _slice(computed, slide.axis, (0, fresh[1] - fresh[0]), span)
        window = _concatenate([old, new], slide.axis, span)
        self.new[id(node)] = _slice(window, slide.axis, (slide.shift, slide.shift + kept[1] - kept[0]), span)
        joined = ((kept[0], fresh[1]), window)
        return [joined] if part == fresh else [joined, (part, computed)]

    def renew(self) -> None:
        """Set the new states that are not slices of a window: the remaining old rows, then the new rows.

        The new rows are sliced from rows that a layer reads, if possible, since the computed rows may be gone by then.
        """
        for node in self.renewed:
            slide, old = self.plan.sliding.table[id(node)], self.old[id(node)]
            (first, stop), axis, span = slide.fresh, slide.axis, self._span(node)
            read = [(b - a, a, e) for (key, (a, b)), e in self.ranges.items() if key == id(node) and a < first and b > stop]
            _, start, rows = min(read, key=lambda r: r[:2], default=(0, first, self.pieces[id(node)][-1][1]))
            left = _slice(old, axis, (slide.shift, old.type.shape[axis]), span)
            new = _slice(rows, axis, (first - start, stop - start), span)
            self.new[id(node)] = _concatenate([left, new], axis, span)

    def _range(self, node: ex.Expr, wanted: Range) -> ex.Expr:
        """A range of rows of a sliding tensor, from one piece or from several joined ones."""
        if (id(node), wanted) not in self.ranges:
            self.ranges[id(node), wanted] = self._assembled(node, wanted)
        return self.ranges[id(node), wanted]

    def _assembled(self, node: ex.Expr, wanted: Range) -> ex.Expr:
        """The range as slices of pieces; where pieces overlap, the one that extends further is used."""
        axis, at, parts, span = self.plan.sliding.table[id(node)].axis, wanted[0], list[ex.Expr](), self._span(node)
        while at < wanted[1]:
            (first, stop), expr = max((p for p in self.pieces[id(node)] if p[0][0] <= at < p[0][1]), key=lambda p: p[0][1])
            further = [a for (a, b), _ in self.pieces[id(node)] if at < a < stop < b and stop < wanted[1]]
            end = min(stop, wanted[1], *further)
            parts.append(_slice(expr, axis, (at - first, end - first), span))
            at = end
        return parts[0] if len(parts) == 1 else _concatenate(parts, axis, span)

    def _span(self, node: ex.Expr) -> Span:
        """The operator to which moved rows are attributed: the one that computes the tensor, or the first that reads an input.

        Moved rows are not a tensor of the file, as they have other rows.
        """
        origin = node
        if isinstance(node, ex.Var):
            origin = next((e for e in self.plan.nodes if isinstance(e, ex.Call) and any(o is node for o in ex.operands(e))), node)
        return replace(origin.span, tensor=-1)


def _concatenate(parts: list[ex.Expr], axis: int, span: Span) -> ex.Expr:
    return with_span(constructor("concatenate")(parts, axis=axis), span)


def _slice(expr: ex.Expr, axis: int, rows: Range, span: Span) -> ex.Expr:
    shape = ex.tensor_type(expr).shape
    if rows == (0, shape[axis]):
        return expr
    begin = tuple(rows[0] if a == axis else 0 for a in range(len(shape)))
    end = tuple(rows[1] if a == axis else n for a, n in enumerate(shape))
    return with_span(constructor("strided_slice")(expr, begin=begin, end=end), span)


# Running sums (sliding.py): int32 sums over rows, and the result of a reduction over all rows from such a sum.


def sum_of(rows: ex.Expr, axes: tuple[int, ...], span: Span) -> ex.Expr:
    """int32 sums of int8, uint8 or int16 over `axes`, which keep extent 1, attributed to the operator of `span`."""
    wide = with_span(constructor("cast")(rows, dtype="int32"), span)
    if all(ex.tensor_type(rows).shape[a] == 1 for a in axes):
        return wide
    return with_span(constructor("sum")(wide, axis=axes, keepdims=True), span)


def sum_offset(expr: ex.Expr, total: RunningSum) -> int:
    """The number to subtract from a sum of all rows before `finished_sum`: the zero points of the summands."""
    assert isinstance(expr, ex.Call)
    return 0 if ex.is_call(expr, "nn.avg_pool2d") else int(expr.attrs.input_zp) * total.count


def finished_sum(expr: ex.Call, total: RunningSum, sums: ex.Expr) -> ex.Expr:
    """`expr`, computed from the sum over all rows minus `sum_offset`."""
    attrs, type_ = expr.attrs, ex.tensor_type(expr)
    common = {"lo": attrs.lo, "hi": attrs.hi, "dtype": type_.dtype, "quant": type_.quant}
    own: dict[str, Any] = {"count": total.count}
    name = "nn.avg_of_sums"
    if not ex.is_call(expr, "nn.avg_pool2d"):
        name = "qnn.requantize"
        own = {"multiplier": (attrs.multiplier,), "shift": (attrs.shift,), "zero_point": attrs.zero_point, "rounding": "double"}
    return reshaped(ex.call_with(name, [sums], span=expr.span, **common, **own), type_.shape, expr.span)


# Convolutions with one position along an axis, a result of sliding windows, in forms that have faster kernels.


_LAYERS = ("nn.conv2d", "nn.depthwise_conv2d")
_FOLLOWERS = ("nn.bias_add", "qnn.requantize", "qnn.lut", "clip")
"""Element-wise operators with one constant per channel."""


@module_pass(required=True)
def narrow_windows(module: IRModule, _context: PassContext) -> IRModule:
    """Simplify main's layers with one position, which sliding creates: no dilation, and convolutions become fully connected."""
    main = module["main"]
    assert isinstance(main, ex.Function)
    return module.with_function("main", with_narrow_windows(main))


def with_narrow_windows(func: ex.Function) -> ex.Function:
    """`func` rewritten by two rules, with bit-identical results.

    A convolution window with one position along an axis needs no dilation once a slice has dropped the rows between its taps.  A
    convolution with a single position is a fully connected layer; the reshape of its result can move behind its followers.
    """
    return ex.rewrite(func, _rule)


def _rule(expr: ex.Expr) -> ex.Expr:
    if ex.is_call(expr, *_LAYERS) and isinstance(expr.args[1], ex.Constant):
        return _dense(_undilated(expr))
    return _before_reshape(expr) if ex.is_call(expr, *_FOLLOWERS) else expr


def _undilated(layer: ex.Call) -> ex.Call:
    """The layer without dilation along axes that have one position and no padding."""
    data, weight = layer.args
    end, steps, dilation = list(ex.tensor_type(data).shape), [1, 1, 1, 1], list(layer.attrs.dilation)
    for d in (0, 1):
        kernel = ex.tensor_type(weight).shape[1 + d]
        if ex.tensor_type(layer).shape[1 + d] == 1 and dilation[d] > 1 and not any(layer.attrs.padding[d::2]):
            end[1 + d] = (kernel - 1) * dilation[d] + 1
            steps[1 + d], dilation[d] = dilation[d], 1
    if steps == [1, 1, 1, 1]:
        return layer
    taken = constructor("strided_slice")(data, begin=(0, 0, 0, 0), end=tuple(end), strides=tuple(steps))
    taken = with_span(taken, replace(layer.span, tensor=-1))
    return ex.again(layer, [taken, weight], replace(layer.attrs, dilation=tuple(dilation)))


def _dense(layer: ex.Call) -> ex.Expr:
    """An nn.conv2d whose window is the whole image, as nn.dense; other layers unchanged."""
    data, weight = layer.args
    image, window = ex.tensor_type(data).shape, ex.tensor_type(weight).shape
    if not ex.is_call(layer, "nn.conv2d") or image != (1, *window[1:]) or any(layer.attrs.padding):
        return layer
    assert isinstance(weight, ex.Constant)
    depth, attrs = prod(image), layer.attrs
    matrix = ex.const(weight.data.reshape(window[0], depth), quant=weight.type.quant, dtype=weight.type.dtype, span=weight.span)
    row = reshaped(data, (1, depth), replace(layer.span, tensor=-1))
    dense = constructor("nn.dense")(row, matrix, input_zp=attrs.input_zp, weight_zp=attrs.weight_zp, acc_dtype=attrs.acc_dtype)
    assert isinstance(dense, ex.Call)
    return reshaped(replace(dense, span=layer.span), ex.tensor_type(layer).shape, layer.span)


def _before_reshape(expr: ex.Call) -> ex.Expr:
    """Rewrite f(reshape(x)) as reshape(f(x)) if the reshape keeps the last axis, the channels."""
    inner = expr.args[0]
    if not ex.is_call(inner, "reshape"):
        return expr
    data, shape = inner.args[0], ex.tensor_type(expr).shape
    if not _is_layer(data) or ex.tensor_type(data).shape[-1:] != shape[-1:]:
        return expr
    return reshaped(ex.again(expr, [data, *expr.args[1:]]), shape, expr.span)


def _is_layer(expr: ex.Expr) -> bool:
    """Whether `expr` is nn.dense, perhaps with followers."""
    while ex.is_call(expr, *_FOLLOWERS):
        expr = expr.args[0]
    return ex.is_call(expr, "nn.dense")


# Composes functions that run one after another into one; each may run several times per run of the last.


@dataclass(frozen=True, slots=True)
class Link:
    """A function of one input and its role in a chain.

    It runs `runs` times, each time on new rows along `axis` of its input; result `output` of each run goes to the next link.
    `name` is the prefix of the names of its states.
    """

    name: str
    main: ex.Function
    runs: int = 1
    axis: int = 1
    output: int = 0

    @property
    def input(self) -> TensorType:
        """The type of the input of one run."""
        (var,) = input_vars(self.main)
        return var.type


@module_pass(required=True)
def compose_functions(module: IRModule, _context: PassContext, *, links: Sequence[Link] = ()) -> IRModule:
    """Compose the functions of a chain's links, found by name in the module, into its main."""
    if not links:
        return module
    functions = {k: f for k, f in module.functions.items() if k not in {link.name for link in links}}
    parts = []
    for link in links:
        main = module[link.name]
        assert isinstance(main, ex.Function)
        parts.append(replace(link, main=main))
    return replace(module, functions={"main": composed(parts), **functions})


def composed(links: Sequence[Link]) -> ex.Function:
    """One function of the new rows for all runs of the first link; its results are the results of the last link, which runs once.

    The results of a link follow one another in memory as rows of the next link's input.  So the dimensions of that input before
    its axis are 1, and the number of runs of a link is a multiple of the next link's.  A link's state passes from each of its
    runs to the next, and from the last run to the first run of the next push.
    """
    first = links[0]
    (given,) = input_vars(first.main)
    x = ex.Var(given.name, with_rows(first.input, first.axis, first.runs * first.input.shape[first.axis]), given.span)
    parts = split(x, first.axis, first.runs, _first_span(first.main))
    params, states = [x], list[StateTensor]()
    news: list[ex.Expr] = []
    results: list[tuple[ex.Expr, ...]] = []
    for link, after in zip_longest(links, links[1:]):
        olds = [ex.Var(f"{link.name}_{v.name}", v.type, v.span) for v in state_vars(link.main)]
        current: Sequence[ex.Expr] = olds
        results = []
        for part in parts:
            found, current = applied(link.main, part, current)
            results.append(found)
        params += olds
        news += current
        states += [replace(s, name=f"{link.name}_{s.name}", shared=False) for s in state_of(link.main)]
        if after is not None:
            parts = _joined([r[link.output] for r in results], after)
    return ex.Function(tuple(params), ex.make_tuple([*results[-1], *news]), {**links[-1].main.attrs, STATE: tuple(states)})


def with_rows(type_: TensorType, axis: int, rows: int) -> TensorType:
    """The type with `rows` rows along an axis."""
    return replace(type_, shape=(*type_.shape[:axis], rows, *type_.shape[axis + 1 :]))


def _first_span(func: ex.Function) -> Span:
    """The span of the first operator, without its tensor of the file; nodes that produce its operands are attributed to it."""
    first = next((e for e in ex.post_order(func.body) if isinstance(e, ex.Call | ex.If | ex.While)), func.body)
    return replace(first.span, tensor=-1)


def split(x: ex.Expr, axis: int, count: int, span: Span = NO_SPAN) -> list[ex.Expr]:
    """`count` equal parts along an axis, attributed to the operator of `span`."""
    rows = ex.tensor_type(x).shape[axis] // count
    return [_slice(x, axis, (i * rows, (i + 1) * rows), span) for i in range(count)]


def applied(func: ex.Function, x: ex.Expr, states: Sequence[ex.Expr]) -> tuple[tuple[ex.Expr, ...], tuple[ex.Expr, ...]]:
    """The results and new states of a function of one input for these operands.

    Nodes lose their links to tensors of the file, as there are several files and several runs.
    """
    given = {id(v): e for v, e in zip(func.params, [x, *states], strict=True)}

    def rule(expr: ex.Expr) -> ex.Expr:
        if id(expr) in given:
            return given[id(expr)]
        known = isinstance(expr, ex.Call | ex.If | ex.While) and expr.span.tensor >= 0
        return replace(expr, span=replace(expr.span, tensor=-1)) if known else expr

    return result_exprs(ex.rewrite(func, rule))


def _joined(results: Sequence[ex.Expr], link: Link) -> list[ex.Expr]:
    """The inputs of a link's runs, from the results of the previous link."""
    span = _first_span(link.main)
    row, shape = link.input.size // link.input.shape[link.axis], link.input.shape
    rows = []
    for result in results:
        wanted = (*shape[: link.axis], ex.tensor_type(result).size // row, *shape[link.axis + 1 :])
        rows.append(reshaped(result, wanted, span))
    each = len(rows) // link.runs
    groups = (rows[i : i + each] for i in range(0, len(rows), each))
    return [group[0] if each == 1 else _concatenate(group, link.axis, span) for group in groups]
