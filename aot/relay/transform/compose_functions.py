"""Composes functions that run one after another into one; each may run several times per run of the last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest

from aot.ir.module import IRModule
from aot.ir.span import NO_SPAN, Span
from aot.ir.transform import PassContext, module_pass
from aot.ir.type import TensorType
from aot.relay.construct import constructor, reshaped, with_span
from aot.relay.expr import Call, Expr, Function, If, Var, While, make_tuple, post_order, rewrite, tensor_type
from aot.relay.state import STATE, StateTensor, input_vars, result_exprs, state_of, state_vars
from aot.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Link:
    """A function of one input and its role in a chain.

    It runs `runs` times, each time on new rows along `axis` of its input; result `output` of each run goes to the next link.
    `name` is the prefix of the names of its states.
    """

    name: str
    main: Function
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
        assert isinstance(main, Function)
        parts.append(replace(link, main=main))
    return replace(module, functions={"main": composed(parts), **functions})


def composed(links: Sequence[Link]) -> Function:
    """One function of the new rows for all runs of the first link; its results are the results of the last link, which runs once.

    The results of a link follow one another in memory as rows of the next link's input.  So the dimensions of that input before
    its axis are 1, and the number of runs of a link is a multiple of the next link's.  A link's state passes from each of its
    runs to the next, and from the last run to the first run of the next push.
    """
    first = links[0]
    (given,) = input_vars(first.main)
    x = Var(given.name, with_rows(first.input, first.axis, first.runs * first.input.shape[first.axis]), given.span)
    parts = split(x, first.axis, first.runs, _first_span(first.main))
    params, states = [x], list[StateTensor]()
    news: list[Expr] = []
    results: list[tuple[Expr, ...]] = []
    for link, after in zip_longest(links, links[1:]):
        olds = [Var(f"{link.name}_{v.name}", v.type, v.span) for v in state_vars(link.main)]
        current: Sequence[Expr] = olds
        results = []
        for part in parts:
            found, current = applied(link.main, part, current)
            results.append(found)
        params += olds
        news += current
        states += [replace(s, name=f"{link.name}_{s.name}", shared=False) for s in state_of(link.main)]
        if after is not None:
            parts = _joined([r[link.output] for r in results], after)
    return Function(tuple(params), make_tuple([*results[-1], *news]), {**links[-1].main.attrs, STATE: tuple(states)})


def with_rows(type_: TensorType, axis: int, rows: int) -> TensorType:
    """The type with `rows` rows along an axis."""
    return replace(type_, shape=(*type_.shape[:axis], rows, *type_.shape[axis + 1 :]))


def _first_span(func: Function) -> Span:
    """The span of the first operator, without its tensor of the file; nodes that produce its operands are attributed to it."""
    first = next((e for e in post_order(func.body) if isinstance(e, Call | If | While)), func.body)
    return replace(first.span, tensor=-1)


def split(x: Expr, axis: int, count: int, span: Span = NO_SPAN) -> list[Expr]:
    """`count` equal parts along an axis, attributed to the operator of `span`."""
    shape = tensor_type(x).shape
    if count == 1:
        return [x]
    rows = shape[axis] // count
    cut = constructor("strided_slice")
    zeros, parts = (0,) * len(shape), []
    for i in range(count):
        begin, end = list(zeros), list(shape)
        begin[axis], end[axis] = i * rows, (i + 1) * rows
        parts.append(with_span(cut(x, begin=tuple(begin), end=tuple(end)), span))
    return parts


def applied(func: Function, x: Expr, states: Sequence[Expr]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """The results and new states of a function of one input for these operands.

    Nodes lose their links to tensors of the file, as there are several files and several runs.
    """
    given = {id(v): e for v, e in zip(func.params, [x, *states], strict=True)}

    def rule(expr: Expr) -> Expr:
        if id(expr) in given:
            return given[id(expr)]
        known = isinstance(expr, Call | If | While) and expr.span.tensor >= 0
        return replace(expr, span=replace(expr.span, tensor=-1)) if known else expr

    return result_exprs(rewrite(func, rule))


def _joined(results: Sequence[Expr], link: Link) -> list[Expr]:
    """The inputs of a link's runs, from the results of the previous link."""
    join, span = constructor("concatenate"), _first_span(link.main)
    row, shape = link.input.size // link.input.shape[link.axis], link.input.shape
    rows = []
    for result in results:
        wanted = (*shape[: link.axis], tensor_type(result).size // row, *shape[link.axis + 1 :])
        rows.append(reshaped(result, wanted, span))
    each = len(rows) // link.runs
    groups = (rows[i : i + each] for i in range(0, len(rows), each))
    return [group[0] if each == 1 else with_span(join(group, axis=link.axis), span) for group in groups]
