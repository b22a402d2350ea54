"""The relay verifier finds what it says it finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from aot.errors import InternalError
from aot.ir.op import Op
from aot.ir.span import NO_SPAN
from aot.ir.type import TensorType, TupleType
from aot.relay.expr import Call, Constant, Expr, Function, TupleGetItem, Var, const, make_tuple
from aot.relay.transform import fuse_ops
from aot.relay.verify import verify
from tests.relay.check import run
from tests.relay.toy import Net

INT8 = TensorType((2, 4), "int8")


def _stranger(net: Net, x: Var) -> Expr:
    return net.op("add", x, Var("stranger", INT8))


def _wrong_type(net: Net, x: Var) -> Expr:
    return replace(net.op("neg", x), type=TensorType((2, 5), "int8"))


def _refused(net: Net, x: Var) -> Expr:
    return replace(net.op("add", x, x), args=(x, const(np.zeros((2, 3), np.int8))))


def _unknown(net: Net, x: Var) -> Expr:
    return replace(net.op("neg", x), op=Op("t.unknown"))


def _constant(net: Net, x: Var) -> Expr:
    return net.op("add", x, Constant(np.zeros((2, 4), np.int16), INT8))


def _no_field(net: Net, x: Var) -> Expr:
    return TupleGetItem(net.op("split", x), 2, TensorType((2, 2), "int8"))


def _wrong_field(net: Net, x: Var) -> Expr:
    return TupleGetItem(net.op("split", x), 1, INT8)


def _tuple(net: Net, x: Var) -> Expr:
    return replace(make_tuple([net.op("neg", x), x]), type=TupleType((INT8,)))


def _lost_span(net: Net, x: Var) -> Expr:
    return replace(net.op("neg", net.op("neg", x)), span=NO_SPAN)


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (_stranger, "stranger is not a parameter"),
        (_wrong_type, r"t.neg yields int8\[2, 4\], but the call has type int8\[2, 5\]"),
        (_refused, "t.add: shape mismatch"),
        (_unknown, "t.unknown is not registered"),
        (_constant, r"the constant holds int16\[2, 4\]"),
        (_no_field, "field 2 of"),
        (_wrong_field, "field 1 of .* is said to be"),
        (_tuple, "a tuple of type"),
        (_lost_span, "1 calls do not say which operator of the model they come from: t.neg"),
    ],
)
def test_faults(break_it: Callable[[Net, Var], Expr], message: str) -> None:
    net = Net()
    x = net.var(2, 4)
    with pytest.raises(InternalError, match=message) as caught:
        verify(net.func(break_it(net, x)))
    assert all(p.code == "E9003" and p.where.startswith("@main") for p in caught.value.problems)
    assert "def @main(%x0: int8[2, 4])" in caught.value.__notes__[0]


def _group(net: Net) -> tuple[Call, Function]:
    fused = run(fuse_ops, net.func(net.op("add", net.var(2, 4), net.op("neg", net.var(2, 4)))))
    assert isinstance(fused.body, Call)
    assert isinstance(fused.body.op, Function)
    return fused.body, fused.body.op


def test_groups() -> None:
    net = Net()
    call, group = _group(net)
    y = net.params[1]
    captured = net.op("add", group.body, y)
    for bad, message in (
        (replace(call, op=replace(group, body=captured)), "in add_neg|in neg_add"),
        (replace(call, args=call.args[:1]), "1 arguments for 2 parameters"),
        (replace(call, args=(call.args[0], const(np.zeros((2, 5), np.int8)))), r"of type int8\[2, 4\] is given int8\[2, 5\]"),
        (replace(call, type=TensorType((1,), "int8")), "the function yields"),
        (replace(call, op=replace(group, attrs={"name": "plain"})), "plain inside is not marked as primitive"),
        (replace(call, op=replace(group, body=group.params[0])), "the parameter p1 of neg_add is not used"),
        (replace(call, op=replace(group, body=replace(call, args=group.params))), "calls another function"),
    ):
        with pytest.raises(InternalError, match=message):
            verify(net.func(bad))
    verify(net.func(call))


def test_parameters_are_distinct() -> None:
    net = Net()
    x = net.var(2, 4)
    with pytest.raises(InternalError, match="a parameter occurs twice"):
        verify(Function((x, x), net.op("neg", x)))


def test_all_faults_at_once() -> None:
    net = Net()
    x = net.var(2, 4)
    with pytest.raises(InternalError) as caught:
        verify(net.func(make_tuple([_stranger(net, x), replace(_wrong_type(net, x), type=INT8), _unknown(net, x)])))
    assert len(caught.value.problems) == 2
