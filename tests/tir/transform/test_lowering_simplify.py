"""simplify: what becomes of expressions and statements, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aot.tir.builder import IRBuilder
from aot.tir.expr import BinOp, Cast, Expr, clamp, equal, imm, maximum, minimum, select
from aot.tir.functor import walk
from aot.tir.printer import print_expr, print_func
from aot.tir.stmt import For, Store
from aot.tir.transform import simplified


def one_store(rule: Callable[[Expr, Expr], Expr], *, extent: int = 8) -> str:
    """The text of rule(i, j) after simplify, under 0 <= i < extent and 0 <= j < 4."""
    b = IRBuilder("f")
    y = b.output("y", (extent * 4,), "int32")
    with b.for_("i", extent) as i, b.for_("j", 4) as j:
        b.store(y, i * 4 + j, rule(i, j))
    (store,) = [s for s in walk(simplified(b.finish()).body) if isinstance(s, Store)]
    return print_expr(store.value)


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (lambda i, j: minimum(i, 7), "i"),
        (lambda i, j: minimum(i, 6), "min(i, 6)"),
        (lambda i, j: maximum(i, 0), "i"),
        (lambda i, j: maximum(j, i + 4), "i + 4"),
        (lambda i, j: clamp(i - j, -3, 7), "i - j"),
        (lambda i, j: clamp(i + 10, 0, 5), "5"),
        (lambda i, j: (i * 4 + j) / 4, "i"),
        (lambda i, j: (i * 4 + j) % 4, "j"),
        (lambda i, j: (i * 8 + j + 3) / 4, "i * 2 + (j + 3) / 4"),
        (lambda i, j: (i * 4 - j) / 4, "(i * 4 - j) / 4"),
        (lambda i, j: i / 8, "0"),
        (lambda i, j: i % 8, "i"),
        (lambda i, j: i % 5, "i % 5"),
        (lambda i, j: select(i < 8, i, j), "i"),
        (lambda i, j: select(i >= 8, i, j), "j"),
        (lambda i, j: select(i < 4, j, j), "j"),
        (lambda i, j: select(BinOp("&&", i < 8, j < 2), i, j), "select(j < 2, i, j)"),
        (lambda i, j: select(BinOp("||", i < 3, j < 4), i, j), "i"),
        (lambda i, j: select(BinOp("||", i < 3, j > 4), i, j), "select(i < 3, i, j)"),
        (lambda i, j: Cast("int32", Cast("int8", i)), "i"),
        (lambda i, j: Cast("int32", Cast("int8", i * 100)), "int32(int8(i * 100))"),
        (lambda i, j: (i - i) * 0 + 3, "3"),
        (lambda i, j: (i - i) * 4 + j, "j"),
        (lambda i, j: select(BinOp("&&", i >= 4, i <= 3), i, j), "j"),
        (lambda i, j: select(BinOp("&&", i > 3, BinOp("&&", j < 2, i < 5)), i, j), "select(i > 3 && (j < 2 && i < 5), i, j)"),
        (lambda i, j: select(BinOp("&&", i > 3, BinOp("&&", j < 2, i < 4)), i, j), "j"),
        (lambda i, j: select(BinOp("&&", equal(i, 3), i < 3), i, j), "j"),
    ],
)
def test_simplify_expressions(rule: Callable[[Expr, Expr], Expr], text: str) -> None:
    assert one_store(rule) == text


def test_simplify_statements() -> None:
    b = IRBuilder("f")
    x, y = b.input("x", (4,), "int32"), b.output("y", (4,), "int32")
    b.let("unused", x[0] + 1)
    chain = b.let("chain", x[1] * 2)
    b.let("unused_too", chain + 1)
    unread = b.local("unread", (2,), "int32", init=3)
    two = b.let("two", imm(2))
    with b.for_("once", 1) as once, b.for_("never", 0) as never:
        b.store(y, once, never)
    with b.for_("once", 3, start=2) as once, b.for_("i", 3, start=1, step=2) as i:
        b.store(unread, 0, 7)
        with b.if_(equal(once, two)):
            b.store(y, once, i)
        with b.else_():
            b.store(y, 0, 5)
        with b.if_(i > 9):
            b.store(y, 0, 6)
    with b.for_("empty", 4), b.if_(x[0] > 1):
        b.store(unread, 1, 8)
    text = print_func(simplified(b.finish()))
    assert text == "prim_func @f(x: int32[4], y: int32[4]) -> y {\n  y[2] = 1\n}\n"


def test_simplify_keeps_loops_of_unknown_length() -> None:
    b = IRBuilder("f")
    x, y = b.input("x", (1,), "int32"), b.output("y", (4,), "int32")
    with b.for_("i", x[0]) as i:
        b.store(y, i, minimum(i, 100))
    func = simplified(b.finish())
    assert any(isinstance(s, For) for s in func.body)
    assert "min(i, 100)" in print_func(func)
