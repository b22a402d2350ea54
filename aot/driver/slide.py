"""`--slide`: turns a network over a window into a network over its new rows, or says why that is not possible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from aot.driver.options import Options
from aot.errors import Problem, UnsupportedError, UsageError
from aot.ir.module import IRModule
from aot.ir.transform import Sequential
from aot.relay.expr import Call, Expr, Function, Var
from aot.relay.state import input_vars
from aot.relay.transform import graph_pipeline
from aot.relay.transform.sliding import LayerRows, RunningSum, SlideFront, SlidePlan, slide_front, slide_plan, sliding
from aot.relay.transform.stateful import narrow_windows, slide_window
from aot.support.dataclass import dataclass
from aot.support.names import c_identifier
from aot.support.text import did_you_mean, printable


@dataclass(frozen=True, slots=True)
class SlidingModel:
    """A network with sliding windows: its module, the plan, and per input name: index, axis, rows of the window, new rows.

    `front`: all plans worth having; later ones keep fewer bytes and do more work.
    """

    module: IRModule
    plan: SlidePlan
    front: SlideFront
    windows: Mapping[str, tuple[int, int, int, int]]

    def told(self) -> dict[str, Any]:
        """The entry `slide` of the metadata (docs/metadata.md)."""
        nodes, reasons = self.plan.nodes, self.plan.sliding.reasons
        return {
            "inputs": [
                {"index": i, "name": n, "axis": a, "rows": rows, "hop": hop} for n, (i, a, rows, hop) in self.windows.items()
            ],
            "macs_window": self.plan.macs_full,
            "rows_bytes": self.plan.total_bytes,
            "front": [{"rows_bytes": p.total_bytes, "macs": p.macs()} for p in self.front.plans],
            **({} if self.front.optimal else {"search": {"tried": self.front.tried, "ways": self.front.ways, "optimal": False}}),
            "layers": [_told(layer) for layer in self.plan.layers()],
            "whole": [{**_place(e), "reason": reasons[id(e)]} for e in nodes if id(e) in reasons and id(e) not in self.plan.sums],
            "sums": [_summed(e, self.plan.sums[id(e)]) for e in nodes if id(e) in self.plan.sums],
        }


def _told(layer: LayerRows) -> dict[str, Any]:
    row = {**_place(layer.expr), "macs": layer.macs, "macs_window": layer.macs_full}
    if layer.slide is None:
        return row
    return row | {"rows": layer.slide.rows, "computed": layer.count, "new": layer.slide.shift, "padded": layer.padded}


def _summed(expr: Expr, total: RunningSum) -> dict[str, Any]:
    read = round(total.share * total.slide.rows)
    return {**_place(expr), "rows": total.slide.rows, "read": read, "numbers": total.numbers}


def _place(expr: Expr) -> dict[str, str]:
    name = str(expr.op) if isinstance(expr, Call) else ""
    return {"op": expr.span.opcode or name, "name": printable(expr.span.name, limit=200)}


def slid(
    module: IRModule, options: Options, *, opt_level: int, most_bytes: int | None = None, must_gain: bool = True
) -> SlidingModel:
    """The module as a function of new rows, by the plan of least work that keeps at most `most_bytes`, else of the fewest bytes.

    If `must_gain` is false, rows of the window are kept even if each run computes everything else again.  UsageError E5330 for an
    input that does not exist, E5331 for a number of rows or an axis that the input does not have; UnsupportedError E1281 if a run
    would compute everything that a run on the whole window computes.
    """
    module = graph_pipeline(opt_level)(module)
    main = module["main"]
    assert isinstance(main, Function)
    hops = _hops(main, options)
    found = slide_front(main, sliding(main, hops))
    plans = found.plans
    if must_gain and not plans[0].gains:
        raise UnsupportedError(Problem("E1281", _no_gain(main, plans[0], hops)))
    plan = next((p for p in plans if most_bytes is None or p.total_bytes <= most_bytes), plans[-1])
    windows = {
        v.name: (i, axis, v.type.shape[axis], hop)
        for i, v in enumerate(input_vars(main))
        for axis, hop in ([hops[v.name]] if v.name in hops else [])
    }
    return SlidingModel(Sequential((slide_window.configured(plan=plan), narrow_windows), "slide")(module), plan, found, windows)


def _hops(main: Function, options: Options) -> dict[str, tuple[int, int]]:
    """The checked axis and hop of each sliding input, by its name in the file; the C identifier is accepted too, if unique."""
    inputs = {v.name: v for v in input_vars(main)}
    in_c = Counter(c_identifier(name, default="tensor") for name in inputs)
    names = {c: name for name in inputs if in_c[c := c_identifier(name, default="tensor")] == 1}
    hops: dict[str, tuple[int, int]] = {}
    for given, hop in options.slide:
        name = given if given in inputs else names.get(given, "")
        if not name:
            known, near = ", ".join(inputs), did_you_mean(given, inputs)
            raise UsageError(
                Problem("E5330", f"--slide {given}={hop}: the model has no input of that name{near}; there are {known}")
            )
        if name in hops:
            raise UsageError(Problem("E5018", f"--slide {given}={hop}: {name} has its rows already; give each input once"))
        hops[name] = _axis(inputs[name], options.slide_axis, hop), hop
    return hops


def _axis(var: Var, axis: int, hop: int) -> int:
    shape = var.type.shape
    if not -len(shape) <= axis < len(shape):
        raise UsageError(Problem("E5331", f"--slide-axis {axis}: the input {var.name} is {var.type}"))
    axis %= len(shape)
    if not 1 <= hop <= shape[axis]:
        message = (
            f"--slide {var.name}={hop}: axis {axis} of the input, {var.type}, has {shape[axis]} rows; choose 1 to {shape[axis]}"
        )
        raise UsageError(Problem("E5331", message))
    return axis


def _no_gain(main: Function, plan: SlidePlan, hops: Mapping[str, tuple[int, int]]) -> str:
    """Why sliding gains nothing, and which hops would gain something."""
    better = _other_hops(main, hops)
    first = next((e for e in plan.nodes if id(e) in plan.sliding.reasons), None)
    why = "" if first is None else f"; {first.span or _operator(first)} {plan.sliding.reasons[id(first)]}"
    hint = f"; choose {better} rows or a multiple" if better is not None else ""
    given = ", ".join(f"{name}={hop}" for name, (_, hop) in hops.items())
    return f"--slide {given}: each run would compute the whole window again{why}{hint}"


def _other_hops(main: Function, hops: Mapping[str, tuple[int, int]]) -> int | None:
    """The smallest multiple of a single input's hop that gains something, given the strides along the way; None if none does."""
    if len(hops) != 1:
        return None
    ((name, (axis, hop)),) = hops.items()
    rows = next(v for v in input_vars(main) if v.name == name).type.shape[axis]
    while (factor := sliding(main, {name: (axis, hop)}).factor) > 1 and hop * factor < rows:
        hop *= factor
        if slide_plan(main, sliding(main, {name: (axis, hop)})).gains:
            return hop
    return None


def _operator(expr: object) -> str:
    return str(expr.op) if isinstance(expr, Call) else "the graph"
