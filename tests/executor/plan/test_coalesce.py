"""What is alive after each call of branches and loops; whole networks: tests/executor/test_control_flow.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from aot.driver.build import compile_model
from aot.executor.lowered import CallLowered, LoweredModule
from aot.executor.plan.coalesce import live_after, without_copies
from aot.memory.control import Control
from aot.runtime.module import load
from aot.testing.reference import reference_sets
from aot.testing.text_model import text_model
from tests.executor.nets import add, tensor
from tests.op.state.test_variable import check, same

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


INITIAL = """
    graph initialize
    tensor v resource[]
    const first float32[1,4] data=1,2,3,4
    VAR_HANDLE -> v shared_name=v
    ASSIGN_VARIABLE v first ->
"""
LOOP = """
    in x float32[1,4]
    in k int32[]
    tensor v resource[]
    CALL_ONCE -> init_subgraph_index=3
    VAR_HANDLE -> v shared_name=v
    tensor old float32[1,4]
    READ_VARIABLE v -> old
    const zero int32[] data=0
    tensor start float32[1,4]
    ADD old x -> start
    tensor n int32[]
    tensor sum float32[1,4]
    WHILE {first} {source} -> n sum cond_subgraph_index=1 body_subgraph_index=2
    ASSIGN_VARIABLE v sum ->
    out y float32[1,4]
    MUL sum {factor} -> y
    graph condition
    in i int32[]
    in a float32[1,4]
    const most int32[] data=3
    out go bool[]
    LESS i most -> go
    graph body
    in i int32[]
    in a float32[1,4]
    const one int32[] data=1
    out next int32[]
    ADD i one -> next
    const half float32[] data=0.5
    out less float32[1,4]
    MUL a half -> less
"""
BRANCH = """
    in x float32[1,4]
    in k int32[]
    tensor v resource[]
    CALL_ONCE -> init_subgraph_index=3
    VAR_HANDLE -> v shared_name=v
    tensor old float32[1,4]
    READ_VARIABLE v -> old
    const zero int32[] data=0
    tensor go bool[]
    LESS k zero -> go
    tensor sum float32[1,4]
    IF go x old -> sum then_subgraph_index=1 else_subgraph_index=2
    ASSIGN_VARIABLE v sum ->
    out y float32[1,4]
    MUL sum x -> y
    graph then
    in a float32[1,4]
    in b float32[1,4]
    out more float32[1,4]
    ADD a b -> more
    graph else
    in a float32[1,4]
    in b float32[1,4]
    out less float32[1,4]
    SUB b a -> less
"""


def steps(count: int) -> list[list[np.ndarray[Any, Any]]]:
    rng = np.random.default_rng(5)
    return [[rng.standard_normal((1, 4)).astype(np.float32), np.array(rng.integers(-2, 3), np.int32)] for _ in range(count)]


@pytest.mark.parametrize(
    ("text", "moved"),
    [
        (LOOP.format(first="zero", factor="x", source="old"), 0),
        (LOOP.format(first="zero", factor="x", source="start"), 0),
        (LOOP.format(first="zero", factor="old", source="old"), 32),  # the old value is read after the loop
        (LOOP.format(first="k", factor="x", source="old"), 32),  # the run may be given up, and has changed nothing then
        (BRANCH, 0),
    ],
)
def test_a_loop_goes_on_in_the_state(text: str, moved: int) -> None:
    model = text_model(text + INITIAL)
    check(model, steps(8))
    found = compile_model(model).artifact.metadata["state"]
    assert (found["bytes_new"], found["bytes_moved"]) == (16, moved)
    host = load(compile_model(model, target="host").artifact)
    for seed in range(2):
        inputs = steps(200)[seed * 50 :]
        assert same([host.run(s) for s in inputs], reference_sets(model, inputs))
        host.reset()
