"""Tensor expressions: what they are, and wrong use, which always has a code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aot
from aot import te
from aot.errors import UsageError
from aot.tir.interpreter import run

A = te.placeholder((4, 6), "int8", "A")
F = te.placeholder((4, 6), "float32", "F")
K = te.reduce_axis((0, 6), "k")


def test_what_a_tensor_knows() -> None:
    c = te.compute((4,), lambda i: te.sum(A[i, K].astype("int32"), axis=K), "C")
    assert (c.shape, c.dtype, c.ndim, c.name) == ((4,), "int32", 1, "C")
    assert [a.name for a in c.op.axis] == ["i"]
    assert c.op.reduce_axis == (K,)
    assert c.op.input_tensors == (A,)
    assert c.op.output(0) is c
    assert A.op.axis == ()
    assert repr(K) == "k in 0..6 (reduction)"


def test_scalars_axes_as_values_and_several_reductions() -> None:
    total = te.compute((), _total, "S")
    s = te.create_schedule(total.op)
    func: Any = aot.lower(s, [A, total])["main"]
    data, out = np.arange(24, dtype=np.int8).reshape(4, 6), np.zeros((), np.int32)
    run(func, {"A": data, "S": out})
    assert out == int((data * (np.arange(4)[:, None] + 1)).sum())


def _total() -> Any:
    r = te.reduce_axis((0, 4), "r")
    return te.sum(A[r, K].astype("int32") * (r + 1), axis=[r, K])


@pytest.mark.parametrize(("reducer", "meaning"), [(te.max, np.max), (te.min, np.min), (te.product, np.prod)])
def test_reducers(reducer: Callable[..., Any], meaning: Callable[..., Any]) -> None:
    k = te.reduce_axis((0, 6), "k")
    c = te.compute((4,), lambda i: reducer(A[i, k].astype("int32"), axis=k), "C")
    func: Any = aot.lower(te.create_schedule(c.op), [A, c])["main"]
    data, out = np.random.default_rng(2).integers(-9, 9, (4, 6)).astype(np.int8), np.zeros(4, np.int32)
    run(func, {"A": data, "C": out})
    np.testing.assert_array_equal(out, meaning(data.astype(np.int32), axis=1))


def compute(rule: Callable[..., Any]) -> te.Tensor:
    return te.compute((4,), rule, "C")


WRONG: dict[str, tuple[str, Callable[[], Any]]] = {
    "shape of text": ("E5070", lambda: te.placeholder("ab", "int8")),
    "shape of zero": ("E5070", lambda: te.placeholder((3, 0), "int8")),
    "huge shape": ("E5070", lambda: te.placeholder((1 << 20, 1 << 20), "int8")),
    "no shape": ("E5070", lambda: te.placeholder(None, "int8")),  # type: ignore[arg-type]
    "unknown type": ("E5070", lambda: te.placeholder((3,), "int7")),
    "no type": ("E5070", lambda: te.placeholder((3,), None)),  # type: ignore[arg-type]
    "name": ("E5070", lambda: te.placeholder((3,), "int8", "")),
    "axis from one": ("E5070", lambda: te.reduce_axis((1, 3))),
    "empty axis": ("E5070", lambda: te.reduce_axis((0, 0))),
    "axis of three": ("E5070", lambda: te.reduce_axis((0, 1, 2))),
    "axis of a number": ("E5070", lambda: te.reduce_axis(3)),  # type: ignore[arg-type]
    "too few indices": ("E5070", lambda: compute(lambda i: A[i])),
    "float index": ("E5070", lambda: compute(lambda i: A[F[i, 0], 0])),
    "text index": ("E5070", lambda: compute(lambda i: A["i", 0])),
    "mixed types": ("E5070", lambda: compute(lambda i: A[i, 0] + F[i, 0])),
    "number too large": ("E5070", lambda: compute(lambda i: A[i, 0] + 300)),
    "fraction": ("E5070", lambda: compute(lambda i: A[i, 0] * 0.5)),
    "bits of a float": ("E5070", lambda: compute(lambda i: F[i, 0] & F[i, 1])),
    "shift too far": ("E5070", lambda: compute(lambda i: A[i, 0] << 9)),
    "division by zero": ("E5070", lambda: compute(lambda i: A[i, 0] / 0)),
    "condition of a number": ("E5070", lambda: compute(lambda i: te.if_then_else(i, 1, 0))),
    "sum of conditions": ("E5070", lambda: compute(lambda i: (i > 1) + (i > 2))),
    "no conditions": ("E5070", lambda: te.all()),
    "clip to nothing": ("E5070", lambda: compute(lambda i: te.clip(i, 3, 2))),
    "reduction in an expression": ("E5070", lambda: compute(lambda i: te.sum(A[i, K], axis=K) + 1)),
    "reduction over data": ("E5070", lambda: compute(lambda i: te.sum(A[i, 0], axis=i))),
    "reduction over nothing": ("E5070", lambda: compute(lambda i: te.sum(A[i, 0], axis=[]))),
    "axis without reduction": ("E5070", lambda: compute(lambda i: A[i, K])),
    "foreign axis": ("E5070", lambda: te.compute((4,), lambda i: A[i, A_AXIS])),
    "iteration": ("E5070", lambda: list(A)),
    "output 1": ("E5070", lambda: compute(lambda i: A[i, 0]).op.output(1)),
    "constant": ("E5070", lambda: te.const("1")),  # type: ignore[arg-type]
    "constant too large": ("E5070", lambda: compute(lambda i: te.const(999, "int8"))),
    "unknown conversion": ("E5070", lambda: compute(lambda i: A[i, 0].astype("int9"))),
    "index beyond": ("E5071", lambda: compute(lambda i: A[i + 1, 0])),
    "negative index": ("E5071", lambda: compute(lambda i: A[i - 1, 0])),
    "index from memory": ("E5071", lambda: compute(lambda i: A[A[i, 0].astype("int32"), 0])),
    "guard of another index": ("E5071", lambda: compute(lambda i: te.if_then_else(i >= 1, A[i - 2, 0], te.const(0, "int8")))),
    "guard on the wrong side": ("E5071", lambda: compute(lambda i: te.if_then_else(i >= 1, te.const(0, "int8"), A[i - 1, 0]))),
    "a rule that fails": ("E5072", lambda: compute(lambda i: 1 // 0)),
    "a rule of two": ("E5072", lambda: compute(lambda i, j: A[i, j])),
    "a rule of text": ("E5070", lambda: compute(lambda i: "x")),
    "a rule of nothing": ("E5070", lambda: compute(lambda i: None)),
    "a rule with ==": ("E5070", lambda: compute(lambda i: A[i, 0] == 3)),
    "a rule with if": ("E5070", lambda: compute(lambda i: 1 if i > 2 else 0)),
    "a rule with a chain": ("E5070", lambda: compute(lambda i: te.if_then_else(0 < i < 3, 1, 0))),
    "no rule": ("E5070", lambda: te.compute((4,), 3)),  # type: ignore[arg-type]
    "schedule of a placeholder": ("E5070", lambda: te.create_schedule(A.op)),
    "schedule of nothing": ("E5070", lambda: te.create_schedule([])),
    "schedule of text": ("E5070", lambda: te.create_schedule("C")),  # type: ignore[arg-type]
}
A_AXIS = compute(lambda i: A[i, 0]).op.axis[0]


@pytest.mark.parametrize("case", WRONG)
def test_wrong_use(case: str) -> None:
    code, call = WRONG[case]
    with pytest.raises(UsageError, match=code):
        call()


def test_minus_keeps_the_sign_of_zero() -> None:
    c = te.compute((4,), lambda i: -F[i, 0], "C")
    func: Any = aot.lower(te.create_schedule(c.op), [F, c])["main"]
    out = np.ones(4, np.float32)
    run(func, {"F": np.zeros((4, 6), np.float32), "C": out})
    assert np.signbit(out).all()


def test_guards_that_suffice() -> None:
    zero = te.const(0, "int8")
    compute(lambda i: te.if_then_else(i >= 1, A[i - 1, 0], zero))
    compute(lambda i: te.if_then_else(te.any(i < 1, i > 3), zero, A[i - 1, 0]))
    compute(lambda i: te.if_then_else(te.all(i - 1 >= 0, i + 1 < 4), A[i + 1, 0], zero))
    compute(lambda i: A[te.clip(A[i, 0].astype("int32"), 0, 3), 0])
    compute(lambda i: A[i / 2, i % 3])


def test_arguments_of_a_schedule() -> None:
    c = compute(lambda i: A[i, 0])
    s = te.create_schedule(c.op)
    other = te.placeholder((4,), "int8", "B")
    for args in ([A], [c], [A, c, A], [], None, [A, c, 3], [A, c, compute(lambda i: A[i, 1])], "Ac"):
        with pytest.raises(UsageError, match="E5073"):
            aot.lower(s, args)  # type: ignore[call-overload]
    assert aot.lower(s, [A, other, c])["main"]  # an argument that nothing reads
