"""Kernels of Armv6-M against the operators' meaning, a few layers each; on the board and many: tests/topi/test_drawn.py."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from aot.ir.type import TensorType
from aot.op.qnn.arithmetic import MultiplyAttrs
from aot.relay.expr import Var, call, const
from tests.topi.drawn import KERNELS, random_cases
from tests.topi.generic.test_copy import ADD
from tests.topi.groups import check_group, lowered
from tests.topi.runs import interpreted


@pytest.mark.parametrize("name", sorted(name for name in KERNELS if " arm_v6m." in name))
def test_some_in_the_interpreter(name: str) -> None:
    interpreted(islice(random_cases(name, 4), 3))


MUL = MultiplyAttrs((-128, 3), 1340000000, -7, 5, -128, 127)
CPU = "cortex-m0plus"


def variables(own: tuple[int, ...], other: tuple[int, ...]) -> tuple[Var, Var]:
    return Var("x", TensorType(own, "int8")), Var("y", TensorType(other, "int8"))


@pytest.mark.parametrize("size", [8, 9, 10, 12, 64])
@pytest.mark.parametrize(("lo", "hi"), [(-128, 127), (-20, 100), (-128, 3), (0, 127), (7, 7), (5, 60)])
def test_add_of_any_size_and_limits(size: int, lo: int, hi: int) -> None:
    x, y = variables((1, size), (1, size))
    check_group("arm_v6m.add", (x, y), call("qnn.add", [x, y], replace(ADD, lo=lo, hi=hi)), cpu=CPU, seed=size)


def test_add_of_constants_and_repeated_tensors() -> None:
    x, y = variables((1, 4, 3, 9), (9,))
    table = const(np.random.default_rng(0).integers(-128, 128, (1, 1, 1, 9)).astype(np.int8))
    for operands in ([x, y], [y, x], [x, x]):
        check_group("arm_v6m.add", (x, y) if y in operands else (x,), call("qnn.add", operands, ADD), cpu=CPU)
    check_group("arm_v6m.add", (x,), call("qnn.add", [table, x], ADD), cpu=CPU)


@pytest.mark.parametrize("other", [(1, 4, 3, 8), (1, 1, 1, 8), (8,), (1, 4, 3, 1), (1, 4, 1, 1)])
@pytest.mark.parametrize(("lo", "hi"), [(-128, 127), (5, 127), (-20, 100)])
def test_multiply_of_whole_tensors_and_gates(other: tuple[int, ...], lo: int, hi: int) -> None:
    x, y = variables((1, 4, 3, 8), other)
    for zero_points in ((-128, 3), (0, 0)):
        attrs = replace(MUL, input_zp=zero_points, lo=lo, hi=hi)
        check_group("arm_v6m.multiply", (x, y), call("qnn.multiply", [x, y], attrs), cpu=CPU)
        check_group("arm_v6m.multiply", (x, y), call("qnn.multiply", [y, x], attrs), cpu=CPU, seed=4)


def test_what_is_left_to_others() -> None:
    x, y = variables((1, 4, 4, 8), (1, 4, 1, 8))
    assert lowered("arm_v6m.multiply", (x, y), call("qnn.multiply", [x, y], MUL), cpu=CPU) is None
    assert lowered("arm_v6m.add", (x, y), call("qnn.add", [x, y], ADD), cpu=CPU) is None
    few = variables((1, 7), (1, 7))
    assert lowered("arm_v6m.add", few, call("qnn.add", few, ADD), cpu=CPU) is None
    nothing = replace(MUL, multiplier=0, shift=0)
    whole = variables((1, 8), (1, 8))
    assert lowered("arm_v6m.multiply", whole, call("qnn.multiply", whole, nothing), cpu=CPU) is None
