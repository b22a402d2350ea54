"""Results in the storage of an operand: only where it is read for the last time, and where that gains something."""

from __future__ import annotations

from dataclasses import replace

from aot.executor.copy_elision import in_place_results, merge_alignments
from aot.executor.lowered import KernelCall, LoweredModule
from aot.tir.builder import IRBuilder
from aot.tir.function import PrimFunc
from tests.executor.nets import tensor

X, A, Y = tensor("x", 64), tensor("a", 64), tensor("y", 64)


def mirrored(n: int) -> PrimFunc:
    """y[n - 1 - i] = x[n - 1 - i] and y[i] = x[i], from both ends: exact in place, while no distance is small."""
    b = IRBuilder("mirrored")
    x, y = b.input("x", (n,), "int8"), b.output("y", (n,), "int8")
    with b.for_("i", n // 2) as i:
        b.store(y, i, x[i])
        b.store(y, n - 1 - i, x[n - 1 - i])
    return b.finish()


def net(*calls: KernelCall, outputs: tuple[object, ...] = (Y,)) -> LoweredModule:
    return LoweredModule({"mirrored": mirrored(64)}, "net", inputs=(X,), outputs=outputs, calls=calls)  # type: ignore[arg-type]


CALLS = (KernelCall("mirrored", (X,), (A,)), KernelCall("mirrored", (A,), (Y,)))


def test_a_chain_stays_where_it_is() -> None:
    assert in_place_results(net(*CALLS)) == {A: X, Y: A}
    assert merge_alignments({X: 1, A: 4, Y: 16}, {A: X, Y: A}) == {X: 16, A: 16, Y: 16}


def test_what_is_read_again_or_returned_is_kept() -> None:
    again = KernelCall("mirrored", (X,), (tensor("z", 64),))
    assert in_place_results(net(*CALLS, again))[Y] is A
    assert A not in in_place_results(net(*CALLS, again))
    assert in_place_results(net(*CALLS, outputs=(A, Y))) == {A: X}


def test_other_sizes_are_not_taken() -> None:
    wide = replace(CALLS[1], outputs=(tensor("wide", 128),))
    assert in_place_results(net(CALLS[0], wide)) == {A: X}
