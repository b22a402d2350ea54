"""Memory planning: bounds for a graph, and the passes that plan its memory and spread the chosen plan over the pools.

A sliding window is in the state, with its new rows behind the kept ones (`copy_elision`).  The state is therefore longer than the
rows that must survive from run to run: it also has the new rows of one window, as far as no other window has room for them.
If these are many compared to the kept rows, and the workspace has room when they are computed, the window is assembled in the
workspace instead, and its kept rows are copied in and out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from aot.errors import UsageError
from aot.executor.cascade_nest import row_form
from aot.executor.config import SLIDE_SHARE
from aot.executor.lower_te import execution_order
from aot.executor.lowered import LoweredModule
from aot.executor.slide_windows import least_state
from aot.executor.storage_map import Planned, make_layout, plan_lowered
from aot.ir.op import F_IS_VIEW, Op
from aot.ir.transform import PassContext, module_pass
from aot.ir.type import TensorType, TupleType, Type
from aot.memory.streaming import Read, RowBound, RowGraph, RowOp, RowTensor, fed_by_rows, streaming_bound, whole_tensor_bound
from aot.relay.expr import Call, Constant, Expr, Function, If, Tuple, TupleGetItem, While, inner_functions, operands
from aot.relay.state import input_vars, state_vars
from aot.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bytes of the workspace, without scratch memory (aot/memory/streaming.py).

    `liveness`: whole tensors that never overlap.  `streaming`: rows on demand, inputs resident.  `fed`: like `streaming`, with
    inputs that arrive row by row.
    """

    liveness: int
    streaming: RowBound
    fed: RowBound


def memory_bounds(main: Function, shapes: Mapping[int, tuple[int, ...]], *, io: str = "arena") -> Bounds:
    """The bounds of the fused main function.

    `shapes` are the shapes of the file's tensors by index.  A tensor with removed channels counts in full, so that the bounds
    describe the model and not its optimised form.  With `io` "user", inputs and outputs belong to the caller and count as 0.
    """
    graph = row_graph(main, shapes, io=io)
    return Bounds(whole_tensor_bound(graph), streaming_bound(graph), streaming_bound(fed_by_rows(graph)))


def row_graph(main: Function, shapes: Mapping[int, tuple[int, ...]], *, io: str = "arena") -> RowGraph:
    """The fused main function as a graph for the bounds; `shapes` and `io` as in `memory_bounds`."""
    return _Graph(main, shapes).graph(io)


class _Graph:
    """Converts the main function to tensors with rows."""

    def __init__(self, main: Function, shapes: Mapping[int, tuple[int, ...]]) -> None:
        self.main = main
        self.shapes = shapes
        self.removed = main.attrs.get("channels", {})
        self.tensors: list[RowTensor] = []
        self.ops: list[RowOp] = []
        self.refs: dict[int, tuple[int | None, ...]] = {}
        self.images: list[tuple[int, ...]] = []

    def graph(self, io: str) -> RowGraph:
        for var in self.main.params:
            self.refs[id(var)] = (self.tensor(var, var.type),)
        inputs = tuple(t for v in input_vars(self.main) for t in self.refs[id(v)] if t is not None)
        states = {t: None for v in state_vars(self.main) for t in self.refs[id(v)] if t is not None}
        for expr in execution_order(self.main):
            if id(expr) not in self.refs:
                self.refs[id(expr)] = self.visit(expr)
        outputs = tuple(dict.fromkeys(t for t in self.refs[id(self.main.body)] if t is not None))
        outside = {*inputs, *outputs, *states} if io == "user" else set(states)
        tensors = tuple(replace(t, row_bytes=0) if i in outside else t for i, t in enumerate(self.tensors))
        return RowGraph(tensors, tuple(self.ops), (*inputs, *states), outputs)

    def tensor(self, expr: Expr, type_: TensorType) -> int:
        shape = type_.shape
        if expr.span.tensor in self.removed and len(self.shapes.get(expr.span.tensor, ())) == len(shape):
            shape = self.shapes[expr.span.tensor]
        full = replace(type_, shape=shape, quant=None)
        rows = shape[1] if len(shape) == 4 and shape[0] == 1 and shape[1] else 1
        self.tensors.append(RowTensor(expr.span.name, rows, full.nbytes // rows))
        self.images.append(shape)
        return len(self.tensors) - 1

    def visit(self, expr: Expr) -> tuple[int | None, ...]:
        """The tensors that a node denotes; None for a constant, which is not in the workspace."""
        match expr:
            case Constant():
                return (None,)
            case Call(op=Function()):
                return self.layer(expr)
            case Call(op=Op(name=op)) if F_IS_VIEW.find(op):
                return self.refs[id(expr.args[0])]
            case Tuple():
                return tuple(t for f in expr.fields for t in self.refs[id(f)])
            case TupleGetItem():
                return (self.refs[id(expr.value)][expr.index],)
            case If() | While():
                return self.control(expr)
        return ()

    def control(self, expr: If | While) -> tuple[int, ...]:
        """A branch or loop as one operator on whole tensors, which also needs the peak memory of its functions."""
        types: tuple[Type, ...] = expr.type.fields if isinstance(expr.type, TupleType) else (expr.type,)
        outputs = tuple(self.tensor(expr, t) for t in types if isinstance(t, TensorType))
        inside = max(whole_tensor_bound(_Graph(f, {}).graph("user")) for f in inner_functions(expr))
        self.tensors.append(RowTensor("inside", 1, inside))
        self.images.append(())
        reads = [Read(t) for o in operands(expr) for t in self.refs[id(o)] if t is not None]
        self.ops.append(RowOp(tuple(reads), (*outputs, len(self.tensors) - 1), row_local=False))
        return outputs

    def layer(self, call: Call) -> tuple[int, ...]:
        func = call.op
        assert isinstance(func, Function)
        types: tuple[Type, ...] = call.type.fields if isinstance(call.type, TupleType) else (call.type,)
        outputs = tuple(self.tensor(call, t) for t in types if isinstance(t, TensorType))
        form = row_form(func) if len(outputs) == 1 else None
        reads = []
        for k, arg in enumerate(call.args):
            t = self.refs[id(arg)][0]
            if t is None:
                continue
            rows = form[k] if form else None
            # a view may divide the bytes into other rows, so its reader needs the whole tensor
            same = isinstance(arg.type, TensorType) and arg.type.shape[1:2] == self.images[t][1:2] and len(self.images[t]) == 4
            if rows is None or not same:
                form = None
                reads.append(Read(t))
            else:
                reads.append(Read(t, rows.extent, rows.stride, rows.before, rows.repeat))
        self.ops.append(RowOp(tuple(reads), outputs, row_local=form is not None))
        return outputs


@module_pass(required=True, phase=LoweredModule)
def plan_memory(module: LoweredModule, _context: PassContext) -> Planned:
    """Give every tensor a place, by liveness and safe distances; copies become views.

    In: a LoweredModule.  Out: a Planned, whose plan the verifier accepts (E9005 otherwise).
    """
    planning = module.planning
    planned = plan_lowered(module, planning.io, tight=module.config.tight)
    if module.config.slides and (planning.rings == "copy" or planning.ring_share):
        return _with_visitors(module, planned)
    return planned


def _with_visitors(lowered: LoweredModule, planned: Planned) -> Planned:
    """Move windows into the workspace one at a time, while the state is too long and each move reduces total memory."""
    kept, visiting = sum(s.old.type.nbytes for s in lowered.states), set[int]()

    def total(plan: Planned) -> tuple[bool, int]:
        return not plan.fits, plan.whole + least_state(plan)

    while least_state(planned) > kept + kept // SLIDE_SHARE:
        trials = []
        for i in {i for i, s in enumerate(planned.states) if planned.root(s.new) is planned.root(s.old)} - visiting:
            trial = plan_lowered(lowered, lowered.planning.io, tight=lowered.config.tight, visiting={i, *visiting})
            trials.append((total(trial), i, trial))
        least, best, trial = min(trials, key=lambda t: t[:2], default=(total(planned), -1, planned))
        if best < 0 or least >= total(planned):
            break
        planned, visiting = trial, {best, *visiting}
    return planned


@module_pass(required=True, phase=Planned)
def spread_pools(planned: Planned, _context: PassContext) -> Planned:
    """Put each buffer into the pool that minimises the time of all accesses, without exceeding the plan's bytes.

    In: a Planned.  Out: a Planned of the same calls, unchanged if there are no pools, or if one pool holds everything and none is
    faster.  Raises E2013 if the pools cannot hold the plan, and E5019 for a pin that matches nothing in it.
    """
    if not planned.planning.pooling.pools:
        return planned
    if isinstance(planned.layout.unfit, UsageError):
        raise planned.layout.unfit
    layout = make_layout(planned, planned.planning.io, spread=True)
    if layout.unfit is not None:
        raise layout.unfit
    return replace(planned, layout=layout)
