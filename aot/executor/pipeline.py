"""The executor's passes in order, from fused functions to a module of PrimFuncs, with a check after each phase."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from aot.errors import InternalError, Problem
from aot.executor.candidates import FusedModule
from aot.executor.lower_main import TirModule, aot_lower_main
from aot.executor.lower_te import cut_groups, lower_te
from aot.executor.lowered import LoweredModule, lowered_faults
from aot.executor.plan_memory import plan_memory, slide_windows, spread_pools, with_shared_functions
from aot.executor.select_kernels import select_kernels
from aot.executor.storage_map import Planned, StorageInfo
from aot.ir.module import IRModule, M, of_phase
from aot.ir.op import F_IS_VIEW, Op
from aot.ir.transform import PassContext, Sequential, module_pass
from aot.relay.expr import Call, Function, post_order
from aot.support.dtype import itemsize
from aot.tir.expr import Imm
from aot.tir.function import PrimFunc
from aot.tir.functor import has_calls, walk
from aot.tir.intrin import BUILTINS
from aot.tir.stmt import CallPrim, Region
from aot.tir.transform import pipeline
from aot.tir.verify import verify

__all__ = [
    "aot_lower_main", "check_phase", "cut_groups", "lower_and_plan", "lower_main", "lower_te", "plan_memory", "select_kernels",
    "share_functions", "slide_windows", "spread_pools", "with_groups",
]  # fmt: skip


# ---- layers whose kernels differ only in numbers (extents, strides, zero points) share one function
#
# The function gets the numbers as arguments, so code does not grow with the depth of a network. The price is a few instructions,
# since the numbers are no longer constants.


@module_pass(phase=LoweredModule)
def share_functions(lowered: LoweredModule, _context: PassContext) -> LoweredModule:
    """Merge functions that differ only in numbers; calls pass the numbers as scalars.  A cascade's row kernels count as layers.

    In and out: a LoweredModule after the passes over loop nests.  Modes that favour speed keep the numbers as constants.
    """
    if not lowered.config.mode.shares_functions:
        return lowered
    functions, calls = lowered.prim_funcs, list(enumerate(lowered.calls))
    plain = [(i, "") for i, c in calls if not c.callees]
    inner = [(i, name) for i, c in calls for name in c.callees if not has_calls(functions[name])]
    return with_shared_functions(lowered, sorted(plain + inner))


# ---- the passes over loop nests, run on a module of all functions of a model


def optimize_functions(lowered: LoweredModule, done: dict[PrimFunc, PrimFunc]) -> LoweredModule:
    """Run the passes on every function of the lowered module, all at once, and verify the functions before and after.

    `done` caches the optimised form of each function for other modules.  E9003 for a function that is not well formed.
    """
    functions = lowered.prim_funcs
    if not PassContext.current().instruments:  # instruments must see every function
        functions = {name: func.core for name, func in functions.items()}
    firsts = {func: name for name, func in reversed(functions.items()) if func not in done}
    todo = {name: func for name, func in functions.items() if firsts.get(func) == name}
    if todo:
        for func in todo.values():
            verify(func)
        result = pipeline()(_only(lowered, todo))
        for name, func in todo.items():
            new = result[name]
            assert isinstance(new, PrimFunc)
            verify(new, unrolled=True)
            done[func] = new
    return replace(lowered, functions={name: _named(done[functions[name]], func) for name, func in lowered.prim_funcs.items()})


def _named(done: PrimFunc, func: PrimFunc) -> PrimFunc:
    """The optimised function with the name and attributes of `func`, which is otherwise equal to its original."""
    if done.name == func.name and done.attrs == func.attrs:
        return done
    return replace(done, name=func.name, attrs=func.attrs, like=done)


def _only(lowered: LoweredModule, functions: dict[str, PrimFunc]) -> IRModule:
    """The whole module if `functions` are all of its functions, else a module of these alone."""
    if len(functions) == len(lowered.functions):
        return lowered
    return IRModule(functions, lowered.name, {n: c for n, c in lowered.constants.items() if n in functions})


# ---- the passes in order


GROUPS = Sequential((cut_groups,), "groups")
LOWER = Sequential((lower_te, select_kernels), "lower")
PLAN = Sequential((share_functions, plan_memory), "plan")
MAIN = Sequential((spread_pools, slide_windows, aot_lower_main), "main")


def with_groups(module: FusedModule) -> FusedModule:
    """The module whose fused functions are ready to be lowered."""
    return check_phase("fused", of_phase(GROUPS(module), FusedModule, "the executor"))


def lower_and_plan(module: FusedModule) -> Planned:
    """Choose kernels, run the passes over their loop nests, and plan memory.

    E9101 or E9102 if a step leaves an inconsistent module; NothingFits if no plan is within the budget.
    """
    lowered = of_phase(LOWER(module), LoweredModule, "the executor")
    lowered = optimize_functions(check_phase("lowered", lowered), module.cache.optimized)
    return check_phase("planned", of_phase(PLAN(lowered), Planned, "the executor"))


def lower_main(module: Planned) -> TirModule:
    """The module with everything as a PrimFunc (E9103 if it is not); E2013 or E5019 if the plan does not suit the pools."""
    return check_phase("tir", of_phase(MAIN(module), TirModule, "the executor"))


# ---- what holds in each phase of a module, checked when one room of the compiler passes it to the next
#
# fused    relay main calls fused functions only
# lowered  calls of PrimFuncs over tensors, in an order of execution
# planned  every tensor has a place, and every place suits its users
# tir      everything is a PrimFunc, and every called function exists


def check_phase(phase: str, module: M) -> M:
    """Return `module` if it satisfies everything that the phase promises, else raise InternalError with all faults."""
    code, faults = PHASES[phase]
    problems = [Problem(code, message, module.name) for message in faults(module)]
    if problems:
        raise InternalError(*problems)
    return module


def _fused_faults(module: IRModule) -> Iterator[str]:
    main = module.functions.get("main")
    if not isinstance(main, Function):
        yield "there is no relay function main"
        return
    for expr in post_order(main.body):
        if isinstance(expr, Call) and isinstance(expr.op, Function):
            if not expr.op.is_primitive:
                yield f"{expr.op.attrs.get('name', 'a function')} is called but not marked primitive"
        elif isinstance(expr, Call) and not (isinstance(expr.op, Op) and F_IS_VIEW.find(expr.op.name)):
            yield f"{expr.op} is not in a fused function ({expr.span})"


def _lowered_faults(module: IRModule) -> Iterator[str]:
    yield from lowered_faults(of_phase(module, LoweredModule, "the phase lowered"))


def _planned_faults(module: IRModule) -> Iterator[str]:
    planned = of_phase(module, Planned, "the phase planned")
    faults = list(lowered_faults(planned))
    layout = planned.layout
    sizes = {b.name: b.size for b in layout.buffers}
    if not faults and [len(names) for names in layout.scratch] != [len(planned.kernel(c).scratch) for c in planned.calls]:
        faults.append("the plan is one of other calls")
    if faults:
        yield from faults
        return
    for i, (call, scratch) in enumerate(zip(planned.calls, layout.scratch, strict=True)):
        func = planned.kernel(call)
        for tensor, buffer in zip(call.tensors, (*func.inputs, *func.outputs), strict=True):
            root, offset = planned.place_in_root(tensor)
            place = layout.places.get(root)
            where = f"layer {i} ({call.func}): {tensor.name}"
            if place is None:
                yield f"{where} has no place"
            elif place.where == "workspace":
                yield from (f"{where} {fault}" for fault in _place_faults(planned, place, offset, buffer.dtype, buffer.nbytes))
        for name, buffer in zip(scratch, func.scratch, strict=True):
            if sizes.get(name, -1) < buffer.nbytes or name not in layout.plan.offset:
                yield f"layer {i} ({call.func}): scratch {buffer.name} has no place"


def _place_faults(planned: Planned, place: StorageInfo, offset: int, dtype: str, size: int) -> Iterator[str]:
    layout = planned.layout
    if place.key not in layout.plan.offset:
        yield f"lies in {place.key}, which the plan does not have"
        return
    start = layout.offset(place) + offset
    if start % itemsize(dtype):
        yield f"lies at {start}, not aligned for {dtype}"
    if start + size > layout.plan.size:
        yield f"ends at byte {start + size} of a workspace of {layout.plan.size}"


def _tir_faults(module: IRModule) -> Iterator[str]:
    funcs: dict[str, PrimFunc] = dict(BUILTINS)
    for name, func in module.functions.items():
        if isinstance(func, PrimFunc):
            funcs[name] = func
        else:
            yield f"{name} is not a PrimFunc"
    for name, func in funcs.items():
        for call in walk(func.body):
            if isinstance(call, CallPrim):
                yield from (f"{name} calls {call.func}: {fault}" for fault in _operand_faults(call, funcs.get(call.func)))


def _operand_faults(call: CallPrim, func: PrimFunc | None) -> Iterator[str]:
    if func is None:
        yield "there is no such function"
        return
    if len(call.operands) != len(func.params):
        yield f"{len(call.operands)} operands for {len(func.params)} parameters"
        return
    for operand, buffer in zip(call.operands, func.buffers, strict=False):
        if not isinstance(operand, Region):
            yield f"{buffer.name} is given a number"
        elif operand.dtype != buffer.dtype:
            yield f"{buffer.name} is {buffer.dtype}, given {operand.dtype}"
        elif isinstance(operand.index, Imm) and operand.buffer.is_sized and buffer.is_sized:
            end = int(operand.index.value) * itemsize(operand.dtype) + buffer.nbytes
            if end > operand.buffer.nbytes:
                yield f"{buffer.name} ends at byte {end} of {operand.buffer.name}, which has {operand.buffer.nbytes}"
    for scalar, var in zip(call.operands[len(func.buffers) :], func.scalars, strict=True):
        if isinstance(scalar, Region) or scalar.dtype != var.dtype:
            yield f"{var.name} is {var.dtype}, given {'memory' if isinstance(scalar, Region) else scalar.dtype}"


PHASES: dict[str, tuple[str, Callable[[IRModule], Iterator[str]]]] = {
    "fused": ("E9100", _fused_faults),
    "lowered": ("E9101", _lowered_faults),
    "planned": ("E9102", _planned_faults),
    "tir": ("E9103", _tir_faults),
}
"""The phases by name, in order: the error code of a fault, and a function that lists all faults of a module."""
