"""Layers whose kernels differ in numbers only (extents, strides, zero points) share one function, which takes them as arguments.

So code does not grow with the depth of a network, at the price of a few instructions for numbers that are no longer constants.
"""

from __future__ import annotations

from dataclasses import replace

from aot.executor.lowered import LoweredModule
from aot.tir.functor import has_calls
from aot.tir.transform import merge_functions


def share_functions(lowered: LoweredModule) -> LoweredModule:
    """The module with merged functions; the calls give the numbers as scalars.  A cascade's row kernels count as layers."""
    calls = list(lowered.calls)
    plain = [(i, "") for i, c in enumerate(calls) if not c.callees]
    inner = [(i, name) for i, c in enumerate(calls) for name, f in c.callees.items() if not has_calls(f.func)]
    places = sorted(plain + inner)
    funcs = [calls[i].callees[name].func if name else calls[i].func for i, name in places]
    for members, merged in merge_functions(funcs):
        for (i, name), scalars in zip((places[m] for m in members), merged.scalars, strict=True):
            if len(members) == 1:
                continue
            call = calls[i]
            if name:
                callee = replace(call.callees[name], shared=merged.func, scalars=call.callees[name].scalars + scalars)
                calls[i] = replace(call, callees={**call.callees, name: callee})
            else:
                calls[i] = replace(call, shared=merged.func, scalars=call.scalars + scalars)
    return replace(lowered, calls=tuple(calls))
