"""eliminate_common_subexpr: equal calls merge, and what keeps calls apart."""

from __future__ import annotations

import numpy as np
import pytest

from aot.ir.type import per_tensor
from aot.relay.expr import Constant, const, make_tuple
from aot.relay.transform import eliminate_common_subexpr
from tests.relay.check import ops, run
from tests.relay.toy import Net, Note, ScaleAttrs


def codes(*values: int) -> Constant:
    return const(np.array([values], np.int8))


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
