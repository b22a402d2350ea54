"""Schedule primitives: the loops they make, the same results before and after, and what they refuse."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Literal

import pytest

from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast
from aot.tir.function import PrimFunc
from aot.tir.functor import walk
from aot.tir.printer import print_func
from aot.tir.schedule import Schedule, ScheduleError
from aot.tir.stmt import For
from aot.tir.transform import optimize
from aot.tir.verify import verify
from tests.tir.kernels import assert_same, conv
from tests.tir.test_interpreter import block_func


def matmul(m: int = 4, n: int = 6, k: int = 8) -> PrimFunc:
    """y += x w, as one perfect nest over a zeroed output."""
    b = IRBuilder("matmul")
    x, w, y = b.input("x", (m, k), "int8"), b.input("w", (k, n), "int8"), b.output("y", (m, n), "int32")
    with b.for_("zi", m) as i, b.for_("zj", n) as j:
        b.store(y, (i, j), 0)
    with b.for_("i", m) as i, b.for_("j", n) as j, b.for_("k", k) as t:
        b.store(y, (i, j), y[i, j] + cast("int32", x[i, t]) * cast("int32", w[t, j]))
    return b.finish()


def names(s: Schedule) -> list[str]:
    return [v.name for v in s.loops()]


@pytest.mark.parametrize(
    ("factor", "tail", "loops"),
    [
        (4, "exact", ["zi", "zj", "i", "j", "k_o", "k_i"]),
        (3, "loop", ["zi", "zj", "i", "j", "k_o", "k_i", "k_t"]),
        (3, "guard", ["zi", "zj", "i", "j", "k_o", "k_i"]),
        (9, "loop", ["zi", "zj", "i", "j", "k_o", "k_i", "k_t"]),
    ],
)
def test_split(factor: int, tail: Literal["exact", "loop", "guard"], loops: list[str]) -> None:
    s = Schedule(matmul())
    outer, inner = s.split(s.loop("k"), factor, tail)
    assert names(s) == loops
    assert (outer.name, inner.name) == ("k_o", "k_i")
    verify(s.func)
    assert_same(matmul(), s.func)
    s.unroll(inner)
    assert_same(matmul(), optimize(s.func))
    assert not any(isinstance(x, For) and x.kind == "unroll" for x in walk(optimize(s.func).body))


def test_split_of_loops_that_start_and_step() -> None:
    b = IRBuilder("f")
    y = b.output("y", (20,), "int32")
    with b.for_("z", 20) as z:
        b.store(y, z, 0)
    with b.for_("i", 19, start=2, step=3) as i:
        b.store(y, i, i * i)
    func = b.finish()
    tails: tuple[Literal["loop", "guard"], ...] = ("loop", "guard")
    for tail in tails:
        for factor in (2, 4, 6, 7):
            s = Schedule(func)
            s.split(s.loop("i"), factor, tail)
            verify(s.func)
            assert_same(func, s.func)


def test_split_inside_a_reduction_of_te() -> None:
    func = conv(4, 4, channels=6, out=4)
    s = Schedule(func)
    _, inner = s.split(s.loop("r"), 3)
    s.unroll(inner)
    assert_same(func, s.func)
    assert_same(func, optimize(s.func))
    assert "for r_i" not in print_func(optimize(s.func))


def test_reorder_and_fuse() -> None:
    s = Schedule(matmul())
    i, j, k = s.loop("i"), s.loop("j"), s.loop("k")
    s.reorder(j, k)
    s.reorder(i, k)
    assert names(s)[2:] == ["k", "i", "j"]
    fused = s.fuse(i, j)
    assert fused.name == "i_j"
    s.fuse(s.loop("zi"), s.loop("zj"))
    assert names(s) == ["zi_zj", "k", "i_j"]
    verify(s.func)
    assert_same(matmul(), s.func)
    assert_same(matmul(), optimize(s.func))


def test_reorder_of_split_loops() -> None:
    """Written once: a mixed-radix index says that the iterations write different elements."""
    s = Schedule(matmul())
    zi, zj = s.loop("zi"), s.loop("zj")
    outer, inner = s.split(zj, 2)
    s.reorder(zi, outer)
    assert names(s)[:3] == ["zj_o", "zi", "zj_i"]
    s.reorder(zi, inner)
    assert names(s)[:3] == ["zj_o", "zj_i", "zi"]
    assert_same(matmul(), s.func)


def test_random_schedules_keep_the_meaning() -> None:
    """Any sequence of primitives that are not refused."""
    rng = random.Random(11)
    for _ in range(12):
        s = Schedule(matmul(3, 4, 6))
        for _ in range(5):
            loops = s.loops()
            at = rng.randrange(len(loops))
            action = rng.choice(["split", "reorder", "fuse", "unroll"])
            try:
                if action == "split":
                    s.split(loops[at], rng.randint(1, 4), rng.choice(["loop", "guard"]))
                elif action == "unroll":
                    s.unroll(loops[at])
                elif at + 1 < len(loops):
                    (s.reorder if action == "reorder" else s.fuse)(loops[at], loops[at + 1])
            except ScheduleError:
                continue
        verify(s.func)
        assert_same(matmul(3, 4, 6), s.func)
        assert_same(matmul(3, 4, 6), optimize(s.func))


def nest(rule: Callable[[IRBuilder, Expr, Expr], None], *, dependent: bool = False) -> Schedule:
    b = IRBuilder("f")
    b.input("x", (8, 8), "int32")
    b.output("y", (8, 8), "int32")
    with b.for_("i", 8) as i, b.for_("j", i if dependent else 8) as j:
        rule(b, i, j)
    return Schedule(b.finish())


def shifted(b: IRBuilder, i: Expr, j: Expr) -> None:
    y = b._outputs[0]
    with b.if_(j > 0), b.if_(i < 7):
        b.store(y, (i, j), y[i + 1, j - 1])


def two_places(b: IRBuilder, i: Expr, j: Expr) -> None:
    b.store(b._outputs[0], (i, j), 1)
    b.store(b._outputs[0], (j, i), 2)


def through_let(b: IRBuilder, i: Expr, j: Expr) -> None:
    old = b.let("old", b._outputs[0][i, 0])
    b.store(b._outputs[0], (i, 0), old + j)


def block(b: IRBuilder, i: Expr, j: Expr) -> None:
    for stmt in block_func().body:
        b.append(stmt)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda b, i, j: b.store(b._outputs[0], (i, 0), j), "write the same element of y"),
        (lambda b, i, j: b.store(b._outputs[0], (0, i / 2 + j), j), "write the same element of y"),
        (lambda b, i, j: b.store(b._outputs[0], (0, i * 4 + j), j), "write the same element of y"),
        (lambda b, i, j: b.store(b._outputs[0], (0, 0), b._outputs[0][0, 0] - j), "y is read and written"),
        (lambda b, i, j: b.store(b._outputs[0], (0, 0), b._outputs[0][0, 0] * 2 + j), "y is read and written"),
        (shifted, "y is read and written"),
        (two_places, "y is written at two places"),
        (through_let, "y is read and written"),
        (block, "calls a block"),
    ],
)
def test_reorder_refuses_what_depends_on_order(rule: Callable[[IRBuilder, Expr, Expr], None], message: str) -> None:
    s = nest(rule)
    before = s.func
    with pytest.raises(ScheduleError, match=message):
        s.reorder(s.loop("i"), s.loop("j"))
    assert s.func is before


def test_other_refusals() -> None:
    s = Schedule(matmul())
    with pytest.raises(ScheduleError, match="3 does not divide the 8 iterations"):
        s.split(s.loop("k"), 3)
    with pytest.raises(ScheduleError, match="factor of 0"):
        s.split(s.loop("k"), 0)
    with pytest.raises(ScheduleError, match="0 loops are named q"):
        s.loop("q")
    with pytest.raises(ScheduleError, match="not the only statement"):
        s.fuse(s.loop("i"), s.loop("k"))
    gone = s.loop("k")
    s.split(gone, 2)
    with pytest.raises(ScheduleError, match="no such loop any more"):
        s.unroll(gone)
    triangle = nest(lambda b, i, j: b.store(b._outputs[0], (i, j), 1), dependent=True)
    with pytest.raises(ScheduleError, match="depend on i"):
        triangle.reorder(triangle.loop("i"), triangle.loop("j"))
    with pytest.raises(ScheduleError, match="bounds are not constant"):
        triangle.unroll(triangle.loop("j"))
