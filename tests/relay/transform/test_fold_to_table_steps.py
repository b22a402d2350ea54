"""steps: the code of every float, tried where it changes and between, and every float of some ranges."""

from __future__ import annotations

from collections.abc import Callable

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from aot.ir.type import TensorType
from aot.op import load_all
from aot.op.qnn.quantize import QuantizeAttrs
from aot.relay.analysis import results
from aot.relay.construct import constructor
from aot.relay.expr import Expr, Var, call, const
from aot.relay.transform.fold_to_table import Steps, find_steps
from tests.op._differential import FAST, SLOW

load_all()
X = Var("x", TensorType((1, 1024), "float32"))


def op(name: str, *args: Expr) -> Expr:
    return constructor(name)(*args)


def c(value: float) -> Expr:
    return const(np.float32(value))


def mish(x: Expr) -> Expr:
    soft = op("log", op("add", op("exp", x), c(1)))
    return op("multiply", x, op("tanh", op("select", op("greater", x, c(20)), x, soft)))


FUNCTIONS: dict[str, Callable[[Expr], Expr]] = {
    "mish": mish,
    "silu": lambda x: op("multiply", x, op("sigmoid", x)),
    "tanh": lambda x: op("tanh", x),
    "elu": lambda x: op("elu", x),
    "falling": lambda x: op("divide", c(1), op("add", op("exp", x), c(1))),
    "bell": lambda x: op("exp", op("subtract", c(0), op("multiply", x, x))),
    "folded": lambda x: op("select", op("less", x, c(-1)), op("exp", x), op("minimum", op("tanh", x), c(0.7))),
}


def steps_of(name: str, scale: float, zero_point: int) -> tuple[Expr, Steps | None]:
    expr = call("qnn.quantize", [FUNCTIONS[name](X)], QuantizeAttrs(scale, zero_point, -128, 127))
    return expr, find_steps(expr, X)


def check(expr: Expr, found: Steps, data: np.ndarray) -> None:
    codes = found.codes[np.searchsorted(found.starts, data, side="right")]
    np.testing.assert_array_equal(codes, results(expr, X, data))


def try_function(name: str, scale: float, zero_point: int) -> None:
    expr, found = steps_of(name, scale, zero_point)
    if found is None:
        return
    rng = np.random.default_rng(zero_point + 128)
    wide = (rng.normal(size=2000) * 10.0 ** rng.integers(-8, 8, 2000)).astype(np.float32)
    near = (found.starts.view(np.int32)[:, None] + np.arange(-40, 41)).astype(np.int32).view(np.float32).reshape(-1)
    check(expr, found, np.concatenate([wide, near[np.isfinite(near)], rng.uniform(-12, 12, 4000).astype(np.float32)]))


@given(st.sampled_from(list(FUNCTIONS)), st.floats(2.0**-13, 1.5, width=32), st.integers(-128, 127))
@FAST
def test_drawn(name: str, scale: float, zero_point: int) -> None:
    try_function(name, scale, zero_point)


@pytest.mark.slow
@given(st.sampled_from(list(FUNCTIONS)), st.floats(2.0**-13, 1.5, width=32), st.integers(-128, 127))
@SLOW
def test_drawn_often(name: str, scale: float, zero_point: int) -> None:
    try_function(name, scale, zero_point)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_usual_scales_have_steps(name: str) -> None:
    expr, found = steps_of(name, 0.02, -100)
    assert found is not None
    check(expr, found, np.float32([-np.inf, -3e38, -9, -1e-45, -0.0, 0, 1e-45, 20, 3e38, np.inf]))
    assert found.nan == results(expr, X, np.float32([np.nan]))[0]


@pytest.mark.slow
@pytest.mark.parametrize("first", [-9.1, -1.2, 0.3, 16.6])
def test_every_float_of_a_range(first: float) -> None:
    """Two million floats in a row: no code is missed between two that were tried."""
    for name in ("mish", "silu"):
        expr, found = steps_of(name, 0.004, -20)
        assert found is not None
        data = (np.float32(first).view(np.int32) + np.arange(-(1 << 20), 1 << 20)).astype(np.int32).view(np.float32)
        check(expr, found, data)


def test_unknown_operators_have_none() -> None:
    expr = call("qnn.quantize", [op("gelu", X)], QuantizeAttrs(0.1, 0, -128, 127))
    assert find_steps(expr, X) is None


def test_zeros_that_differ_have_none() -> None:
    """1 / -0 is no larger than 1 / 0, but no comparison tells -0 from 0."""
    expr = call("qnn.quantize", [op("divide", c(1), op("tanh", X))], QuantizeAttrs(0.1, 0, -128, 127))
    assert find_steps(expr, X) is None
