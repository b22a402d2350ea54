"""The passes over loop nests, on the module of all functions of a model."""

from __future__ import annotations

from aot.executor.lowered import LoweredModule
from aot.ir.module import IRModule
from aot.ir.op import Array
from aot.support.names import NameSupply
from aot.tir.function import PrimFunc
from aot.tir.transform import pipeline
from aot.tir.verify import verify

Optimized = dict[PrimFunc, PrimFunc]
"""What came of each function."""


def functions_module(lowered: LoweredModule, done: Optimized) -> IRModule:
    """The functions that are not in `done`, under the names that calls have for them, with the constants that are known."""
    supply = NameSupply()
    functions: dict[str, PrimFunc] = {}
    constants: dict[str, dict[str, Array]] = {}
    seen = set(done)
    for call in lowered.calls:
        for name, callee in call.callees.items():
            if callee.func not in seen:
                functions[supply.fresh(name)] = callee.func
                seen.add(callee.func)
        if call.func not in seen:
            name = supply.fresh(call.func.name)
            functions[name], constants[name] = call.func, dict(call.constants)
            seen.add(call.func)
    return IRModule(functions, lowered.name, constants)


def optimize_functions(lowered: LoweredModule, done: Optimized) -> LoweredModule:
    """The lowered module with every function through the passes, all in one module, and verified before and after.

    `done` keeps the results for another lowered of some of the same functions.  E9003 for a function that is not well formed.
    """
    module = functions_module(lowered, done)
    if module.functions:
        for func in module.functions.values():
            assert isinstance(func, PrimFunc)
            verify(func)
        result = pipeline()(module)
        for name, func in module.functions.items():
            new = result[name]
            assert isinstance(func, PrimFunc)
            assert isinstance(new, PrimFunc)
            verify(new, unrolled=True)
            done[func] = new
    return lowered.map_functions(done.__getitem__)
