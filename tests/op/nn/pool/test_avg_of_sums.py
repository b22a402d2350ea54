"""Means of sums that a window which moves keeps: those of AVERAGE_POOL_2D."""

from __future__ import annotations

import numpy as np
import pytest

from aot.ir.op import TypeRuleError
from aot.ir.type import TensorType
from aot.op import load_all
from aot.op.common.layer import PoolAttrs
from aot.op.nn.pool import AvgOfSumsAttrs
from aot.op.nn.pool import evaluate_avg_pool2d as pooled
from aot.relay.expr import Function, Var, call
from aot.relay.interpreter import evaluate

load_all()


@pytest.mark.parametrize("count", [1, 2, 7, 98])
def test_it_is_what_pooling_makes_of_the_numbers(count: int) -> None:
    data = np.random.default_rng(count).integers(-128, 128, (1, count, 1, 400)).astype(np.int8)
    sums = data.astype(np.int32).sum(axis=(1, 2), keepdims=True, dtype=np.int32)
    x = Var("x", TensorType(sums.shape, "int32"))
    (found,) = evaluate(Function((x,), call("nn.avg_of_sums", [x], AvgOfSumsAttrs(count, -100, 90))), [sums])
    attrs = PoolAttrs((count, 1), (1, 1), (0, 0, 0, 0), -100, 90)
    np.testing.assert_array_equal(found, pooled(data, attrs=attrs, out_type=TensorType((1, 1, 1, 400), "int8")))


def test_sums_have_32_bits() -> None:
    with pytest.raises(TypeRuleError, match="int32 sums"):
        call("nn.avg_of_sums", [Var("x", TensorType((1, 1, 1, 4), "int8"))], AvgOfSumsAttrs(4, -128, 127))
