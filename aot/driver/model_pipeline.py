"""Chains: several models, each with its own rate, as one function of the newest elements of the first model's input.

Consecutive stages form a group, which is one function, if each stage reads exactly the result of the one before.  The first stage
of a group may be a sliding window (`slide`).  If its window advances by the results of k runs of the group before, it runs once
after every k of those runs.  All of this is known at compile time, so a push is one function that contains all runs
(docs/adr/0022-chains.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import gcd, prod
from typing import Any

from aot.driver.options import Options
from aot.driver.slide import SlidingModel, slid
from aot.errors import AotError, Problem, UnsupportedError
from aot.frontend.chain import Chain, Stage
from aot.frontend.formats import from_model, nominal_macs, specialize
from aot.ir.module import IRModule
from aot.ir.transform import Sequential
from aot.ir.type import TensorType
from aot.relay.expr import Function
from aot.relay.state import input_vars
from aot.relay.stored import widen_float16
from aot.relay.transform.stateful import Link, compose_functions
from aot.support.dataclass import dataclass
from aot.support.dtype import is_float
from aot.support.text import did_you_mean, printable

MOST_RUNS = 64
"""The most runs of one stage in a push; each has its own calls in the main function."""


@dataclass(frozen=True, slots=True)
class PipelineModel:
    """One module for a push, and the entry `chain` of the metadata (docs/metadata.md)."""

    module: IRModule
    told: dict[str, Any]

    @property
    def slides(self) -> bool:
        """Whether some layer with weights gets new rows only."""
        windows = [stage["slide"] for stage in self.told["stages"] if stage["slide"] is not None]
        return any("rows" in layer for window in windows for layer in window["layers"])


@dataclass(frozen=True, slots=True)
class _Group:
    """Stages that run as one function; `result`: the type of the result that the last stage passes on, number `link.output`."""

    stages: tuple[Stage, ...]
    link: Link
    result: TensorType
    slid: SlidingModel | None = None


def chained(chain: Chain, options: Options, *, opt_level: int, name: str) -> PipelineModel:
    """The chain as one module; groups that are windows have been through `graph_pipeline`.

    UnsupportedError E1301 if quantised values or element types do not match between stages, E1302 for sizes and rates, E1303 for
    a result that does not exist, E1304 for a stage with several inputs.  Otherwise the errors of the stages' models, with the
    stage before the place.
    """
    groups: list[_Group] = []
    for stage in chain.stages:
        with _at(stage):
            group = _read(stage, options)
            if groups and stage.slide is None:
                _refuse(_whole_faults(groups[-1], group) + _code_faults(groups[-1], group))
                groups[-1] = _grown(groups[-1], group)
            else:
                groups.append(group)
    groups = [_windowed(g, options, opt_level) for g in groups]
    groups = _with_runs(groups)
    return PipelineModel(_composed([g.link for g in groups], name), _told(chain, groups))


def _composed(links: Sequence[Link], name: str) -> IRModule:
    """The links as one function."""
    module = IRModule({link.name: link.main for link in links}, name)
    return Sequential((compose_functions.configured(links=links),), "chain")(module)


@contextmanager
def _at(stage: Stage) -> Iterator[None]:
    """Name the stage in errors raised inside."""
    try:
        yield
    except AotError as error:
        where = f"stage {printable(stage.name)}"
        found = (Problem(p.code, p.message, f"{where}, {p.where}" if p.where else where) for p in error.problems)
        raise type(error)(*found) from None


def _read(stage: Stage, options: Options) -> _Group:
    """A stage by itself, as in its file."""
    module = from_model(specialize(stage.model), oracle=options.oracle, name=stage.name)
    if options.float16 == "fold":
        module = Sequential((widen_float16,), "float16")(module)
    main = module["main"]
    assert isinstance(main, Function)
    given = input_vars(main)
    if len(given) != 1:
        names = ", ".join(printable(v.name) for v in given) or "none"
        raise UnsupportedError(Problem("E1304", f"a stage of a chain has one input, this model has {len(given)}: {names}"))
    axis = _axis(stage, given[0].type)
    output = _output(stage, [span.name for span in main.attrs["outputs"]])
    link = Link(stage.name, main, 1, axis, output)
    return _Group((stage,), link, main.attrs["output_types"][output])


def _axis(stage: Stage, given: TensorType) -> int:
    """The axis of a stage's rows in its input; all axes before it have size 1.  Without a window: the first axis above 1."""
    shape = given.shape
    if stage.slide is None and shape:
        return next((i for i, extent in enumerate(shape) if extent > 1), len(shape) - 1)
    if not -len(shape) <= stage.axis < len(shape) or prod(shape[: stage.axis % len(shape)]) != 1:
        message = f"axis = {stage.axis}: the input is {given}; time is an axis with nothing but 1 in front of it"
        raise UnsupportedError(Problem("E1302", message))
    return stage.axis % len(shape)


def _output(stage: Stage, names: Sequence[str]) -> int:
    """The index of the result that goes to the next stage."""
    if stage.output is None:
        return 0
    if stage.output not in names:
        near = did_you_mean(stage.output, names)
        known = ", ".join(map(printable, names))
        raise UnsupportedError(
            Problem("E1303", f"output = {printable(stage.output)}: there is no such result{near}; there are {known}")
        )
    return names.index(stage.output)


def _refuse(faults: Sequence[Problem]) -> None:
    if faults:
        raise UnsupportedError(*faults)


def _code_faults(before: _Group, group: _Group) -> list[Problem]:
    """Faults if the element types differ, or the quantisations where both are known (E1301)."""
    a, b = before.result, group.link.input
    known = a.quant is not None and b.quant is not None
    if a.dtype == b.dtype and (not known or a.quant == b.quant):
        return []
    name = printable(before.stages[-1].name)
    way = "convert both models to the same element type"
    if b.quant is not None and (known or is_float(a.dtype)):
        way = f"a QUANTIZE at the end of {name} converts"
    elif a.quant is not None and is_float(b.dtype):
        way = f"a DEQUANTIZE at the end of {name} converts"
    return [Problem("E1301", f"it takes {_kind(b)}, and {name} gives {_kind(a)}; {way}")]


def _kind(type_: TensorType) -> str:
    """The type with its quantisation."""
    quant = type_.quant
    return str(type_) if quant is None else f"{type_} scale {quant.scale[0]:.9g} zero point {quant.zero_point[0]}"


def _whole_faults(before: _Group, group: _Group) -> list[Problem]:
    """Faults if a stage without a window does not read exactly what the stage before produces (E1302)."""
    a, b = before.result, group.link.input
    if a.size == b.size:
        return []
    name = printable(before.stages[-1].name)
    hint = "; if it is a window over time, say by how many rows it moves: slide = N" if b.size > a.size else ""
    return [Problem("E1302", f"it takes {b.size:,} elements ({b}), and {name} gives {a.size:,} ({a}){hint}")]


def _grown(before: _Group, group: _Group) -> _Group:
    """Two groups as one; the second reads the results of the first as they are."""
    main = _composed([before.link, group.link], before.link.name)["main"]
    assert isinstance(main, Function)
    link = replace(before.link, main=main, output=group.link.output)
    return _Group((*before.stages, *group.stages), link, group.result)


def _windowed(group: _Group, options: Options, opt_level: int) -> _Group:
    """The group as a function of new rows, if its first stage is a window."""
    head = group.stages[0]
    if head.slide is None:
        return group
    with _at(head):
        (var,) = input_vars(group.link.main)
        if head.slide == var.type.shape[group.link.axis]:
            return group  # windows do not overlap: each run gets a whole new one
        asked = replace(options, slide=((var.name, head.slide),), slide_axis=group.link.axis)
        found = slid(IRModule({"main": group.link.main}, head.name), asked, opt_level=opt_level, must_gain=False)
    main = found.module["main"]
    assert isinstance(main, Function)
    return replace(group, link=replace(group.link, main=main), slid=found)


def _with_runs(groups: Sequence[_Group]) -> list[_Group]:
    """The groups, each with its number of runs per run of the last group (E1302, E1301)."""
    runs, found = 1, [groups[-1]]
    for group, before in zip(groups[:0:-1], groups[-2::-1], strict=True):
        with _at(group.stages[0]):
            _refuse(_code_faults(before, group))
            runs *= _runs_before(before, group)
            if runs > MOST_RUNS:
                message = f"{printable(before.stages[0].name)} would run {runs} times in a push, {MOST_RUNS} is the most"
                raise UnsupportedError(Problem("E1302", f"{message}; let windows move by fewer rows"))
        found.append(replace(before, link=replace(before.link, runs=runs)))
    return found[::-1]


def _runs_before(before: _Group, group: _Group) -> int:
    """How many results of a group are the new rows of the next group's window (E1302)."""
    new, each = group.link.input, before.result.size
    row = new.size // new.shape[group.link.axis]
    if new.size % each == 0:
        return new.size // each
    rows = each // gcd(each, row)
    name = printable(before.stages[-1].name)
    message = (
        f"slide = {group.stages[0].slide} rows of {row:,} elements are no whole number of results of {name}, {each:,} elements"
    )
    raise UnsupportedError(Problem("E1302", f"{message}; choose a multiple of {rows}"))


def _told(chain: Chain, groups: Sequence[_Group]) -> dict[str, Any]:
    """The parts of a push, as the metadata lists them."""
    rows: list[dict[str, Any]] = []
    pushes = 0
    for group in groups:
        head, link = group.stages[0], group.link
        window = None if group.slid is None else next(iter(group.slid.windows.values()))
        told = None if group.slid is None else group.slid.told()
        if window is not None:
            pushes += -(-window[2] // (window[3] * link.runs))
        for stage in group.stages:
            own = stage is head
            rows.append({
                "name": stage.name,
                "runs": link.runs,
                "axis": window[1] if own and window is not None else None,
                "rows": window[2] if own and window is not None else None,
                "hop": window[3] if own and window is not None else None,
                "macs_window": nominal_macs(specialize(stage.model)),
                "slide": told if own else None,
            })  # fmt: skip
    first = groups[0].link
    hop = first.runs * first.input.shape[first.axis]
    return {"rate": chain.rate, "hop": hop, "axis": first.axis, "pushes": max(pushes, 1), "stages": rows}
