"""TRANSPOSE_CONV on int8 and int16, of any stride and window."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest

from aot.testing import ModelBuilder
from tests.op._differential import FAST, SEEDS, SLOW, check_drawn


@st.composite
def transposed(draw: st.DrawFn, dtype: str, bias: str) -> bytes:
    """Any stride up to 3, windows larger and smaller than it."""
    rng = np.random.default_rng(draw(SEEDS))
    kernel, strides = (draw(st.tuples(st.integers(1, 4), st.integers(1, 4))) for _ in range(2))
    height, width, depth, channels = (draw(st.integers(1, 4)) for _ in range(4))
    padding = draw(st.sampled_from(["SAME", "VALID"]))
    grown = [max(k - s, 0) if padding == "VALID" else 0 for k, s in zip(kernel, strides, strict=True)]
    out = (1, height * strides[0] + grown[0], width * strides[1] + grown[1], channels)
    b = ModelBuilder()
    scale = rng.uniform(0.005, 0.03, channels).astype(np.float32)
    zx, zy = (0, 0) if dtype == "int16" else (int(rng.integers(-128, 128)), int(rng.integers(-128, 128)))
    source = b.tensor("x", (1, height, width, depth), dtype, scale=0.02, zero_point=zx)
    shape = b.tensor("size", (4,), "int32", data=np.array(out, np.int32))
    data = rng.integers(-127, 127, (channels, *kernel, depth), np.int8, endpoint=True)
    weights = b.tensor("w", data.shape, "int8", scale=scale, zero_point=[0] * channels, axis=0, data=data)
    inputs = [shape, weights, source]
    if bias:
        values = rng.integers(-3000, 3000, channels).astype(bias)
        inputs.append(b.tensor("b", (channels,), bias, scale=scale * 0.02, zero_point=[0] * channels, data=values))
    y = float(np.float32(draw(st.sampled_from([0.05, 0.5, 2.0])) * (1 if dtype == "int8" else 1 / 64)))
    result = b.tensor("y", out, dtype, scale=y, zero_point=zy)
    options: dict[str, Any] = {"quantized_bias_type": "INT32"} if dtype == "int16" and bias == "int32" else {}
    b.op(
        "TRANSPOSE_CONV",
        inputs,
        [result],
        version=5 if options else 3,
        padding=padding,
        stride_h=strides[0],
        stride_w=strides[1],
        **options,
    )
    return b.build([source], [result])


KINDS = [("int8", "int32"), ("int8", ""), ("int16", "int64"), ("int16", "int32"), ("int16", "")]


@pytest.mark.parametrize(("dtype", "bias"), KINDS)
def test_random(dtype: str, bias: str) -> None:
    check_drawn(transposed(dtype, bias), FAST)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "bias"), KINDS)
def test_random_often(dtype: str, bias: str) -> None:
    check_drawn(transposed(dtype, bias), SLOW)
