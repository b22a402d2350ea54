"""CONV_2D, DEPTHWISE_CONV_2D and FULLY_CONNECTED with random shapes, strides, dilations, activations and quantisations."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from aot.testing import Quant, conv2d_model, dense_model, depthwise_model
from tests.op._differential import ACTIVATIONS, FAST, SEEDS, SLOW, check, quants


@st.composite
def windows(draw: st.DrawFn) -> dict[str, Any]:
    """What CONV_2D and DEPTHWISE_CONV_2D share; VALID windows fit."""
    padding = draw(st.sampled_from(["SAME", "VALID"]))
    kernel = [draw(st.integers(1, 3)), draw(st.integers(1, 4))]
    dilation = draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (2, 3)]))
    size = [draw(st.integers(1, 6)) for _ in range(2)]
    if padding == "VALID":
        size = [max(n, (k - 1) * d + 1) for n, k, d in zip(size, kernel, dilation, strict=True)]
    stride = draw(st.integers(1, 2))
    return {
        "input_shape": (draw(st.integers(1, 2)), *size, draw(st.integers(1, 5))),
        "kernel": tuple(kernel),
        "dilation": dilation,
        "strides": (stride, stride) if max(dilation) == 1 else (1, 1),
        "padding": padding,
        "activation": draw(ACTIVATIONS),
        "x": draw(quants()),
        "per_channel": draw(st.booleans()),
        "seed": draw(SEEDS),
    }


def conv2d(case: dict[str, Any], filters: int, **how: Any) -> None:
    check(conv2d_model(filters=filters, **case), **how)


def depthwise(case: dict[str, Any], multiplier: int, **how: Any) -> None:
    check(depthwise_model(multiplier=multiplier, **case), **how)


@given(windows(), st.integers(1, 6))
@FAST
def test_conv2d(case: dict[str, Any], filters: int) -> None:
    conv2d(case, filters)


@given(windows(), st.integers(1, 4))
@FAST
def test_depthwise(case: dict[str, Any], multiplier: int) -> None:
    depthwise(case, multiplier)


@pytest.mark.slow
@given(windows(), st.integers(1, 9))
@SLOW
def test_conv2d_often(case: dict[str, Any], filters: int) -> None:
    conv2d(case, filters)


@pytest.mark.slow
@given(windows(), st.integers(1, 9))
@SLOW
def test_depthwise_often(case: dict[str, Any], multiplier: int) -> None:
    depthwise(case, multiplier)


@given(st.integers(1, 3), st.integers(1, 40), st.integers(1, 9), ACTIVATIONS, quants(), st.booleans(), SEEDS)
@FAST
def test_dense(rows: int, depth: int, units: int, activation: Any, x: Quant, bias: bool, seed: int) -> None:
    check(dense_model(input_shape=(rows, depth), units=units, activation=activation, x=x, bias=bias, seed=seed), seed=seed)


@pytest.mark.parametrize("scale", [0.5, 0.25, 0.125])
def test_dense_ties(scale: float) -> None:
    """Multipliers that are powers of two, where rounding once or twice makes a difference."""
    x, y = Quant(0.5, 0), Quant(scale * 16, 0)
    check(dense_model(input_shape=(4, 9), units=8, weight_scale=[scale], x=x, y=y))


@pytest.mark.parametrize("y_scale", [1e6, 1e-4])
def test_extreme_output_scales(y_scale: float) -> None:
    """Results that vanish, and results that saturate."""
    check(conv2d_model(y=Quant(y_scale, 3)))
    check(dense_model(y=Quant(y_scale, 3)))


def test_on_host() -> None:
    check(conv2d_model(activation="RELU6"), host=True)
    check(depthwise_model(multiplier=2), host=True)
    check(dense_model(), host=True)
