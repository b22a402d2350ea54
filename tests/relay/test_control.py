"""relay.If and relay.While: constructors, verifier, passes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aot import op as operators
from aot import relay
from aot.errors import InternalError, UsageError
from aot.ir.module import IRModule
from aot.relay.analysis.trip_count import trip_count
from aot.relay.interpreter import EndlessLoopError, evaluate
from aot.relay.transform import simplify_control_flow
from aot.relay.verify import verify

operators.load_all()


def number(name: str) -> relay.Var:
    return relay.var(name, shape=(1,), dtype="float32")


def below(limit: float) -> relay.Function:
    v = number("v")
    return relay.Function((v,), relay.less(v, relay.const([float(limit)])))


def twice() -> relay.Function:
    w = number("w")
    return relay.Function((w,), relay.add(w, w))


def simplified(body: relay.Expr) -> relay.Function:
    found = simplify_control_flow(IRModule.from_expr(body))["main"]
    assert isinstance(found, relay.Function)
    return found


def test_loop() -> None:
    x = number("x")
    main = relay.Function((x,), relay.while_loop([x], below(100), twice()))
    verify(main)
    assert evaluate(main, [np.array([3], np.float32)])[0] == 192
    with pytest.raises(EndlessLoopError, match="after 9 iterations"):
        evaluate(main, [np.array([0], np.float32)], limit=9)


def test_branch() -> None:
    x, v = number("x"), number("v")
    branch = relay.if_then_else(relay.less(x, relay.const([0.0])), [x], relay.Function((v,), v), twice())
    main = relay.Function((x,), branch)
    verify(main)
    assert [float(evaluate(main, [np.array([n], np.float32)])[0][0]) for n in (-3, 3)] == [-3, 6]


def test_types_are_checked() -> None:
    x, pair = number("x"), relay.var("p", shape=(2,), dtype="float32")
    with pytest.raises(UsageError, match="E1160"):
        relay.if_then_else(x, [x], twice(), twice())
    with pytest.raises(UsageError, match="E1160"):
        relay.while_loop([pair], below(1), twice())
    with pytest.raises(UsageError, match="E1160"):
        relay.while_loop([], below(1), twice())
    good = relay.while_loop([x], below(1), twice())
    with pytest.raises(InternalError, match="a loop's body yields"):
        verify(relay.Function((pair,), replace(good, args=(pair,))))


def test_trip_count() -> None:
    one = relay.const([1.0])
    assert trip_count(relay.while_loop([one], below(100), twice())) == 7
    assert trip_count(relay.while_loop([number("x")], below(100), twice())) is None
    assert trip_count(relay.while_loop([relay.const([0.0])], below(100), twice())) is None, "never ends"


def test_decided_branches_and_short_loops_go() -> None:
    x, v = number("x"), number("v")
    branch = relay.if_then_else(relay.const(np.array([True])), [x], twice(), relay.Function((v,), v))
    assert "if(" not in str(IRModule({"main": simplified(branch)}))
    assert simplified(relay.while_loop([relay.const([60.0])], below(100), twice())).body.type == x.type
    assert "while(" not in str(IRModule({"main": simplified(relay.while_loop([relay.const([60.0])], below(100), twice()))}))
