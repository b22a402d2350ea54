"""Vectors of float32: only with the permission, exact but for subnormal numbers; drawn layers on the core: test_drawn.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aot.executor.candidates import candidates, group_of
from aot.executor.config import SelectionConfig
from aot.ir.op import Array
from aot.ir.type import TensorType
from aot.op.math.arithmetic import BinaryAttrs
from aot.op.math.unary import UnaryAttrs
from aot.op.nn.conv import Conv2DFloatAttrs
from aot.op.nn.dense import DenseFloatAttrs
from aot.relay.expr import Constant, Function, Var, call
from aot.relay.interpreter import evaluate
from aot.target.target import find_target
from tests.topi.drawn import BOARDS, Case
from tests.topi.drawn_float import KERNELS, target_of
from tests.topi.groups import lowered
from tests.topi.intrin.test_intrin import needs_board
from tests.topi.runs import interpreted, on_board

M55 = find_target("cortex-m55")
BOUNDS = [(None, None), (-3.4028234663852886e38, 3.4028234663852886e38), (0.0, 3.4028234663852886e38), (0.0, 6.0), (-1.0, 1.0)]


def dense(weight: Array, lo: float | None = None, hi: float | None = None) -> Function:
    """One row by a matrix [O, I]."""
    x = Var("x", TensorType((1, weight.shape[1]), "float32"))
    constant = Constant(weight.astype(np.float32), TensorType(weight.shape, "float32"))
    return Function((x,), call("nn.dense_float", [x, constant], DenseFloatAttrs(lo, hi)), {"Primitive": 1})


def case(func: Function, data: Array, expected: Array | None = None) -> Case:
    """The vector kernel of a fully connected layer; what is expected is what the operator means unless it is given."""
    _, impl = KERNELS["dense_float arm_mve.dense_float"]
    made = impl.lower(group_of(func), target_of(impl), "kernel")
    inputs = [data.astype(np.float32)]
    return Case("dense", made, inputs, evaluate(func, inputs) if expected is None else [expected])


def kernels(func: Function, target: Any, **policy: Any) -> str:
    return " ".join(c.kernel for c in candidates(func, target, "kernel", SelectionConfig(**policy)))


@pytest.mark.parametrize("opt", ["speed", "balanced", "size"])
def test_vectors_only_with_the_permission(opt: str) -> None:
    """Without it the M55 takes the kernels of every core with an FPU."""
    x = Var("x", TensorType((1, 8, 8, 16), "float32"))
    weight = Constant(np.ones((8, 3, 3, 16), np.float32), TensorType((8, 3, 3, 16), "float32"))
    conv = call("nn.conv2d_float", [x, weight], Conv2DFloatAttrs((1, 1), (1, 1, 1, 1)))
    for func in (Function((x,), conv, {"Primitive": 1}), dense(np.ones((10, 16)))):
        plain = kernels(func, M55, opt=opt)
        assert "arm_mve" not in plain
        assert plain == kernels(func, find_target("cortex-m4"), opt=opt)
        assert "arm_mve" in kernels(func, M55.with_fast_float(), opt=opt)


@pytest.mark.parametrize("other", [(1, 4, 4, 32), (32,), (1, 4, 4, 1), (1, 1, 1, 1)])
def test_sums_only_with_the_permission(other: tuple[int, ...]) -> None:
    x, y = Var("x", TensorType((1, 4, 4, 32), "float32")), Var("y", TensorType(other, "float32"))
    body = call("add", [x, y], BinaryAttrs(-1.0, 1.0))
    assert lowered("arm_mve.add_float", (x, y), body, cpu=M55) is None
    low = lowered("arm_mve.add_float", (x, y), body, cpu=M55.with_fast_float())
    assert low is not None
    data = [np.linspace(-2, 2, v.type.size, dtype=np.float32).reshape(v.type.shape) for v in (x, y)]
    interpreted([Case("sum", low, data, evaluate(Function((x, y), body), data))])


def test_what_vectors_do_not_take() -> None:
    """Few elements, an operand repeated in the middle, followers other than RELU, integers."""
    target = M55.with_fast_float()

    def taken(shape: tuple[int, ...], other: tuple[int, ...], *, dtype: str = "float32", sigmoid: bool = False) -> bool:
        x, y = Var("x", TensorType(shape, dtype)), Var("y", TensorType(other, dtype))
        body = call("add", [x, y], BinaryAttrs())
        body = call("sigmoid", [body], UnaryAttrs()) if sigmoid else body
        return lowered("arm_mve.add_float", (x, y), body, cpu=target) is not None

    assert taken((4, 8), (4, 8))
    assert not taken((1, 7), (1, 7))
    assert not taken((4, 4), (4,))
    assert not taken((2, 4, 16), (2, 1, 16))
    assert not taken((4, 8), (4, 8), dtype="int32")
    assert not taken((4, 8), (4, 8), sigmoid=True)


@pytest.mark.qemu
@needs_board
def test_subnormal_numbers_count_as_zero(tmp_path: Path) -> None:
    """A product, a sum and a number of the data below 2^-126; the least normal number stays."""
    weight = np.array([[2.0**-100, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 1, -1]], np.float32)
    data = np.array([[2.0**-40, 1.5 * 2.0**-126, 2.0**-126]], np.float32)
    vectors = case(dense(weight), data, np.array([[0, 2.0**-40, 1.5 * 2.0**-126, 2.0**-126, 0]], np.float32))
    on_board(BOARDS["cortex-m55"], [[vectors]], tmp_path)


@pytest.mark.qemu
@needs_board
def test_clamps_of_what_is_not_finite(tmp_path: Path) -> None:
    """Sums that overflow in some lanes, of one to eight channels; NaN, which no comparison changes, is 0x7fc00000."""
    cases = []
    for lo, hi in BOUNDS:
        for channels in range(1, 9):
            weight = np.resize(np.array([[3e38, 3e38], [-3e38, -3e38], [1, 1], [-1, 0.5]], np.float32), (channels, 2))
            cases.append(case(dense(weight, lo, hi), np.array([[2.0, 2.0]])))
        lost = np.full((1, 3), np.array(0x7FC00000, np.uint32).view(np.float32))
        cases.append(case(dense(np.ones((3, 2)), lo, hi), np.array([[np.inf, -np.inf]]), lost))
    on_board(BOARDS["cortex-m55"], [cases], tmp_path)
