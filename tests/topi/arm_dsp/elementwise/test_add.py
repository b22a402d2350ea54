"""ADD of four bytes at a time against the operator's meaning; behind layers: test_epilogue.py."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aot.ir.type import TensorType
from aot.relay.expr import Var, call, const
from aot.tir.analysis import safe_distances
from tests.topi.generic.test_copy import ADD
from tests.topi.groups import check_group, lowered


def variables(size: int) -> tuple[Var, Var]:
    return Var("x", TensorType((1, size), "int8")), Var("y", TensorType((1, size), "int8"))


@pytest.mark.parametrize("size", [16, 17, 19, 64])
def test_elements_left_over(size: int) -> None:
    x, y = variables(size)
    check_group("arm_dsp.add", (x, y), call("qnn.add", [x, y], ADD), seed=size)


def test_a_constant_operand_and_one_tensor_twice() -> None:
    x, _ = variables(33)
    table = const(np.random.default_rng(0).integers(-128, 128, (1, 33)).astype(np.int8))
    check_group("arm_dsp.add", (x,), call("qnn.add", [table, x], ADD))
    check_group("arm_dsp.add", (x,), call("qnn.add", [x, x], ADD))


@pytest.mark.parametrize(("lo", "hi"), [(-20, 100), (-20, 127), (-128, 3), (7, 7)])
def test_limits_of_an_activation(lo: int, hi: int) -> None:
    x, y = variables(37)
    check_group("arm_dsp.add", (x, y), call("qnn.add", [x, y], replace(ADD, lo=lo, hi=hi)))


def test_the_result_may_lie_over_either_operand() -> None:
    pair = variables(37)
    low = lowered("arm_dsp.add", pair, call("qnn.add", pair, ADD))
    assert low is not None
    assert [d.up for d in safe_distances(low.func).values()] == [0, 0]


def test_what_is_left_to_others() -> None:
    x, y = variables(33)
    assert lowered("arm_dsp.add", (x, y), call("qnn.add", [x, y], ADD), cpu="cortex-m3") is None
    few = variables(15)
    assert lowered("arm_dsp.add", few, call("qnn.add", few, ADD)) is None
    one = Var("y", TensorType((1, 1), "int8"))
    assert lowered("arm_dsp.add", (x, one), call("qnn.add", [x, one], ADD)) is None
