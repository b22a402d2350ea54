"""The variables that an expression uses, and those that it leaves free."""

from __future__ import annotations

from aot import relay
from aot.relay.analysis import all_vars, bound_vars, free_vars
from aot.relay.expr import Constant, Function
from tests.relay.functor_graph import X, Y, graph


def test_variables() -> None:
    body = graph()
    assert free_vars(body) == [X, Y]
    assert bound_vars(body) == []
    func = Function((Y,), body)
    assert free_vars(func) == [X]
    assert bound_vars(func) == [Y]
    assert all_vars(func) == [Y, X]
    assert free_vars(relay.const([1])) == []
    assert isinstance(relay.const(1), Constant)
