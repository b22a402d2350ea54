"""The verifier accepts what is right and names what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from aot.errors import InternalError
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import BinOp, Call, Cast, Expr, Imm, Select, Var, cast, imm, select
from aot.tir.function import PrimFunc
from aot.tir.intrin import Intrin
from aot.tir.stmt import Allocate, Block, CallPrim, For, If, Let, Region, Stmt, Store
from aot.tir.transform import flatten, optimize, unroll
from aot.tir.verify import verify
from tests.tir.kernels import blocked_dense, conv
from tests.tir.test_interpreter import add_block, block_func, module

X = Buffer("x", (2, 4), "int8")
Y = Buffer("y", (2, 4), "int8", align=4)
K = Buffer("k", (16,), "int8", "const", 4)
L = Buffer("acc", (2,), "int32", "local")
V = Var("v")
NEGATE = Intrin("negate", ("int8",), "int8", "(-{0})", lambda a: -a)
BYTE = imm(1, "int8")
ZERO = imm(0)


def func(*body: Stmt) -> PrimFunc:
    return PrimFunc("f", (X,), (Y,), body, (K,))


def at(*indices: Expr, value: Expr = BYTE) -> Store:
    return Store(Y, indices, value, "int8")


def loop(stop: int, *body: Stmt, start: int = 0, step: int = 1) -> For:
    return For(V, imm(start), imm(stop), body, step)


@pytest.mark.parametrize("make", [conv, blocked_dense, block_func, lambda: module()[0]])
def test_good_functions_pass(make: Callable[[], PrimFunc]) -> None:
    verify(make())
    verify(flatten(unroll(make())), unrolled=True)
    optimize(make())


GUARDED = [
    loop(4, If(V >= 1, (at(imm(0), V - 1),))),
    loop(4, at(imm(0), V, value=select(V >= 1, X[0, V - 1], BYTE))),
    loop(5, If(BinOp("&&", V < 4, X[0, V] > 0), (at(imm(0), V),))),
    loop(4, at(imm(0), V % 2)),
    loop(8, at(V), step=3),
    For(V, imm(0), cast("int32", X[0, 0]), (at(imm(0), V),)),
    loop(3, at(imm(0), (V * V) - V)),
]


@pytest.mark.parametrize("stmt", GUARDED)
def test_what_is_not_certain_is_not_a_fault(stmt: Stmt) -> None:
    verify(func(stmt))


BAD: list[tuple[str, Stmt | tuple[Stmt, ...]]] = [
    ("v is not in scope", at(imm(0), V)),
    ("v is not in scope", (loop(2, at(imm(0), V)), at(imm(0), V))),
    ("v is defined twice", (loop(2), loop(2))),
    ("v is defined twice", (Let(V, imm(1)), loop(2))),
    ("acc is not in scope", Store(L, (ZERO,), imm(1), "int32")),
    ("acc is not in scope", (If(X[0, 0] > 0, (Allocate(L),)), Store(L, (ZERO,), imm(1), "int32"))),
    ("acc is defined twice", (Allocate(L), Allocate(L))),
    ("scope const is allocated", Allocate(replace(K, name="other"))),
    ("a int32 is stored as int8", Store(Y, (ZERO, ZERO), imm(1), "int8")),
    ("v is int32, its value int8", Let(V, BYTE)),
    (r"\+ of int8 and int32", at(ZERO, ZERO, value=Cast("int8", BinOp("+", X[0, 0], imm(1))))),
    ("300 is not a int8", at(ZERO, ZERO, value=Imm(300, "int8"))),
    ("1.5 is not a int8", at(ZERO, ZERO, value=Imm(1.5, "int8"))),
    ("& of float32", at(ZERO, ZERO, value=Cast("int8", BinOp("&", imm(1.0, "float32"), imm(1.0, "float32"))))),
    ("condition of a select is int8", at(ZERO, ZERO, value=Select(X[0, 0], BYTE, BYTE))),
    ("a select of int8 and int32", at(ZERO, ZERO, value=Cast("int8", Select(X[0, 0] > 0, BYTE, ZERO)))),
    ("the condition is int8", If(X[0, 0], ())),
    ("&& of int8 and bool", If(BinOp("&&", X[0, 0], X[0, 0] > 0), ())),
    ("a bound is int8", For(V, ZERO, X[0, 0], ())),
    ("step 0 is not positive", loop(2, step=0)),
    ("3 indices for y", at(ZERO, ZERO, ZERO)),
    ("an index of y is float32", at(ZERO, imm(1.0, "float32"))),
    ("x of scope param is not writable", Store(X, (ZERO,), BYTE, "int8")),
    ("k of scope const is not writable", Store(K, (ZERO,), BYTE, "int8")),
    ("acc is int32, seen as int16", (Allocate(L), Store(L, (ZERO,), imm(1, "int16"), "int16"))),
    (r"an index in 4..4 is out of bounds of y, extent 4", at(ZERO, imm(4))),
    (r"an index in -1..-1 is out of bounds", at(imm(-1), ZERO)),
    (r"an index in 0..4 is out of bounds", loop(5, at(ZERO, V))),
    (r"an index in -1..2 is out of bounds", loop(4, at(ZERO, V - 1))),
    (r"an index in 0..8 is out of bounds of x, extent 8", loop(9, at(ZERO, ZERO, value=X[V]))),
    (r"an index in 0..4 is out of bounds of k, extent 4", loop(5, at(ZERO, ZERO, value=Cast("int8", K.load("int32", V))))),
    (r"an index in 100..200 is out of bounds", loop(2, at(ZERO, (V * V) * 100 + 100))),
]


@pytest.mark.parametrize(("message", "body"), BAD)
def test_faults_are_named(message: str, body: Stmt | tuple[Stmt, ...]) -> None:
    with pytest.raises(InternalError, match=message):
        verify(func(*(body if isinstance(body, tuple) else (body,))))


def test_unknown_nodes_and_operators() -> None:
    with pytest.raises(InternalError, match=r"unknown operator \?"):
        verify(func(at(ZERO, ZERO, value=BinOp("?", BYTE, BYTE))))
    with pytest.raises(InternalError, match="takes"):
        verify(func(at(ZERO, ZERO, value=Call(NEGATE, (ZERO,)))))


def test_errors_show_the_parents() -> None:
    with pytest.raises(InternalError) as info:
        verify(func(loop(2, If(X[0, V] > 0, (at(V, ZERO, value=Cast("int8", BinOp("-", X[0, 0], ZERO))),)))))
    assert info.value.problems[0].code == "E9003"
    assert info.value.problems[0].message.splitlines() == [
        "- of int8 and int32",
        "  for v in 0..2 {",
        "    if x[0, v] > int8(0) {",
        "      y[v, 0] = int8(x[0, 0] - 0)",
    ]


def test_parameters() -> None:
    with pytest.raises(InternalError, match="k of inputs has scope const"):
        verify(PrimFunc("f", (K,), (Y,), ()))
    with pytest.raises(InternalError, match="share a name"):
        verify(PrimFunc("f", (X, replace(Y, name="x")), (), ()))
    with pytest.raises(InternalError, match="y is defined twice"):
        verify(PrimFunc("f", (Y,), (Y,), ()))


def test_local_indices_after_unrolling() -> None:
    body = (Allocate(L), loop(2, Store(L, (V,), imm(1), "int32")))
    verify(func(*body))
    with pytest.raises(InternalError, match="index that is not constant"):
        verify(func(*body), unrolled=True)
    free = replace(L, indexed=True)
    verify(func(Allocate(free), loop(2, Store(free, (V,), imm(1), "int32"))), unrolled=True)


def block_case(*operands: Region | Expr, align: int = 4) -> PrimFunc:
    b = IRBuilder("f")
    b.input("x", (8,), "int16", align=align)
    b.output("y", (2,), "int32", align=4)
    acc = b.local("acc", (2,), "int32", init=0)
    names = {"x": b._inputs[0], "y": b._outputs[0], "acc": acc}
    out = tuple(
        replace(o, buffer=names[o.buffer.name]) if isinstance(o, Region) and o.buffer.name in names else o for o in operands
    )
    b.append(Block(add_block(), out))
    return b.finish()


WIDE = Buffer("x", (8,), "int16")
SHORT = Buffer("z", (1,), "int32", "local")


@pytest.mark.parametrize(
    ("message", "operands", "align"),
    [
        ("takes 2 operands, not 1", (region(WIDE),), 4),
        ("operand acc is a buffer", (region(WIDE), ZERO), 4),
        ("needs alignment 4, x has 2", (region(WIDE), region(L)), 2),
        ("at byte 2 is not aligned to 4", (region(WIDE, 1), region(L)), 4),
        ("out of bounds of x for test.add2", (region(WIDE, 8), region(L)), 4),
        ("x of scope param is not writable", (region(WIDE), region(WIDE)), 4),
        ("z is not in scope", (region(WIDE), region(SHORT)), 4),
    ],
)
def test_block_operands(message: str, operands: tuple[Region | Expr, ...], align: int) -> None:
    verify(block_case(region(WIDE, 6), region(L)))
    with pytest.raises(InternalError, match=message):
        verify(block_case(*operands, align=align))


def test_local_operands_must_fit() -> None:
    b = IRBuilder("f")
    x = b.input("x", (8,), "int16", align=4)
    one = b.local("one", (1,), "int32", init=0)
    b.block(add_block(), x, one)
    with pytest.raises(InternalError, match="local one does not fit acc"):
        verify(b.finish())


def test_calls() -> None:
    main, funcs = module()
    verify(main)
    verify(main, funcs=funcs)
    with pytest.raises(InternalError, match="unknown function inc"):
        verify(main, funcs={})
    calls = [s for s in main.body if isinstance(s, CallPrim)]
    with pytest.raises(InternalError, match="takes 2 operands, not 1"):
        verify(main.with_body((replace(calls[0], operands=calls[0].operands[:1]),)), funcs=funcs)
    into_input = (calls[1].operands[0], Region(main.inputs[0], ZERO, "int32"))
    with pytest.raises(InternalError, match="a of scope param is not writable"):
        verify(main.with_body((replace(calls[1], operands=into_input),)), funcs=funcs)


def test_operands_of_calls_are_checked_without_functions_too() -> None:
    with pytest.raises(InternalError, match="v is not in scope"):
        verify(func(CallPrim("g", (Region(X, V, "int8"),))))
