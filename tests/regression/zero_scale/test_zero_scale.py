"""Initial states of recurrent networks in 16x8: a FILL of zeros whose scale is 0, since the converter saw nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from aot.frontend.tflite import check_model
from aot.testing import ModelBuilder
from tests.op._differential import check


def state(op: str, *, filled: int = 0, scale: float = 0.0) -> bytes:
    """x by `op` with a state that is filled with the same number."""
    b = ModelBuilder()
    rng = np.random.default_rng(5)
    x = b.tensor("x", (2, 4), "int16", scale=0.01, zero_point=0)
    shape = b.tensor("shape", (2,), "int32", data=np.array([2, 4], np.int32))
    zero = b.tensor("zero", (), "int16", data=np.array(filled, np.int16), scale=scale, zero_point=0)
    h = b.tensor("h", (2, 4), "int16", scale=scale, zero_point=0)
    b.op("FILL", [shape, zero], [h])
    y = b.tensor("y", (2, 4), "int16", scale=0.02, zero_point=0)
    if op == "FULLY_CONNECTED":
        data = rng.integers(-127, 128, (4, 4)).astype(np.int8)
        w = b.tensor("w", (4, 4), "int8", data=data, scale=0.1, zero_point=0)
        z = b.tensor("z", (2, 4), "int16", scale=0.015, zero_point=0)
        b.op("FULLY_CONNECTED", [h, w, -1], [z], fused_activation_function="NONE", keep_num_dims=False)
        b.op("ADD", [x, z], [y], fused_activation_function="NONE")
    else:
        b.op(op, [x, h], [y], fused_activation_function="NONE")
    return b.build([x], [y])


@pytest.mark.parametrize("op", ["MUL", "FULLY_CONNECTED"])
def test_a_state_of_zeros(op: str) -> None:
    check(state(op))


def codes(model: bytes) -> set[str]:
    return {p.code for p in check_model(model)}


@pytest.mark.parametrize("op", ["ADD", "SUB"])
def test_sums_have_no_meaning(op: str) -> None:
    """The reference stops its whole process at a multiplier of 0."""
    assert codes(state(op)) == {"E1226"}


def test_a_normalisation_is_told_what_to_do() -> None:
    """0 - mean * scale of a batch normalisation: with 16 bits the zeros have a scale of 0."""
    (problem,) = check_model(state("SUB"))
    assert str(problem).endswith("keep the normalisation in float or int8 (aot explain E1226)")


def test_other_scales_are_none() -> None:
    """A zero scale says nothing of values that are not zero, nor does one that is no number of any."""
    assert codes(state("MUL", filled=3)) == {"E1111"}
    for scale in (-1.0, float("inf"), float("nan")):
        assert codes(state("MUL", scale=scale)) == {"E1111"}


@pytest.mark.parametrize(("x", "y"), [(0.0, 0.1), (0.1, 0.0)])
def test_what_comes_in_and_goes_out_has_a_scale(x: float, y: float) -> None:
    b = ModelBuilder()
    data, result = (b.tensor(n, (1, 4), "int8", scale=s, zero_point=0) for n, s in (("x", x), ("y", y)))
    b.op("RELU", [data], [result])
    assert codes(b.build([data], [result])) == {"E1111"}


def test_a_computed_value_of_scale_zero() -> None:
    """Not known to be zero: refused, whatever the operator would make of it."""
    b = ModelBuilder()
    x, h, y = (b.tensor(n, (1, 4), "int8", scale=s, zero_point=0) for n, s in (("x", 0.1), ("h", 0.0), ("y", 0.1)))
    b.op("RESHAPE", [x], [h], new_shape=[1, 4])
    b.op("ADD", [h, x], [y], fused_activation_function="NONE")
    assert "E1111" in codes(b.build([x], [y]))


@pytest.mark.parametrize("op", ["MAXIMUM", "MINIMUM", "CONCATENATION"])
def test_zeros_are_moved_and_compared_whatever_their_scale(op: str) -> None:
    """As the reference does with codes of int16, without a look at the scales."""
    b = ModelBuilder()
    x = b.tensor("x", (2, 4), "int16", scale=0.01, zero_point=0)
    zeros = b.tensor("zeros", (2, 4), "int16", data=np.zeros((2, 4), np.int16), scale=0.0, zero_point=0)
    if op == "CONCATENATION":
        y = b.tensor("y", (2, 8), "int16", scale=0.01, zero_point=0)
        b.op(op, [x, zeros], [y], version=3, axis=1, fused_activation_function="NONE")
    else:
        y = b.tensor("y", (2, 4), "int16", scale=0.01, zero_point=0)
        b.op(op, [x, zeros], [y], version=4)
    check(b.build([x], [y]))
