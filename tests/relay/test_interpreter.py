"""The relay interpreter: results, traced tensors, memory, and faults."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import numpy as np
import pytest

from aot.errors import InternalError
from aot.ir.op import OpPattern, register_op
from aot.ir.span import Span
from aot.ir.type import TensorType
from aot.relay.expr import Expr, Function, Var, const, get_item, make_tuple
from aot.relay.interpreter import evaluate, evaluate_all
from aot.relay.transform import fuse_ops
from tests.relay.check import run
from tests.relay.toy import Net, ScaleAttrs

X = np.array([[1, -2, 3, 100], [0, 5, -6, 7]], np.int8)


def test_one_output() -> None:
    net = Net()
    x = net.var(2, 4)
    (y,) = evaluate(net.func(net.op("scale", net.op("neg", x), attrs=ScaleAttrs(2, 1))), [X])
    assert y.tolist() == [[-1, 5, -5, 57], [1, -9, 13, -13]]


def test_several_outputs_and_tuples() -> None:
    net = Net()
    x = net.var(2, 4)
    halves = net.op("split", x)
    func = net.func(make_tuple([get_item(halves, 1), x, const(np.array([1], np.int8))]))
    right, same, one = evaluate(func, [X])
    assert right.tolist() == [[3, 100], [-6, 7]]
    assert same is X
    assert one.tolist() == [1]


def test_every_tensor_of_the_model_is_traced() -> None:
    net = Net()
    x = net.var(2, 4)
    y = net.op("neg", x)
    twice = net.op("conv", y)
    last = replace(net.op("neg", twice), span=twice.span)
    func = net.func(net.op("add", last, y))
    outputs, values = evaluate_all(func, [X])
    assert sorted(values) == [y.span.tensor, twice.span.tensor, net.count, x.span.tensor]
    np.testing.assert_array_equal(values[y.span.tensor], -X)
    np.testing.assert_array_equal(values[twice.span.tensor], -np.cumsum(-X, axis=-1, dtype=np.int8))
    np.testing.assert_array_equal(values[net.count], outputs[0])


def test_traces_reach_into_fused_functions() -> None:
    net = Net()
    x = net.var(2, 4)
    func = net.func(net.op("neg", net.op("scale", net.op("conv", x), attrs=ScaleAttrs(3))))
    plain, fused = evaluate_all(func, [X])[1], evaluate_all(run(fuse_ops, func), [X])[1]
    assert plain.keys() == fused.keys() - {-1}
    for tensor, value in plain.items():
        np.testing.assert_array_equal(value, fused[tensor])


@pytest.mark.parametrize("bad", [[], [X, X], [X[:1]], [X.astype(np.int16)], [X.tolist()]])
def test_inputs_are_checked(bad: list[np.ndarray]) -> None:
    net = Net()
    func = net.func(net.op("neg", net.var(2, 4)))
    with pytest.raises(ValueError, match="expected"):
        evaluate(func, bad)


register_op(
    "t.lies",
    1,
    arguments=[("x", "any", "the operand")],
    attrs_type=None,
    pattern=OpPattern.OPAQUE,
    infer_type=lambda types, attrs: types[0],
    evaluate=lambda x, attrs, out_type: x.astype(np.int32),
    doc="returns another type than it promises",
)


def test_results_are_checked_against_types() -> None:
    net = Net()
    x = net.var(2, 4)
    with pytest.raises(InternalError, match=r"t\.lies evaluates to int32\[2, 4\], its type is int8\[2, 4\]"):
        evaluate(net.func(net.op("t.lies", x)), [X])


def test_foreign_variable() -> None:
    net = Net()
    net.var(2, 4)
    stranger = Var("stranger", TensorType((2, 4), "int8"), Span())
    with pytest.raises(InternalError, match="stranger is not a parameter"):
        evaluate(net.func(net.op("neg", stranger)), [X])


_ALIVE: list[weakref.ref[np.ndarray]] = []
_PEAK: list[int] = []


def _count(x: np.ndarray, attrs: object, out_type: object) -> np.ndarray:
    result = x.copy()
    _ALIVE.append(weakref.ref(result))
    _PEAK.append(sum(r() is not None for r in _ALIVE))
    return result


register_op(
    "t.counted",
    1,
    arguments=[("x", "any", "the operand")],
    attrs_type=None,
    pattern=OpPattern.ELEMWISE,
    infer_type=lambda types, attrs: types[0],
    evaluate=_count,
    doc="a copy that is counted",
)


def test_dead_values_are_dropped() -> None:
    gc.collect()
    net = Net()
    y: Expr = net.var(2, 4)
    for _ in range(50):
        y = net.op("t.counted", y)
    evaluate(Function(tuple(net.params), y), [X])
    assert len(_PEAK) == 50
    assert max(_PEAK) <= 3
