"""Pools of float32 against the operators' meaning, and when they are in the running."""

from __future__ import annotations

import numpy as np
import pytest

from aot.executor.candidates import candidates
from aot.executor.config import SelectionConfig
from aot.ir.type import TensorType
from aot.op.common.layer import PoolAttrs
from aot.op.math.unary import UnaryAttrs
from aot.op.qnn.quantize import QuantizeAttrs
from aot.relay.expr import Call, Function, Var, call
from aot.relay.interpreter import evaluate
from aot.target.target import find_target
from tests.topi.groups import check_group, lowered, run_lowered

KERNEL = "generic.pool_float"


def pool(kind: str, x: Var, window: tuple[int, int], padding: tuple[int, int, int, int] = (0, 0, 0, 0)) -> Call:
    return call(f"nn.{kind}_pool2d", [x], PoolAttrs(window, (2, 1), padding, 0, 0))


def var(channels: int) -> Var:
    return Var("x", TensorType((2, 6, 7, channels), "float32"))


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("channels", [1, 5, 8, 24])
@pytest.mark.parametrize(("window", "padding"), [((2, 2), (0, 0, 0, 0)), ((3, 3), (1, 1, 1, 1)), ((6, 7), (0, 0, 0, 0))])
def test_pool_equals_meaning(
    kind: str, channels: int, window: tuple[int, int], padding: tuple[int, int, int, int]
) -> None:  # fmt: skip
    x = var(channels)
    body = call("relu", [pool(kind, x, window, padding)], UnaryAttrs(lo=0.0, hi=0.5))
    low = check_group(KERNEL, (x,), body)
    assert low.func.attrs.kernel == f"generic.{kind}_pool_float(channels={min(channels, 8)})"


def test_numbers_that_compare_with_nothing() -> None:
    """NaN, zeros of both signs and infinities: the bits of the reference's order."""
    x = var(4)
    rng = np.random.default_rng(3)
    data = rng.choice(np.array([0.0, -0.0, np.nan, -np.inf, -3.4028235e38, np.inf], np.float32), x.type.shape)
    body = pool("max", x, (3, 3), (1, 1, 1, 1))
    low = lowered(KERNEL, (x,), body)
    assert low is not None
    (expected,) = evaluate(Function((x,), body), [data])
    np.testing.assert_array_equal(run_lowered(low, [data], body.type).view(np.int32), expected.view(np.int32))


def test_what_is_left_to_others() -> None:
    """Other followers than an activation, and other types."""
    x, codes = var(4), Var("x", TensorType((1, 6, 7, 3), "int8"))
    quantized = call("qnn.quantize", [pool("max", x, (2, 2))], QuantizeAttrs(0.1, 3, -128, 127))
    assert lowered(KERNEL, (x,), quantized) is None
    assert lowered(KERNEL, (codes,), pool("max", codes, (2, 2))) is None


def test_not_for_size() -> None:
    x = var(8)
    func = Function((x,), pool("max", x, (2, 2)), {"Primitive": 1})

    def kernels(opt: str) -> list[str]:
        return [c.kernel for c in candidates(func, find_target("cortex-m4"), "kernel", SelectionConfig(opt))]

    assert kernels("size") == ["generic.max_pool2d"]
    assert kernels("balanced") == ["generic.max_pool_float(channels=8)"]
