"""nn.bias_add in every way, with sums at the ends of their type; as a part of layers: test_conv2d.py, test_dense.py."""

from __future__ import annotations

import numpy as np
import pytest

from aot.ir.op import F_INFER_TYPE, TypeRuleError
from aot.ir.type import TensorType
from aot.relay.expr import Function, Var, call, const
from aot.relay.interpreter import evaluate
from tests.op._differential import check_lowering


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_each_channel_has_its_bias(dtype: str) -> None:
    rng = np.random.default_rng(0)
    data, bias = rng.integers(-1000, 1000, (2, 3, 5)).astype(dtype), rng.integers(-1000, 1000, 5).astype(dtype)
    x = Var("x", TensorType((2, 3, 5), dtype))
    func = Function((x,), call("nn.bias_add", [x, const(bias)]))
    (found,) = evaluate(func, [data])
    assert np.array_equal(found, data + bias)
    check_lowering(func, [[data]], [[found]], host=True)


def test_sums_wrap() -> None:
    """As those of the reference's accumulators do."""
    ends = np.array([[(1 << 31) - 1, -(1 << 31)]], np.int32)
    x = Var("x", TensorType((1, 2), "int32"))
    func = Function((x,), call("nn.bias_add", [x, const(np.array([1, -1], np.int32))]))
    assert evaluate(func, [ends])[0].tolist() == [[-(1 << 31), (1 << 31) - 1]]
    check_lowering(func, [[ends]], [[np.array([[-(1 << 31), (1 << 31) - 1]], np.int32)]], host=True)


@pytest.mark.parametrize("bias", [TensorType((4,), "int32"), TensorType((5,), "int64"), TensorType((1, 5), "int32")])
def test_one_value_of_the_same_type_for_each_channel(bias: TensorType) -> None:
    with pytest.raises(TypeRuleError, match="a bias of"):
        F_INFER_TYPE.get("nn.bias_add")([TensorType((2, 5), "int32"), bias], None)
