"""Passes over loop nests, and their usual order."""

from __future__ import annotations

from aot.errors.tvm_names import missing_in
from aot.ir.module import IRModule
from aot.ir.transform import Sequential, unwatched
from aot.tir.function import PrimFunc
from aot.tir.transform.lowering import flatten, flatten_buffer, simplified, simplify, unroll, unroll_loop
from aot.tir.transform.merge_functions import (
    EqualKey,
    Merged,
    equal_key,
    interface_key,
    merge_functions,
    sharing_key,
    structural_key,
)
from aot.tir.verify import verify

__all__ = [
    "EqualKey", "Merged", "equal_key", "flatten", "flatten_buffer", "interface_key", "merge_functions", "optimize",
    "pipeline", "sharing_key", "simplified", "simplify", "structural_key", "trial", "unroll", "unroll_loop",
]  # fmt: skip


def pipeline() -> Sequential:
    """simplify, unroll_loop, flatten_buffer, simplify: from a kernel as written to what the code generator prints."""
    return Sequential((simplify, unroll_loop, flatten_buffer, simplify), "tir")


def trial(func: PrimFunc) -> PrimFunc:
    """Like `optimize`, for a function that is only inspected: the context's instruments do not see it."""
    with unwatched():
        return optimize(func)


def optimize(func: PrimFunc) -> PrimFunc:
    """One function through the pipeline, under the current PassContext and verified before and after.

    Raises InternalError E9003 for a function that is not well formed.
    """
    verify(func)
    result = pipeline()(IRModule({func.name: func}))[func.name]
    assert isinstance(result, PrimFunc)
    verify(result, unrolled=True)
    return result


__getattr__ = missing_in("tir.transform")
