"""Passes: what they make of small functions, and that what remains computes the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from aot.errors import InternalError
from aot.ir.instrument import VerifyIR
from aot.ir.module import IRModule
from aot.ir.transform import PassContext
from aot.tir.builder import IRBuilder
from aot.tir.expr import BinOp, Cast, Expr, Imm, Load, Var, cast, clamp, equal, imm, maximum, minimum, select
from aot.tir.function import PrimFunc
from aot.tir.functor import accesses, walk
from aot.tir.interpreter import run, run_module
from aot.tir.intrin import BlockText, TensorIntrin
from aot.tir.printer import print_expr, print_func
from aot.tir.stmt import Allocate, For, If, Let, Region, Store
from aot.tir.transform import (
    flatten,
    merge_functions,
    optimize,
    pipeline,
    sharing_key,
    simplified,
    structural_key,
    unroll,
)
from aot.tir.verify import verify
from tests.tir.kernels import assert_same, blocked_dense, conv, random_buffers
from tests.tir.test_interpreter import block_func, module

KERNELS: list[Callable[[], PrimFunc]] = [conv, lambda: conv(1, 1), blocked_dense]


@pytest.mark.parametrize("make", KERNELS)
@pytest.mark.parametrize("transform", [simplified, unroll, flatten, optimize, lambda f: simplified(unroll(simplified(f)))])
def test_meaning_is_kept(make: Callable[[], PrimFunc], transform: Callable[[PrimFunc], PrimFunc]) -> None:
    before = make()
    after = transform(before)
    verify(after)
    assert_same(before, after)


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


def test_unroll_renames_what_a_body_defines() -> None:
    func = unroll(blocked_dense())
    verify(func, unrolled=True)
    lets = [s.var for s in walk(func.body) if isinstance(s, Let)]
    assert len(lets) == len(set(lets)) == 4
    assert not any(isinstance(s, For) and s.kind == "unroll" for s in walk(func.body))


def test_unroll_nested_dependent_bounds_and_allocations() -> None:
    b = IRBuilder("f")
    x, y = b.input("x", (6,), "int32"), b.output("y", (3,), "int32")
    with b.for_("i", 3, kind="unroll") as i:
        acc = b.local("acc", (2,), "int32", init=0)
        with b.for_("j", i + 2, start=i, kind="unroll") as j:
            b.store(acc, j - i, (x[j] & 255) + i)
        b.store(y, i, acc[0] - acc[1])
    func = b.finish()
    flat = unroll(func)
    assert not any(isinstance(s, For) for s in walk(flat.body))
    assert sum(isinstance(s, Allocate) for s in flat.body) == 3
    verify(flat, unrolled=True)
    assert_same(func, flat)


def test_unroll_needs_constant_bounds() -> None:
    b = IRBuilder("f")
    x = b.input("x", (1,), "int32")
    with b.for_("i", x[0], kind="unroll"):
        pass
    with pytest.raises(InternalError, match="bounds are not constant"):
        unroll(b.finish())


def test_flatten_leaves_one_index() -> None:
    func = flatten(conv())
    counts = {len(a.indices) for s in walk(func.body) for a in accesses(s) if isinstance(a, (Load, Store))}
    assert counts == {1}


def test_passes_run_in_a_sequence_under_instruments() -> None:
    with PassContext(instruments=(VerifyIR(),)):
        after = pipeline()(IRModule({"a": conv(), "b": block_func()}))
    assert isinstance(after["a"], PrimFunc)
    assert_same(conv(), after["a"])
    with PassContext(disabled_pass=frozenset({"simplify"})):
        kept = optimize(conv())
    assert len(print_func(kept)) > len(print_func(optimize(conv(1, 1))))


def test_optimize_verifies() -> None:
    b = IRBuilder("f")
    y = b.output("y", (4,), "int32")
    with b.for_("i", 5) as i:
        b.store(y, i, i)
    with pytest.raises(InternalError, match="out of bounds"):
        optimize(b.finish())


def scale(count: int, factor: int, zero_point: int, *, name: str = "scale", lo: int = -128) -> PrimFunc:
    """y = clamp(x * factor >> 3 + zero_point), with a local buffer and names of its own."""
    b = IRBuilder(name)
    x, y = b.input(f"x_{name}", (count // 2, 2), "int8"), b.output("y", (count // 2, 2), "int8")
    with b.for_(f"i_{name}", count // 2) as i:
        acc = b.local("acc", (2,), "int32")
        with b.for_("j", 2, kind="unroll") as j:
            b.store(acc, j, cast("int32", x[i, j]) * factor)
        with b.for_("j", 2, kind="unroll") as j:
            b.store(y, (i, j), clamp((acc[j] >> 3) + zero_point, lo, 127))
    return b.finish()


def test_structural_key() -> None:
    assert structural_key(scale(8, 3, 5)) == structural_key(scale(8, 3, 5, name="other"))
    different = [scale(8, 3, 5), scale(8, 4, 5), scale(6, 3, 5), scale(8, 3, 5, lo=-7), conv()]
    assert len({structural_key(f) for f in different}) == len(different)


def test_merge_functions_keeps_every_member() -> None:
    """Members of different sizes, factors and zero points become one function; each call of it equals the member."""
    funcs = [optimize(f) for f in (scale(8, 3, 5), scale(20, 7, 9, name="b"), conv(3, 3), scale(12, 5, 5, name="c"))]
    groups = merge_functions(funcs)
    assert [members for members, _ in groups] == [(0, 1, 3), (2,)]
    merged = groups[0][1]
    assert [v.name for v in merged.func.scalars] == ["p0", "p1", "p2"]
    assert merged.scalars == ((4, 3, 5), (10, 7, 9), (6, 5, 5))
    assert groups[1][1].func is funcs[2]
    verify(merged.func, unrolled=True)
    for index, scalars in zip((0, 1, 3), merged.scalars, strict=True):
        member = funcs[index]
        buffers = random_buffers(member)
        expected = {n: a.copy() for n, a in buffers.items()}
        run(member, expected)
        given = [buffers[b.name] for b in member.buffers]
        run(
            merged.func,
            {b.name: a for b, a in zip(merged.func.buffers, given, strict=True)},
            {v.name: s for v, s in zip(merged.func.scalars, scalars, strict=True)},
        )
        np.testing.assert_array_equal(buffers["y"], expected["y"])


def test_merge_functions_takes_numbers_of_either_sign_and_floats() -> None:
    """`x - 5` and `x + 3` are one form; a factor of float32 may vary, but not with a zero, whose sign would be lost."""

    def scaled(offset: int, factor: float) -> PrimFunc:
        b = IRBuilder("scaled")
        x, y = b.input("x", (8,), "int8"), b.output("y", (8,), "float32")
        with b.for_("i", 8) as i:
            b.store(y, i, cast("float32", cast("int32", x[i]) + offset) * imm(factor, "float32"))
        return optimize(b.finish())

    funcs = [scaled(-5, 0.25), scaled(3, 1.5), scaled(-7, -2.0)]
    ((members, merged),) = merge_functions(funcs)
    assert members == (0, 1, 2)
    x = np.arange(-4, 4, dtype=np.int8)
    for (offset, factor), scalars in zip(((-5, 0.25), (3, 1.5), (-7, -2.0)), merged.scalars, strict=True):
        y = np.zeros(8, np.float32)
        run(merged.func, {"x": x, "y": y}, {v.name: s for v, s in zip(merged.func.scalars, scalars, strict=True)})
        np.testing.assert_array_equal(y, (x.astype(np.float32) + offset) * np.float32(factor))
    assert len(merge_functions([scaled(2, -0.0), scaled(2, 1.0)])) == 2


def test_merge_functions_with_lets_streams_and_scratch() -> None:
    """Scratch of a merged function has no size of its own: the caller hands it in."""
    funcs = [optimize(blocked_dense(4, 6, 8)), optimize(blocked_dense(6, 5, 12))]
    ((members, merged),) = merge_functions(funcs, lambda _funcs, scalars: scalars < 12)
    assert members == (0, 1)
    for member, scalars in zip(funcs, merged.scalars, strict=True):
        buffers = random_buffers(member)
        expected = {n: a.copy() for n, a in buffers.items()}
        run(member, expected)
        values = {v.name: s for v, s in zip(merged.func.scalars, scalars, strict=True)}
        with pytest.raises(ValueError, match="no array for buffer wide"):
            run(merged.func, buffers, values)
        run(merged.func, {**buffers, "wide": np.zeros(member.scratch[0].nbytes, np.uint8)}, values)
        np.testing.assert_array_equal(buffers["y"], expected["y"])


def test_merge_functions_with_blocks_and_calls() -> None:
    """Offsets of regions and the arguments of calls become parameters."""
    main, table = module()
    other = main.with_body(tuple(replace(s, operands=tuple(moved(o) for o in s.operands)) for s in main.body))
    ((_, merged),) = merge_functions([main, other])
    assert merged.scalars == ((8,), (4,))  # 32 = 4 * 8 and 16 = 4 * 4
    for scalars in merged.scalars:
        z = np.zeros(4, np.int32)
        values = {v.name: s for v, s in zip(merged.func.scalars, scalars, strict=True)}
        run_module(merged.func, table, {"a": np.arange(4, dtype=np.int32), "z": z}, values)
        assert z.tolist() == [2, 3, 4, 5]
    assert [m for m, _ in merge_functions([block_func(), block_func(imm(2)), block_func(imm(0))])] == [(0,), (1, 2)]
    blocks = merge_functions([block_func(imm(2)), block_func(imm(0))])[0][1]
    assert blocks.scalars == ((2,), (0,))
    verify(blocks.func)


def moved(operand: object) -> object:
    """A region at half its offset."""
    if isinstance(operand, Region) and isinstance(operand.index, Imm):
        return replace(operand, index=Imm(int(operand.index.value) // 2))
    return operand


def test_merge_functions_shares_parameters_and_asks_the_rule() -> None:
    same = [optimize(scale(8, 8, 8)), optimize(scale(20, 10, 10, name="b"))]
    ((members, merged),) = merge_functions(same)
    assert members == (0, 1)
    assert merged.scalars == ((4, 8), (10, 10))
    asked: list[tuple[int, int]] = []

    def never(funcs: object, scalars: int) -> bool:
        asked.append((len(funcs), scalars))  # type: ignore[arg-type]
        return False

    groups = merge_functions(same, never)
    assert asked == [(2, 2)]
    assert [g[0] for g in groups] == [(0,), (1,)]
    assert [g[1].func for g in groups] == same


def test_merge_functions_leaves_register_blocks_alone() -> None:
    """Loops that index local buffers keep their numbers, so functions that differ there are not merged."""

    def block(width: int) -> PrimFunc:
        b = IRBuilder("block")
        x, y = b.input("x", (8,), "int32"), b.output("y", (8,), "int32")
        acc = b.local("acc", (4,), "int32", init=0)
        with b.for_("i", width) as i:
            b.store(acc, i, x[i])
        b.store(y, 0, acc[0])
        return b.finish()

    assert [m for m, _ in merge_functions([block(2), block(4), block(2)])] == [(0, 2), (1,)]
    ((_, merged), _) = merge_functions([block(2), block(4), block(2)])
    assert merged.func.scalars == ()


def test_merged_numbers_do_not_meet_branches() -> None:
    """Equal structure with a branch: the numbers of both sides are parameters, in the order of the text."""

    def branch(a: int, b_: int) -> PrimFunc:
        b = IRBuilder("branch")
        x, y = b.input("x", (2,), "int32"), b.output("y", (2,), "int32")
        with b.for_("i", 2) as i:
            with b.if_(x[i] > a):
                b.store(y, i, select(x[i] > 100, imm(b_), imm(9)))
            with b.else_():
                b.store(y, i, b_ * 2)
        return b.finish()

    ((_, merged),) = merge_functions([branch(3, 50), branch(4, 60)])
    assert merged.scalars == ((3, 50), (4, 60))  # the third number is twice the second
    assert isinstance(merged.func.scalars[0], Var)
    assert sum(isinstance(s, If) for s in walk(merged.func.body)) == 1


def test_blocks_of_one_name_that_compute_otherwise_stay_apart() -> None:
    def func(added: int) -> PrimFunc:
        inner = IRBuilder("add")
        x, y = inner.input("x", (1,), "int8"), inner.output("y", (1,), "int8")
        inner.store(y, 0, cast("int8", cast("int32", x[0]) + added))
        intrin = TensorIntrin("test.add", inner.finish(), lambda _: BlockText(""))
        b = IRBuilder("f")
        data, out = b.input("data", (4,), "int8"), b.output("out", (4,), "int8")
        b.block(intrin, Region(data, imm(0), "int8"), Region(out, imm(0), "int8"))
        return b.finish()

    assert sharing_key(func(1)) == sharing_key(func(1))
    assert sharing_key(func(1)) != sharing_key(func(2))
    assert structural_key(func(1)) != structural_key(func(2))
