"""What a PrimFunc of a module computes from operands that are drawn: the meaning by which passes over loop nests are checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from aot.errors import InternalError
from aot.ir.module import IRModule
from aot.ir.op import Array
from aot.support.dtype import int_range, is_float, numpy_dtype
from aot.tir.buffer import Buffer
from aot.tir.builtin import BUILTINS
from aot.tir.function import PrimFunc
from aot.tir.interpreter import run_module
from aot.tir.stmt import For, If, Stmt, While

SPANS: tuple[int | None, ...] = (None, 8, 0)
"""Largest drawn integers, tried in turn: all of the type; small ones where indices or sums go wrong; zeros."""


def run_drawn(module: IRModule, name: str, seed: int) -> list[Array] | None:
    """The outputs of a function as bytes, with the module's constants and everything else drawn.

    None if it cannot run so: buffers of unknown size, or accesses that no drawn value keeps inside the buffers.
    """
    func = module.functions[name]
    assert isinstance(func, PrimFunc)
    func = func.with_body(_bounded(func.body))
    if not all(b.is_sized for b in func.buffers):
        return None
    funcs = BUILTINS | {n: f for n, f in module.functions.items() if isinstance(f, PrimFunc)}
    for span in SPANS:
        try:
            return _run(func, funcs, module.constants.get(name, {}), rng=np.random.default_rng(seed), span=span)
        except InternalError:
            continue
    return None


MOST_ITERATIONS = 64
"""Iterations of a While on drawn operands, with which it may never end."""


def _bounded(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """`body` with a limit for each While."""
    out: list[Stmt] = []
    for stmt in body:
        match stmt:
            case While(test=test, body=inner):
                stmt = replace(stmt, test=_bounded(test), body=_bounded(inner), limit=MOST_ITERATIONS)
            case For(body=inner):
                stmt = replace(stmt, body=_bounded(inner))
            case If(then=then, orelse=orelse):
                stmt = replace(stmt, then=_bounded(then), orelse=_bounded(orelse))
        out.append(stmt)
    return tuple(out)


def _run(
    func: PrimFunc, funcs: Mapping[str, PrimFunc], constants: Mapping[str, Array], *, rng: np.random.Generator, span: int | None
) -> list[Array]:  # fmt: skip
    buffers = {b.name: _drawn(b, rng, span) for b in (*func.inputs, *func.outputs, *func.consts)}
    buffers |= {b.name: np.ascontiguousarray(constants[b.name]) for b in func.consts if b.name in constants}
    buffers |= {b.name: np.zeros(b.shape, numpy_dtype(b.dtype)) for b in func.state}
    scalars = {v.name: int(rng.integers(0, 8)) if span is None else span for v in func.scalars}
    run_module(func, funcs, buffers, scalars)
    return [buffers[b.name].reshape(-1).view(np.uint8) for b in func.outputs]


def _drawn(buffer: Buffer, rng: np.random.Generator, span: int | None) -> Array:
    dtype = numpy_dtype(buffer.dtype)
    if is_float(buffer.dtype):
        return rng.standard_normal(buffer.shape).astype(dtype)
    low, high = int_range(buffer.dtype) if buffer.dtype != "bool" else (0, 1)
    if span is not None:
        low, high = max(low, 0), min(high, span)
    wide = np.uint64 if buffer.dtype == "uint64" else np.int64
    return rng.integers(low, high, buffer.shape, dtype=wide, endpoint=True).astype(dtype)
