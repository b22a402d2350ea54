"""Layers whose multipliers are infinite, no number or beyond any result, against the reference on x86-64."""

from __future__ import annotations

from platform import machine
from typing import Any

import numpy as np
import pytest

from aot.errors import AotError
from aot.numerics.ties import cast_sums
from aot.testing import ModelBuilder
from tests.op._differential import check, main_of
from tests.scale import cases

pytestmark = pytest.mark.skipif(machine() != "x86_64", reason="the reference's casts are those of x86-64")
inf, nan = float("inf"), float("nan")
Rng = np.random.Generator
LAYERS: dict[str, tuple[tuple[int, ...], tuple[int, ...], int, dict[str, Any]]] = {
    "FULLY_CONNECTED": ((2, 4), (3, 4), 0, {}),
    "CONV_2D": ((1, 2, 2, 4), (3, 1, 1, 4), 0, {"stride_h": 1, "stride_w": 1, "padding": "SAME"}),
    "DEPTHWISE_CONV_2D": (
        (1, 2, 2, 3),
        (1, 1, 1, 3),
        3,
        {"stride_h": 1, "stride_w": 1, "padding": "SAME", "depth_multiplier": 1},
    ),
    "TRANSPOSE_CONV": ((1, 2, 2, 4), (3, 1, 1, 4), 0, {"stride_h": 1, "stride_w": 1, "padding": "SAME"}),
}
"""Shapes of data and of weights for three channels, their axis, and options."""


def layer(
    name: str,
    dtype: str,
    scales: tuple[float, ...],
    *,
    weights: np.ndarray | None = None,
    bias: list[int] | None = None,
    activation: str = "NONE",
    zero_points: tuple[int, int] = (0, 0),
    result: float = 0.02,
) -> bytes:
    """A layer of three channels with these scales of its weights, which are zeros if not given."""
    shape, weight_shape, axis, options = LAYERS[name]
    b = ModelBuilder()
    x = b.tensor("x", shape, dtype, scale=0.01, zero_point=zero_points[0])
    each: Any = {"scale": scales, "axis": axis} if len(scales) > 1 else {"scale": scales[0], "zero_point": 0}
    kind = "uint8" if dtype == "uint8" else "int8"
    w = b.tensor("w", weight_shape, kind, data=np.zeros(weight_shape, kind) if weights is None else weights, **each)
    y = b.tensor("y", (*shape[:-1], 3), dtype, scale=result, zero_point=zero_points[1])
    operands = [x, w]
    if name == "TRANSPOSE_CONV":
        operands = [b.tensor("shape", (4,), "int32", data=np.array((*shape[:-1], 3), np.int32)), w, x]
    if bias is not None:
        of_bias = tuple(float(np.float32(0.01) * np.float32(s)) for s in scales)
        each = {"scale": of_bias, "axis": 0} if len(scales) > 1 else {"scale": of_bias[0], "zero_point": 0}
        bias_type = "int64" if dtype == "int16" else "int32"
        operands.append(b.tensor("b", (3,), bias_type, data=np.array(bias, bias_type), **each))
    b.op(name, operands, [y], version=4 if name == "FULLY_CONNECTED" else 5, fused_activation_function=activation, **options)
    return b.build([x], [y])


@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("name", LAYERS)
def test_weights_that_were_lost(name: str, dtype: str) -> None:
    """Zeros whose scales say nothing, as the converter writes them."""
    zero_points = (0, 0) if dtype == "int16" else (3, -5)
    check(layer(name, dtype, (inf, 0.1, nan), bias=[0, 0, 0], zero_points=zero_points), host=True)


@pytest.mark.slow
@pytest.mark.parametrize("scales", [(inf, inf, inf), (nan, nan, nan), (inf, 0.1, nan), (0.1, 0.0, -inf)])
@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("name", LAYERS)
def test_any_bias_and_zero_point(name: str, dtype: str, scales: tuple[float, ...]) -> None:
    for bias in (None, [0, 0, 0], [500, -700, 1 << 20]):
        for zp in (0,) if dtype == "int16" else (0, -5, 100):
            if bias is not None or name != "CONV_2D":  # the reference's convolution wants a bias
                check(layer(name, dtype, scales, bias=bias, zero_points=(0 if dtype == "int16" else 3, zp)))


@pytest.mark.parametrize("activation", ["RELU", "RELU6", "RELU_N1_TO_1"])
@pytest.mark.parametrize("zero_point", [0, -5])
def test_clamped(activation: str, zero_point: int) -> None:
    check(layer("FULLY_CONNECTED", "int8", (inf, nan, 0.1), activation=activation, zero_points=(0, zero_point)))


@pytest.mark.parametrize("zero_point", [0, 77])
def test_lost_weights_of_uint8(zero_point: int) -> None:
    check(layer("FULLY_CONNECTED", "uint8", (inf,), zero_points=(5, zero_point)))


@pytest.mark.parametrize(("scale", "bias"), [(nan, None), (nan, [0, 0, 0]), (inf, [0, 0, 0])])
def test_what_the_reference_refuses(scale: float, bias: list[int] | None) -> None:
    """One scale for all weights that is none: it compares the bias's scale with the product of the others."""
    with pytest.raises(AotError) as found:
        main_of(layer("FULLY_CONNECTED", "int8", (scale,), bias=bias))
    assert {p.code for p in found.value.problems} == {"E1226"}


@pytest.mark.parametrize("name", ["MUL", "CONV_2D"])
def test_other_scales_of_infinity(name: str) -> None:
    """Weights that are not zero, and constants of other operators, are a fault of the file."""
    if name == "MUL":
        b = ModelBuilder()
        x, y = (b.tensor(n, (2, 4), "int8", scale=0.01, zero_point=0) for n in "xy")
        b.op("MUL", [x, b.tensor("c", (2, 4), "int8", scale=inf, zero_point=0, data=np.zeros((2, 4), np.int8))], [y], version=2)
        model = b.build([x], [y])
    else:
        model = layer(name, "int8", (inf, 0.1, 0.1), weights=np.ones((3, 1, 1, 4), np.int8))
    with pytest.raises(AotError) as found:
        main_of(model)
    assert {p.code for p in found.value.problems} == {"E1111"}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["int8", "int16", "uint8"])
def test_products_beyond_an_int32(dtype: str) -> None:
    """Drawn multipliers from 2^-10 to 2^120, with sums on both sides of the last product that fits."""
    for seed in range(cases(300)):
        drawn_beyond(np.random.default_rng(seed), dtype)


@pytest.mark.parametrize("dtype", ["int8", "int16", "uint8"])
def test_some_products_beyond_an_int32(dtype: str) -> None:
    for seed in range(3):
        drawn_beyond(np.random.default_rng(1000 + seed), dtype, host=not seed)


def drawn_beyond(rng: Rng, dtype: str, *, host: bool = False) -> None:
    limits, kind = np.iinfo(dtype), "uint8" if dtype == "uint8" else "int8"
    per_channel = dtype != "uint8" and rng.random() < 0.7
    exponents = rng.uniform(-10, 120 if rng.random() < 0.3 else 34, 3 if per_channel else 1)
    scales = tuple(float(np.float32(2.0**e)) for e in exponents)
    if per_channel and rng.random() < 0.3:
        scales = (*scales[:2], -scales[2])
    weights = rng.integers(np.iinfo(kind).min + 1, np.iinfo(kind).max + 1, (3, 4)).astype(kind)
    zero = 0 if dtype == "int16" else int(rng.integers(limits.min, limits.max + 1))
    bias = [int(n) for n in rng.integers(-(1 << 30), 1 << 30, 3) >> rng.integers(0, 30, 3)] if per_channel else None
    activation = str(rng.choice(["NONE", "RELU"]))
    result = float(np.float32(0.01 * rng.uniform(0.5, 2)))
    parts = {"weights": weights, "bias": bias, "activation": activation, "zero_points": (zero, zero), "result": result}
    check(layer("FULLY_CONNECTED", dtype, scales, **parts), host=host)


@pytest.mark.parametrize("zero_point", [0, 5, 127, -1, -128])
@pytest.mark.parametrize("real", [1.5, 3.0, 1e3, 2.0**31, 1e30])
def test_limits(real: float, zero_point: int) -> None:
    """The last sum whose product fits an int32 with its zero point."""
    sums = cast_sums([real], [(1 << 31) - 1], zero_point=zero_point, dtype="int32")
    assert sums is not None
    last, sign = abs(sums.limit[0]), sums.sign
    assert sums.limit[0] * sign >= 0
    for acc, fits in ((last, True), (last + 1, False)):
        product = sign * int(np.floor(acc * real + 0.5))
        assert (-(1 << 31) <= product + zero_point < 1 << 31 and -(1 << 31) <= product < 1 << 31) == fits
    assert sums.bound[0] * sums.reals[0] <= 1 << 30


def test_products_that_fit() -> None:
    assert cast_sums([0.9, 1e-30, 0.0], [(1 << 31) - 1] * 3, zero_point=-128, dtype="int32") is None
