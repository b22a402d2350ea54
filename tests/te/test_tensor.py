"""From tensors to loop nests: shapes, reductions and several outputs, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from aot.te import tensor as te
from aot.te.tensor import TensorFn, emit_nest
from aot.te.tensor import max as te_max
from aot.te.tensor import min as te_min
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm
from aot.tir.function import PrimFunc
from aot.tir.functor import walk
from aot.tir.interpreter import run
from aot.tir.stmt import For
from aot.tir.verify import verify


def computing(b: IRBuilder, outputs: list[tuple[Buffer, TensorFn]]) -> PrimFunc:
    """The function that computes each (output buffer, tensor), one nest after the other."""
    for out, tensor in outputs:
        emit_nest(b, out, tensor)
    return b.finish()


def test_elementwise_chain_has_one_nest_and_no_loop_over_ones() -> None:
    b = IRBuilder("f")
    x = te.elements_of(b.input("x", (1, 3, 1, 4), "int8"))
    twice = te.tensor_fn(x.shape, "int32", lambda b, *i: cast("int32", x.at(b, i)) * 2)
    plus = te.tensor_fn(x.shape, "int32", lambda b, *i: twice.at(b, i) + i[3])
    func = computing(b, [(b.output("y", x.shape, "int32"), plus)])
    verify(func)
    assert sum(isinstance(s, For) for s in walk(func.body)) == 2
    data = np.arange(-6, 6, dtype=np.int8).reshape(1, 3, 1, 4)
    y = np.zeros((1, 3, 1, 4), np.int32)
    run(func, {"x": data, "y": y})
    np.testing.assert_array_equal(y, data.astype(np.int32) * 2 + np.arange(4))


def test_reductions_and_several_outputs() -> None:
    b = IRBuilder("f")
    x = te.elements_of(b.input("x", (4, 5), "int8"))
    outs = [b.output(n, (4,), "int32") for n in ("total", "largest", "smallest")]

    def total(b: IRBuilder, row: Expr) -> Expr:
        return te.sum(b, [te.reduce_axis(5)], lambda r: cast("int32", x.at(b, (row, r))), init=10) - 10

    def largest(b: IRBuilder, row: Expr) -> Expr:
        return te_max(b, [te.reduce_axis(5)], lambda r: cast("int32", x.at(b, (row, r))), init=-128)

    def smallest(b: IRBuilder, row: Expr) -> Expr:
        return te_min(b, [te.reduce_axis(5, start=1)], lambda r: cast("int32", x.at(b, (row, r))), init=127)

    tensors = [te.tensor_fn((4,), "int32", rule) for rule in (total, largest, smallest)]
    func = computing(b, list(zip(outs, tensors, strict=True)))
    verify(func)
    data = np.random.default_rng(0).integers(-128, 128, (4, 5)).astype(np.int8)
    arrays = {o.name: np.zeros(4, np.int32) for o in outs}
    run(func, {"x": data, **arrays})
    np.testing.assert_array_equal(arrays["total"], data.astype(np.int32).sum(1))
    np.testing.assert_array_equal(arrays["largest"], data.max(1))
    np.testing.assert_array_equal(arrays["smallest"], data[:, 1:].min(1))


def test_flat_outputs_and_scalars() -> None:
    b = IRBuilder("f")
    x = te.elements_of(b.input("x", (2, 3), "int8"))
    flat, one = b.output("flat", (6,), "int8"), b.output("one", (1,), "int8")
    func = computing(b, [(flat, x), (one, te.tensor_fn((), "int8", lambda b: x.at(b, (imm(0), imm(0)))))])
    verify(func)
    data = np.arange(6, dtype=np.int8).reshape(2, 3) + 7
    arrays = {"flat": np.zeros(6, np.int8), "one": np.zeros(1, np.int8)}
    run(func, {"x": data, **arrays})
    assert arrays["flat"].tolist() == [7, 8, 9, 10, 11, 12]
    assert arrays["one"].tolist() == [7]


def test_empty_outputs_store_nothing() -> None:
    b = IRBuilder("f")
    x = te.elements_of(b.input("x", (0, 3), "int8"))
    func = computing(b, [(b.output("y", (0, 3), "int8"), x)])
    run(func, {"x": np.zeros((0, 3), np.int8), "y": np.zeros((0, 3), np.int8)})


def test_shapes_must_agree() -> None:
    b = IRBuilder("f")
    x = te.elements_of(b.input("x", (2, 3), "int8"))
    for shape in ((3, 2), (5,), (1, 6)):
        with pytest.raises(ValueError, match="cannot hold a tensor"):
            emit_nest(b, b.output("y", shape, "int8"), x)
