"""Primitives: the loops that they make, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aot
from aot import te
from aot.tir.builder import IRBuilder
from aot.tir.expr import cast
from aot.tir.functor import walk
from aot.tir.interpreter import run
from aot.tir.intrin import TensorIntrin
from aot.tir.printer import print_func
from aot.tir.stmt import Allocate, Block, For


class Product:
    """C = A B^T, int8 to int32 or float32, with one intermediate: D = C + 1."""

    def __init__(self, dtype: str = "int8", acc: str = "int32") -> None:
        self.a = te.placeholder((4, 6), dtype, "A")
        self.b = te.placeholder((5, 6), dtype, "B")
        self.k = te.reduce_axis((0, 6), "k")
        self.c = te.compute((4, 5), lambda i, j: te.sum(self.term(acc, i, j), axis=self.k), "C")
        self.d = te.compute((4, 5), lambda i, j: self.c[i, j] + 1, "D")
        self.s = te.create_schedule(self.d.op)

    def term(self, acc: str, i: Any, j: Any) -> Any:
        return self.a[i, self.k].astype(acc) * self.b[j, self.k].astype(acc)

    def lowered(self) -> Any:
        return aot.lower(self.s, [self.a, self.b, self.d])["main"]

    def check(self) -> str:
        """The text of the function, which computes the right values."""
        func = self.lowered()
        rng = np.random.default_rng(3)
        x, y = rng.integers(-99, 99, (4, 6)).astype(np.int8), rng.integers(-99, 99, (5, 6)).astype(np.int8)
        out = np.full((4, 5), 7, np.int32)
        run(func, {"A": x, "B": y, "D": out})
        np.testing.assert_array_equal(out, x.astype(np.int32) @ y.astype(np.int32).T + 1)
        return print_func(func)


def loops(func: Any) -> list[str]:
    return [s.var.name for s in walk(func.body) if isinstance(s, For)]


def test_loops() -> None:
    p = Product()
    i, j = p.s[p.c].op.axis
    io, ii = p.s[p.c].split(i, nparts=2)
    assert (io.extent, ii.extent) == (2, 2)
    p.s[p.c].reorder(p.k, io, j, ii)
    f = p.s[p.c].fuse(io, j)
    assert p.s[p.c].leaf_iter_vars == (p.k, f, ii)
    assert loops(p.lowered())[:5] == ["i.outer.j.fused", "i.inner", "k", "i.outer.j.fused", "i.inner"]
    p.check()


def test_compute_at_makes_what_is_read_there() -> None:
    p = Product()
    p.s[p.c].compute_at(p.s[p.d], p.d.op.axis[0])
    p.check()
    assert [b.shape for b in p.lowered().scratch] == [(1, 5)]
    p.s[p.c].set_scope("local").compute_at(p.s[p.d], p.d.op.axis[1])
    p.check()
    assert [s.buffer.shape for s in walk(p.lowered().body) if isinstance(s, Allocate)] == [(1, 1)]
    p.s[p.c].compute_root()
    p.s[p.c].set_scope("global")
    assert [b.shape for b in p.lowered().scratch] == [(4, 5)]


def test_windows_are_as_large_as_they_must_be() -> None:
    x = te.placeholder((10,), "int8", "X")
    y = te.compute((10,), lambda i: x[i] + 1, "Y")
    r = te.reduce_axis((0, 3), "r")
    z = te.compute((8,), lambda i: te.sum(y[i + r].astype("int32"), axis=r), "Z")
    s = te.create_schedule(z.op)
    outer, _ = s[z].split(z.op.axis[0], 4)
    s[y].compute_at(s[z], outer)
    func: Any = aot.lower(s, [x, z])["main"]
    assert [b.shape for b in func.scratch] == [(6,)]


def test_pragmas() -> None:
    p = Product()
    p.s[p.c].pragma(p.k, "auto_unroll_max_step", 6)
    p.s[p.d].pragma(p.d.op.axis[0], "opt", "size")
    assert "for k in 0..6 unroll" in p.check()
    assert p.lowered().attrs.opt == "size"


def row_dot(count: int, *, swapped: bool = False) -> TensorIntrin:
    """acc[0, 0] += sum of x[k] y[k]."""
    b = IRBuilder("row_dot")
    x, y = b.input("x", (count,), "int8"), b.input("y", (count,), "int8")
    acc = b.output("acc", (1,), "int32")
    with b.for_("k", count) as k:
        product = cast("int32", y[k]) * cast("int32", x[k]) if swapped else cast("int32", x[k]) * cast("int32", y[k])
        b.store(acc, 0, acc[0] - product if swapped else acc[0] + product)
    return TensorIntrin("row_dot", b.finish(), lambda _ops: "")


def test_tensorize() -> None:
    p = Product()
    p.s[p.c].tensorize(p.k, row_dot(6))
    p.check()
    assert sum(isinstance(s, Block) for s in walk(p.lowered().body)) == 1


def another() -> Any:
    return te.compute((2,), lambda i: i + 0, "other").op.axis[0]


Refused = Callable[[Product], Any]
REFUSED: dict[str, Refused] = {
    "foreign loop": lambda p: p.s[p.c].split(another(), 2),
    "loop that is gone": lambda p: (p.s[p.c].split(p.k, 2), p.s[p.c].unroll(p.k)),
    "no loop": lambda p: p.s[p.c].unroll(3),
    "factor 0": lambda p: p.s[p.c].split(p.k, 0),
    "factor and nparts": lambda p: p.s[p.c].split(p.k, 2, 2),
    "neither": lambda p: p.s[p.c].split(p.k),
    "factor of text": lambda p: p.s[p.c].split(p.k, "2"),
    "factor true": lambda p: p.s[p.c].split(p.k, True),
    "fuse of one": lambda p: p.s[p.c].fuse(p.k),
    "fuse of data and reduction": lambda p: p.s[p.c].fuse(p.c.op.axis[1], p.k),
    "fuse in the wrong order": lambda p: p.s[p.c].fuse(p.c.op.axis[1], p.c.op.axis[0]),
    "reorder twice": lambda p: p.s[p.c].reorder(p.k, p.k),
    "tile of one": lambda p: p.s[p.c].tile(p.k, p.k, 2, 2),
    "vector of a reduction": lambda p: p.s[p.c].vectorize(p.k),
    "vector outside": lambda p: p.s[p.d].vectorize(p.d.op.axis[0]),
    "unknown pragma": lambda p: p.s[p.c].pragma(p.k, "import_c", "x"),
    "pragma of a wrong value": lambda p: p.s[p.c].pragma(p.k, "opt", "fast"),
    "tensorize with text": lambda p: p.s[p.c].tensorize(p.k, "dot"),
    "tensorize with another length": lambda p: (p.s[p.c].tensorize(p.k, row_dot(5)), p.lowered()),
    "tensorize with another meaning": lambda p: (p.s[p.c].tensorize(p.k, row_dot(6, swapped=True)), p.lowered()),
    "tensorize of a part": lambda p: (p.s[p.c].tensorize(p.s[p.c].split(p.k, 4)[1], row_dot(4)), p.lowered()),
    "inlined reduction": lambda p: p.s[p.c].compute_inline(),
    "inlined output": lambda p: p.s[p.d].compute_inline(),
    "output inside": lambda p: p.s[p.d].compute_at(p.s[p.c], p.k),
    "inside itself": lambda p: p.s[p.c].compute_at(p.s[p.c], p.k),
    "inside of a tensor": lambda p: p.s[p.c].compute_at(p.d, p.d.op.axis[0]),
    "inside of another schedule": lambda p: p.s[p.c].compute_at(Product().s.stages[1], p.k),
    "at a loop that is split": lambda p: (
        p.s[p.c].compute_at(p.s[p.d], p.d.op.axis[0]),
        p.s[p.d].split(p.d.op.axis[0], 2),
        p.lowered(),
    ),
    "local output": lambda p: p.s[p.d].set_scope("local"),
    "unknown scope": lambda p: p.s[p.c].set_scope("shared"),
    "cache of what is not read": lambda p: p.s.cache_read(p.a, "local", [p.d]),
    "cache too late": lambda p: (p.s[p.c].split(p.k, 2), p.s.cache_write(p.c, "local")),
    "rfactor of data": lambda p: p.s.rfactor(p.c, p.c.op.axis[0]),
    "rfactor of a rest": lambda p: p.s.rfactor(p.c, p.s[p.c].split(p.k, 4)[1]),
    "rfactor to nowhere": lambda p: p.s.rfactor(p.c, p.k, 3),
    "too much unrolled": lambda p: (
        [p.s[p.c].unroll(a) for a in p.s[p.c].leaf_iter_vars],
        p.s[p.d].split(p.d.op.axis[0], 4096),
        p.s[p.d].unroll(p.s[p.d].leaf_iter_vars[1]),
        p.s[p.d].unroll(p.s[p.d].leaf_iter_vars[2]),
        p.lowered(),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    p = Product()
    with pytest.raises(te.ScheduleError, match="E5040"):
        REFUSED[case](p)


def test_a_refusal_shows_the_loops_and_changes_nothing() -> None:
    p = Product()
    with pytest.raises(te.ScheduleError) as caught:
        p.s[p.c].vectorize(p.k)
    text = str(caught.value)
    assert "for i in 0..4" in text
    assert "for k in 0..6 (reduction)  <-- here" in text
    p.check()
    with pytest.raises(te.ScheduleError):
        p.s[p.c].tile(p.c.op.axis[0], p.k, 2, 0)
    assert p.s[p.c].leaf_iter_vars == (*p.c.op.axis, p.k)


def test_the_order_of_a_float_sum_stays() -> None:
    p = Product("float32", "float32")
    ko, ki = p.s[p.c].split(p.k, 2)
    i, j = p.c.op.axis
    p.s[p.c].reorder(ko, i, ki, j)
    with pytest.raises(te.ScheduleError, match="rounding"):
        p.s[p.c].reorder(ki, ko)
    with pytest.raises(te.ScheduleError, match="rounding"):
        _float_rfactor()


def _float_rfactor() -> None:
    p = Product("float32", "float32")
    p.s.rfactor(p.c, p.k)


def test_partial_sums_that_might_overflow() -> None:
    p = Product("int32", "int32")
    ko, ki = p.s[p.c].split(p.k, 2)
    with pytest.raises(te.ScheduleError, match="overflow"):
        p.s[p.c].reorder(ki, ko)
    q = Product("uint32", "uint32")
    q.s.rfactor(q.c, q.k)


def test_a_reader_outside() -> None:
    x = te.placeholder((6,), "int8", "X")
    y = te.compute((6,), lambda i: x[i] + 1, "Y")
    z = te.compute((6,), lambda i: y[i] * 2, "Z")
    w = te.compute((6,), lambda i: y[i] + z[i], "W")
    s = te.create_schedule(w.op)
    s[y].compute_at(s[z], z.op.axis[0])
    with pytest.raises(te.ScheduleError, match="W reads it outside"):
        aot.lower(s, [x, w])
    s[y].compute_at(s[w], w.op.axis[0])
    s[z].compute_at(s[w], w.op.axis[0])
    func: Any = aot.lower(s, [x, w])["main"]
    data, out = np.arange(6, dtype=np.int8), np.zeros(6, np.int8)
    run(func, {"X": data, "W": out})
    np.testing.assert_array_equal(out, 3 * (data + 1))
