"""fold_constant: calls of constants become constants, within a limit of growth."""

from __future__ import annotations

import numpy as np

from aot.relay.expr import Constant, const, get_item
from aot.relay.transform import fold_constant
from tests.relay.check import ops, run
from tests.relay.toy import Net, ScaleAttrs


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
