"""fold_constant, eliminate_common_subexpr, dead_code, infer_type, and all passes on random graphs."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings

from aot.errors import InternalError
from aot.ir.instrument import CheckSemantics, VerifyIR
from aot.ir.module import IRModule
from aot.ir.op import F_IS_VIEW, T_OP_PATTERN, Op, OpPattern
from aot.ir.transform import PassContext
from aot.ir.type import TensorType, per_tensor
from aot.relay.expr import Call, Constant, Expr, Function, Tuple, const, get_item, make_tuple, post_order, users
from aot.relay.printer import print_func
from aot.relay.transform import (
    dead_code,
    eliminate_common_subexpr,
    fold_constant,
    fuse_ops,
    infer_type,
    pipeline,
)
from tests.relay.check import ops, run
from tests.relay.quantized_nets import networks
from tests.relay.random_graphs import functions
from tests.relay.toy import Net, Note, ScaleAttrs


def codes(*values: int) -> Constant:
    return const(np.array([values], np.int8))


def test_constants_fold_through_a_chain() -> None:
    net = Net()
    x = net.var(1, 4)
    c = net.op("neg", net.op("scale", codes(1, 2, 3, 4), attrs=ScaleAttrs(3)))
    new = run(fold_constant, net.func(net.op("add", x, c)))
    assert ops(new) == ["t.add"]
    value = new.body.args[1]  # type: ignore[union-attr]
    assert value.data.tolist() == [[-3, -6, -9, -12]]
    assert value.span == c.span


def test_tuple_results_fold() -> None:
    net = Net()
    x = net.var(1, 2)
    halves = net.op("split", codes(1, 2, 3, 4))
    assert ops(run(fold_constant, net.func(net.op("add", x, get_item(halves, 1))))) == ["t.add"]


def test_growth_is_limited() -> None:
    net = Net()
    x = net.var(64, 64)
    wide = net.op("add", const(np.ones((64, 1), np.int8)), const(np.ones((1, 64), np.int8)))
    func = net.func(net.op("add", x, wide))
    assert ops(run(fold_constant, func)) == ["t.add", "t.add"]
    assert ops(run(fold_constant, func, **{"fold.max_growth": 4096})) == ["t.add"]


def test_equal_calls_merge() -> None:
    net = Net()
    x = net.var(2, 4)
    a, b = (net.op("neg", net.op("add", x, codes(1, 2, 3, 4))) for _ in range(2))
    new = run(eliminate_common_subexpr, net.func(net.op("add", a, b)))
    assert ops(new) == ["t.add", "t.neg", "t.add"]
    assert new.body.args[0] is new.body.args[1]  # type: ignore[union-attr]
    assert new.body.args[0].span == a.span  # type: ignore[union-attr]


@pytest.mark.parametrize("factor", [2, 3])
def test_attributes_count(factor: int) -> None:
    net = Net()
    x = net.var(2, 4)
    a, b = net.op("scale", x, attrs=ScaleAttrs(2)), net.op("scale", x, attrs=ScaleAttrs(factor))
    assert len(ops(run(eliminate_common_subexpr, net.func(make_tuple([a, b]))))) == (1 if factor == 2 else 2)


def test_operand_order_counts() -> None:
    net = Net()
    x, y = net.var(2, 4), net.var(2, 4)
    func = net.func(make_tuple([net.op("cat", x, y), net.op("cat", y, x)]))
    assert len(ops(run(eliminate_common_subexpr, func))) == 2


def test_constants_of_other_types_stay_apart() -> None:
    net = Net()
    x = net.var(1, 4)
    plain, quantised = codes(1, 2, 3, 4), const(np.array([[1, 2, 3, 4]], np.int8), quant=per_tensor(0.5, 0))
    new = run(eliminate_common_subexpr, net.func(make_tuple([net.op("add", x, plain), net.op("add", x, quantised)])))
    assert len(ops(new)) == 2


def test_attributes_that_cannot_be_hashed_keep_calls_apart() -> None:
    net = Net()
    x = net.var(2, 4)
    func = net.func(make_tuple([net.op("noted", x, attrs=Note([1])), net.op("noted", x, attrs=Note([1]))]))
    assert len(ops(run(eliminate_common_subexpr, func))) == 2


def test_fields_of_a_spelled_out_tuple() -> None:
    net = Net()
    x = net.var(2, 4)
    both = make_tuple([net.op("neg", x), net.op("conv", x)])
    assert ops(run(dead_code, net.func(get_item(both, 0)))) == ["t.neg"]


def test_dead_parameters_of_fused_functions() -> None:
    net = Net()
    x, y = net.var(2, 4), net.var(2, 4)
    fused = run(fuse_ops, net.func(net.op("add", x, y)))
    call = fused.body
    assert isinstance(call, Call)
    assert isinstance(call.op, Function)
    only = Function(call.op.params, call.op.params[1], call.op.attrs)
    with PassContext():
        new = dead_code(IRModule({"main": replace(fused, body=replace(call, op=only))}))["main"]
    assert isinstance(new, Function)
    assert isinstance(new.body, Call)
    assert new.body.args == (y,)
    assert len(new.params) == 2, "main's own parameters are its interface"


def test_infer_type_corrects_types_and_keeps_quantisation() -> None:
    net = Net()
    x = net.var(2, 4)
    quant = per_tensor(0.25, 3)
    wrong = replace(net.op("neg", x), type=TensorType((9, 9), "int8"))
    noted = replace(net.op("neg", x), type=TensorType((2, 4), "int8", quant))
    func = net.func(make_tuple([net.op("neg", wrong), noted]))
    with PassContext():
        new = infer_type(IRModule({"main": func}))["main"]
    assert isinstance(new, Function)
    assert isinstance(new.body, Tuple)
    assert new.body.type.fields == (x.type, TensorType((2, 4), "int8", quant))
    assert new.body.fields[1] is noted


def test_infer_type_names_the_operator_that_does_not_fit() -> None:
    net = Net()
    x, y = net.var(2, 4), net.var(2, 3)
    bad = replace(net.op("add", x, x), args=(x, y))
    with pytest.raises(InternalError, match=r'op 1 ADD "y1".*t.add') as caught:
        infer_type(IRModule({"main": net.func(bad)}))
    assert "in pass infer_type" in caught.value.__notes__


@settings(max_examples=150, deadline=None)
@given(functions())
def test_pipeline_on_random_graphs(func: Function) -> None:
    _check_pipeline(func, CheckSemantics(sets=2))


@settings(max_examples=60, deadline=None)
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


@settings(max_examples=60, deadline=None)
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
