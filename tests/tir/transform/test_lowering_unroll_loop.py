"""unroll_loop: names, nested bounds and allocations, and bounds that are not constant."""

from __future__ import annotations

import pytest

from aot.errors import InternalError
from aot.tir.builder import IRBuilder
from aot.tir.functor import walk
from aot.tir.stmt import Allocate, For, Let
from aot.tir.transform import unroll
from aot.tir.verify import verify
from tests.tir.kernels import assert_same, blocked_dense


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
