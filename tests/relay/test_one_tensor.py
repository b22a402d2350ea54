"""one_tensor: which tensor a chain of element-wise calls depends on, and its results for vectors of that tensor's elements."""

from __future__ import annotations

import numpy as np

from aot.ir.type import TensorType
from aot.op import load_all
from aot.relay.analysis import chain_to, is_costly, results, source_of
from aot.relay.construct import constructor
from aot.relay.expr import Call, Expr, Var, const, post_order

load_all()


def var(name: str, size: int = 1024) -> Var:
    return Var(name, TensorType((1, size), "float32"))


def op(name: str, *args: Expr) -> Expr:
    return constructor(name)(*args)


def source(expr: Expr) -> Expr | None:
    known: dict[int, Expr] = {}
    for e in post_order(expr):
        found = source_of(e, known, "float32")
        if found is not None:
            known[id(e)] = found
    return known.get(id(expr))


def test_of_one_and_of_two() -> None:
    x, y = var("x"), var("y")
    silu = op("multiply", x, op("sigmoid", x))
    assert source(silu) is x
    sum_ = op("add", silu, y)
    assert source(sum_) is None
    assert source(op("tanh", sum_)) is sum_


def test_constants_of_many_values_are_tensors_too() -> None:
    x = var("x", 4)
    assert source(op("multiply", x, const(np.float32(2)))) is x
    assert source(op("multiply", x, const(np.ones(4, np.float32)))) is None


def test_chains_and_results() -> None:
    x = var("x")
    silu = op("multiply", x, op("sigmoid", x))
    assert [str(c.op) for c in chain_to(silu, x) if isinstance(c, Call)] == ["sigmoid", "multiply"]
    np.testing.assert_array_equal(results(op("add", silu, const(np.float32(1))), x, np.float32([0, 100])), np.float32([1, 101]))


def test_costly_is_a_function_of_many_elements() -> None:
    x, short = var("x"), var("short", 1023)
    assert is_costly(op("exp", x), x)
    assert not is_costly(op("exp", short), short)
    assert not is_costly(op("square", x), x)
