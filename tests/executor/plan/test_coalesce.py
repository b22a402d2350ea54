"""What is alive after each call of branches and loops; whole networks: tests/executor/test_control_flow.py."""

from __future__ import annotations

from dataclasses import replace

from aot.executor.lowered import CallLowered, LoweredModule
from aot.executor.plan.coalesce import live_after, without_copies
from aot.memory.control import Control
from tests.executor.nets import add, tensor

X, K, C, A, B, Y = (tensor(n, 8) for n in "xkcaby")


def net(control: Control) -> LoweredModule:
    """c = x + x; under `control` a = b + k, b = a + k; y = b + b."""
    calls = (
        CallLowered("add", (X, X), (C,)),
        CallLowered("add", (B, K), (A,)),
        CallLowered("add", (A, K), (B,)),
        CallLowered("add", (B, B), (Y,)),
    )
    return LoweredModule(
        {"add": add(8)}, "net", inputs=(X, K, B), outputs=(Y,), calls=calls, controls=(control,), conditions=(C,),
        variables=frozenset({B}),
    )  # fmt: skip


def test_branches_join_what_both_sides_need() -> None:
    after = live_after(net(Control("if", 1, 2, 3)))
    assert after[3] == {Y}
    assert after[2] == {B}, "of the second part"
    assert after[1] == {B}, "b is not made there and is read behind the branch"
    assert after[0] == {C, B, K, A}, "either part may run next"


def test_a_loop_needs_again_what_it_reads() -> None:
    after = live_after(net(Control("while", 1, 2, 3)))
    assert after[2] == {B, K, C}, "the next iteration reads b and k, and c decides"
    assert {A, B, K} <= after[1]
    assert after[0] == {B, K, C}


def test_without_branches_nothing_is_done() -> None:
    straight = replace(net(Control("if", 1, 2, 3)), controls=(), conditions=())
    assert without_copies(straight) is straight
