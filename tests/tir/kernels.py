"""Small PrimFuncs for the tests of passes, and how to run them."""

from __future__ import annotations

from typing import Any

import numpy as np

from aot.support.dtype import int_range, is_float, numpy_dtype
from aot.te.tensor import elements_of, emit_nest, reduce_axis, tensor_fn
from aot.te.tensor import sum as te_sum
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, clamp, imm, logical_and, select
from aot.tir.function import PrimFunc
from aot.tir.interpreter import run

Array = np.ndarray[Any, Any]


def conv(h: int = 5, w: int = 4, *, channels: int = 3, out: int = 6, pad: int = -3) -> PrimFunc:
    """A 3x3 convolution, padded, from te: selects, reductions, products."""
    b = IRBuilder("conv")
    x = elements_of(b.input("x", (1, h, w, channels), "int8"))
    k = elements_of(b.input("k", (out, 3, 3, channels), "int8"))
    y = b.output("y", (1, h, w, out), "int32")

    def rule(b: IRBuilder, n: Expr, i: Expr, j: Expr, o: Expr) -> Expr:
        def term(p: Expr, q: Expr, c: Expr) -> Expr:
            r, s = i + p - 1, j + q - 1
            inside = logical_and(logical_and(r >= 0, r < h), logical_and(s >= 0, s < w))
            return select(inside, cast("int32", x.at(b, (n, r, s, c))), imm(pad)) * cast("int32", k.at(b, (o, p, q, c)))

        return te_sum(b, [reduce_axis(3, name="p"), reduce_axis(3, name="q"), reduce_axis(channels, name="r")], term)

    emit_nest(b, y, tensor_fn((1, h, w, out), "int32", rule))
    return b.finish()


def blocked_dense(m: int = 4, n: int = 6, k: int = 8) -> PrimFunc:
    """A matrix product with a register block written by hand: unrolled loops, a 2-D local, lets, a packed stream, scratch."""
    b = IRBuilder("dense")
    x = b.input("x", (m, k), "int8")
    params = b.input("params", (n * (4 + k),), "int8", align=4)
    y = b.output("y", (m, n), "int8")
    wide = b.scratch("wide", (2, k), "int16")
    with b.for_("i", m, step=2) as i:
        with b.for_("p", 2) as p, b.for_("c", k) as c:
            b.store(wide, (p, c), cast("int16", x[i + p, c]))
        with b.for_("j", n) as j:
            acc = b.local("acc", (2,), "int32", init=0)
            bias = b.let("bias", params.load("int32", j) & 1023)
            with b.for_("t", k) as t:
                weight = b.let("weight", cast("int32", params[n * 4 + j * k + t]))
                with b.for_("u", 2, kind="unroll") as u:
                    value = b.let("value", cast("int32", wide[u, t]))
                    b.store(acc, u, acc[u] + value * weight)
            with b.for_("u", 2, kind="unroll") as u:
                b.store(y, (i + u, j), clamp((acc[u] + bias) >> 5, -128, 127))
    return b.finish()


def random_buffers(func: PrimFunc, seed: int = 0) -> dict[str, Array]:
    """Arrays for inputs and consts over the whole range of their types, outputs filled with 0x55."""
    rng = np.random.default_rng(seed)
    out: dict[str, Array] = {}
    for b in (*func.inputs, *func.consts):
        dtype = numpy_dtype(b.dtype)
        if is_float(b.dtype):
            out[b.name] = rng.standard_normal(b.shape).astype(dtype)
        else:
            low, high = int_range(b.dtype)
            out[b.name] = rng.integers(low, high, b.shape, endpoint=True).astype(dtype)
    for b in func.outputs:
        out[b.name] = np.full(b.nbytes, 0x55, np.uint8).view(numpy_dtype(b.dtype)).reshape(b.shape)
    return out


def results(func: PrimFunc, *, seed: int = 0, poison: int = 0xA5) -> list[Array]:
    """The outputs on random inputs."""
    buffers = random_buffers(func, seed)
    run(func, buffers, poison=poison)
    return [buffers[b.name] for b in func.outputs]


def assert_same(before: PrimFunc, after: PrimFunc) -> None:
    """Both compute the same on random inputs."""
    for seed in range(2):
        for a, b in zip(results(before, seed=seed), results(after, seed=seed), strict=True):
            np.testing.assert_array_equal(a, b)
