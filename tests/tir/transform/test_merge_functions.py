"""merge_functions: functions that differ in numbers only become one, whose calls equal every member."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aot.tir.builder import IRBuilder
from aot.tir.expr import Imm, Var, cast, imm, select
from aot.tir.function import PrimFunc
from aot.tir.functor import walk
from aot.tir.interpreter import run, run_module
from aot.tir.intrin import BlockText, TensorIntrin
from aot.tir.stmt import If, Region
from aot.tir.transform import (
    equal_key,
    merge_functions,
    optimize,
    sharing_key,
    structural_key,
)
from aot.tir.verify import verify
from tests.tir.kernels import blocked_dense, conv, random_buffers
from tests.tir.test_interpreter import block_func, module
from tests.tir.transform.scaled import scale


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


def test_equal_key_tells_what_analyses_may_share() -> None:
    """Functions made alike have one key whatever they are called; a number, a buffer's name or a shape makes another one."""
    first, again = scale(8, 3, 5), replace(scale(8, 3, 5), name="b")
    assert first is not again
    assert equal_key(first) == equal_key(again)
    renamed = replace(first, inputs=tuple(replace(b, name="other") for b in first.inputs))
    others = [scale(8, 3, 6), scale(10, 3, 5), renamed, conv(3, 3)]
    assert len({equal_key(f) for f in (first, *others)}) == 1 + len(others)


def test_core_is_the_first_of_equal_functions_until_one_changes() -> None:
    """`core` is the function that `like` names, but not once buffers or body are others."""
    first = scale(8, 3, 5)
    second = replace(first, name="b", like=first)
    assert second.core is first
    assert first.core is first
    assert optimize(second).core is not first
    changed = replace(second, inputs=tuple(replace(b) for b in first.inputs))
    assert changed.core is changed
