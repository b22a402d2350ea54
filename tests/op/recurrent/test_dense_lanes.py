"""nn.dense_lanes: the order of four partial sums; as a part of SVDF and RNN against the reference: test_svdf.py, test_rnn.py."""

from __future__ import annotations

import numpy as np
import pytest

from aot.ir.type import TensorType
from aot.relay.expr import Function, Var, call, const
from aot.relay.interpreter import evaluate
from tests.op._differential import check_lowering


def product(depth: int, weight: np.ndarray) -> Function:
    x = Var("x", TensorType((2, depth), "float32"))
    return Function((x,), call("nn.dense_lanes", [x, const(weight)]))


@pytest.mark.parametrize("depth", [1, 3, 4, 7, 16, 37])
def test_near_the_product_and_the_same_everywhere(depth: int) -> None:
    rng = np.random.default_rng(depth)
    data, weight = (rng.standard_normal((n, depth)).astype(np.float32) for n in (2, 5))
    func = product(depth, weight)
    (found,) = evaluate(func, [data])
    assert np.allclose(found, data.astype(np.float64) @ weight.T.astype(np.float64), rtol=1e-5, atol=1e-5)
    check_lowering(func, [[data]], [[found]], host=depth == 37)


def test_four_sums_side_by_side() -> None:
    """1e8 + 1 - 1e8 is 0 in one sum of float32; with the 1 in another lane it is kept."""
    weight = np.array([[1e8, 1, 0, 0, -1e8, 0, 0, 0]], np.float32)
    assert evaluate(product(8, weight), [np.ones((2, 8), np.float32)])[0].tolist() == [[1], [1]]
    weight = np.array([[1e8, 0, 0, 0, 1, 0, 0, 0, -1e8, 0, 0, 0]], np.float32)
    assert evaluate(product(12, weight), [np.ones((2, 12), np.float32)])[0].tolist() == [[0], [0]]
