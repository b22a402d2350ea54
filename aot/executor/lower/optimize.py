"""The passes over loop nests, on the module of all functions of a model."""

from __future__ import annotations

from dataclasses import replace

from aot.executor.lowered import LoweredModule
from aot.ir.module import IRModule
from aot.ir.transform import PassContext
from aot.tir.function import PrimFunc
from aot.tir.transform import pipeline
from aot.tir.verify import verify

Optimized = dict[PrimFunc, PrimFunc]
"""What came of each function."""


def optimize_functions(lowered: LoweredModule, done: Optimized) -> LoweredModule:
    """The lowered module with every function through the passes, all in one module, and verified before and after.

    `done` keeps the results for another module with some of the same functions.  E9003 for a function that is not well formed.
    """
    functions = lowered.prim_funcs
    if not PassContext.current().instruments:  # which want to see every function
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
    """What the passes made of a function, under the name and with the attributes of one that is equal but for these."""
    if done.name == func.name and done.attrs == func.attrs:
        return done
    return replace(done, name=func.name, attrs=func.attrs, like=done)


def _only(lowered: LoweredModule, functions: dict[str, PrimFunc]) -> IRModule:
    """The whole module where all functions are meant, else these alone."""
    if len(functions) == len(lowered.functions):
        return lowered
    return IRModule(functions, lowered.name, {n: c for n, c in lowered.constants.items() if n in functions})
