"""All relay passes in their order, on random graphs and networks."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings

from aot.ir.instrument import CheckSemantics, VerifyIR
from aot.ir.module import IRModule
from aot.ir.op import F_IS_VIEW, T_OP_PATTERN, Op, OpPattern
from aot.ir.transform import PassContext
from aot.relay.expr import Call, Constant, Expr, Function, const, get_item, make_tuple, post_order, users
from aot.relay.printer import print_func
from aot.relay.transform import fuse_ops, pipeline
from tests.relay.check import run
from tests.relay.quantized_nets import networks
from tests.relay.random_graphs import functions
from tests.relay.toy import Net


def codes(*values: int) -> Constant:
    return const(np.array([values], np.int8))


@settings(max_examples=80)
@given(functions())
def test_pipeline_on_random_graphs(func: Function) -> None:
    _check_pipeline(func, CheckSemantics(sets=2))


@settings(max_examples=30)
@given(networks())
def test_pipeline_on_random_networks(func: Function) -> None:
    _check_pipeline(func, CheckSemantics())


def _check_pipeline(func: Function, check: CheckSemantics) -> None:
    """Every pass leaves the meaning as it was and a well-formed graph."""
    with PassContext(instruments=(VerifyIR(), check)):
        fused = pipeline()(IRModule({"main": func}))["main"]
    assert check.compared == len(pipeline().passes)
    assert isinstance(fused, Function)
    _check_groups(fused)


@settings(max_examples=30)
@given(functions())
def test_fuse_ops_without_the_other_passes(func: Function) -> None:
    _check_groups(run(fuse_ops, func, **{"fuse.max_depth": 4}))


def _check_groups(fused: Function) -> None:
    """What fuse_ops promises of each group: one anchor at most, with a chain behind it that each reads the one before."""
    for expr in post_order(fused.body):
        if isinstance(expr, Call) and isinstance(expr.op, Op):
            assert F_IS_VIEW.find(expr.op.name)
        if not isinstance(expr, Call) or not isinstance(expr.op, Function):
            continue
        calls: list[Expr] = [e for e in post_order(expr.op.body) if isinstance(e, Call)]
        kinds = [T_OP_PATTERN.get(str(c.op)) for c in calls if isinstance(c, Call)]
        anchors = [k for k in kinds if k in (OpPattern.COMM_REDUCE, OpPattern.OUT_ELEMWISE_FUSABLE)]
        if anchors:
            assert len(anchors) == 1
            assert kinds[0] == anchors[0]
            assert all(k <= OpPattern.BROADCAST for k in kinds[1:])
            readers = users(expr.op)
            assert all({id(r) for r in readers[id(a)]} == {id(b)} for a, b in pairwise(calls))
            assert all(c.type.shape == calls[0].type.shape for c in calls)  # type: ignore[union-attr]


def test_opt_level_0_runs_the_required_passes_only() -> None:
    assert [p.name for p in pipeline(0).passes] == ["infer_type", "fuse_ops"]
    assert [p.name for p in pipeline(2).passes][-1] == "fuse_ops"


def test_deep_graphs() -> None:
    net = Net()
    y: Expr = net.var(2, 2)
    for i in range(3000):
        y = net.op("neg", y) if i % 3 else net.op("add", y, codes(1, 2))
    with PassContext(instruments=(VerifyIR(), CheckSemantics())):
        fused = pipeline()(IRModule({"main": net.func(y)}))["main"]
    assert isinstance(fused, Function)
    assert sum(isinstance(e, Call) for e in post_order(fused.body)) < 200


def test_golden(golden) -> None:  # type: ignore[no-untyped-def]
    net = Net()
    x = net.var(2, 4)
    c = net.op("neg", codes(1, 2, 3, 4))
    a, b = (net.op("add", net.op("conv", x), c) for _ in range(2))
    func = net.func(make_tuple([net.op("neg", net.op("add", a, x)), get_item(make_tuple([net.op("flip", b), x]), 0)]))
    golden("pipeline_before.relay", print_func(func))
    golden("pipeline_after.relay", print_func(run(pipeline(), func)))
