"""The passes of a kernel in their order: what remains computes the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aot.errors import InternalError
from aot.ir.instrument import VerifyIR
from aot.ir.module import IRModule
from aot.ir.transform import PassContext
from aot.tir.builder import IRBuilder
from aot.tir.function import PrimFunc
from aot.tir.printer import print_func
from aot.tir.transform import flatten, optimize, pipeline, simplified, unroll
from aot.tir.verify import verify
from tests.tir.kernels import assert_same, blocked_dense, conv
from tests.tir.test_interpreter import block_func

KERNELS: list[Callable[[], PrimFunc]] = [conv, lambda: conv(1, 1), blocked_dense]


@pytest.mark.parametrize("make", KERNELS)
@pytest.mark.parametrize("transform", [simplified, unroll, flatten, optimize, lambda f: simplified(unroll(simplified(f)))])
def test_meaning_is_kept(make: Callable[[], PrimFunc], transform: Callable[[PrimFunc], PrimFunc]) -> None:
    before = make()
    after = transform(before)
    verify(after)
    assert_same(before, after)


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
