"""simplify_control_flow: branches that are decided and loops that are short."""

from __future__ import annotations

import numpy as np

from aot import relay
from aot.ir.module import IRModule
from aot.relay.transform import simplify_control_flow
from tests.relay.control_graphs import below, number, twice


def simplified(body: relay.Expr) -> relay.Function:
    found = simplify_control_flow(IRModule.from_expr(body))["main"]
    assert isinstance(found, relay.Function)
    return found


def test_decided_branches_and_short_loops_go() -> None:
    x, v = number("x"), number("v")
    branch = relay.if_then_else(relay.const(np.array([True])), [x], twice(), relay.Function((v,), v))
    assert "if(" not in str(IRModule({"main": simplified(branch)}))
    assert simplified(relay.while_loop([relay.const([60.0])], below(100), twice())).body.type == x.type
    assert "while(" not in str(IRModule({"main": simplified(relay.while_loop([relay.const([60.0])], below(100), twice()))}))
