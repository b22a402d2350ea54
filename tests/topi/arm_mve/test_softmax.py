"""SOFTMAX by vectors where its sum is largest; drawn rows: test_elementwise.py, tests/topi/test_drawn.py."""

from __future__ import annotations

import numpy as np
import pytest

from aot.ir.type import TensorType
from aot.numerics.fixed_point import softmax_scaling
from aot.op.qnn.softmax import SoftmaxAttrs
from aot.relay.expr import Function, Var, call
from aot.relay.interpreter import evaluate
from tests.topi.groups import lowered, run_lowered


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_softmax_of_many_equal_elements(dtype: str) -> None:
    """Whose sum is 512 and more: the last shift is as far as one goes."""
    x = Var("x", TensorType((2, 700), "int8"))
    body = call("qnn.softmax", [x], SoftmaxAttrs(*softmax_scaling(0.1), dtype))
    low = lowered("arm_mve.softmax", (x,), body, cpu="cortex-m55")
    assert low is not None
    data = np.full((2, 700), 3, np.int8)
    (expected,) = evaluate(Function((x,), body), [data])
    np.testing.assert_array_equal(run_lowered(low, [data], body.type), expected)
