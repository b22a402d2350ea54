"""Passes over PrimFuncs: layers whose kernels differ only in numbers (extents, strides, zero points) share one function.

The function gets the numbers as arguments, so code does not grow with the depth of a network. The price is a few instructions,
since the numbers are no longer constants.
"""

from __future__ import annotations

from dataclasses import replace

from aot.executor.lowered import KernelCall, LoweredModule
from aot.ir.module import IRModule
from aot.ir.transform import PassContext, module_pass
from aot.support.names import NameSupply
from aot.tir.expr import Imm
from aot.tir.function import PrimFunc
from aot.tir.functor import Callees, has_calls, with_callees
from aot.tir.transform import merge_functions, pipeline
from aot.tir.verify import verify


@module_pass(phase=LoweredModule)
def share_functions(lowered: LoweredModule, _context: PassContext) -> LoweredModule:
    """Merge functions that differ only in numbers; calls pass the numbers as scalars.  A cascade's row kernels count as layers.

    In and out: a LoweredModule after the passes over loop nests.  Modes that favour speed keep the numbers as constants.
    """
    if not lowered.config.mode.shares_functions:
        return lowered
    calls = list(lowered.calls)
    functions = lowered.prim_funcs
    supply = NameSupply(functions)
    plain = [(i, "") for i, c in enumerate(calls) if not c.callees]
    inner = [(i, name) for i, c in enumerate(calls) for name in c.callees if not has_calls(functions[name])]
    places = sorted(plain + inner)
    callees: Callees = {}
    for members, merged in merge_functions([functions[name or calls[i].func] for i, name in places]):
        if len(members) == 1:
            continue
        i, name = places[members[0]]
        shared = supply.fresh(f"{name or calls[i].func}_shared")
        functions[shared] = merged.func
        for (i, name), scalars in zip((places[m] for m in members), merged.scalars, strict=True):
            if name:
                added = merged.func.scalars[len(functions[name].scalars) :]  # its own scalars are operands already
                callees[name] = shared, tuple(Imm(v, var.dtype) for v, var in zip(scalars, added, strict=True))
            else:
                calls[i] = replace(calls[i], shared=shared, scalars=calls[i].scalars + scalars)
    calls = [_renamed(call, functions, callees) if call.callees else call for call in calls]
    return replace(lowered, functions=functions).with_calls(calls)


def _renamed(call: KernelCall, functions: dict[str, PrimFunc], callees: Callees) -> KernelCall:
    """A cascade's call once its functions call the shared ones."""
    for name in (*call.callees, call.func):
        if has_calls(functions[name]):
            functions[name] = with_callees(functions[name], callees)
    return replace(call, callees=tuple(dict.fromkeys(callees[n][0] if n in callees else n for n in call.callees)))


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
