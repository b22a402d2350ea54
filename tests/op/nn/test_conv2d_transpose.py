"""TRANSPOSE_CONV on int8, int16 and float32, BATCH_MATMUL on int8 and int16, pools and concatenations of legacy uint8."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from aot.testing import ModelBuilder, Quant
from tests.op._differential import ACTIVATIONS, FAST, SEEDS, SLOW, check
from tests.op._one_op import Spec, const, one_op


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


def run_transposed(dtype: str, bias: str, examples: Any) -> None:
    @given(transposed(dtype, bias))
    @examples
    def test(model: bytes) -> None:
        check(model)

    test()


@pytest.mark.parametrize(("dtype", "bias"), KINDS)
def test_transposed(dtype: str, bias: str) -> None:
    run_transposed(dtype, bias, FAST)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "bias"), KINDS)
def test_transposed_often(dtype: str, bias: str) -> None:
    run_transposed(dtype, bias, SLOW)


@st.composite
def transposed_float(draw: st.DrawFn) -> bytes:
    """As `transposed`, several images, some with a fused activation."""
    rng = np.random.default_rng(draw(SEEDS))
    n, height, width, depth, channels = (draw(st.integers(1, largest)) for largest in (2, 4, 4, 4, 3))
    kernel, strides = (draw(st.tuples(st.integers(1, 4), st.integers(1, 4))) for _ in range(2))
    padding = draw(st.sampled_from(["SAME", "VALID"]))
    grown = [max(k - s, 0) if padding == "VALID" else 0 for k, s in zip(kernel, strides, strict=True)]
    out = (n, height * strides[0] + grown[0], width * strides[1] + grown[1], channels)
    operands = [np.asarray(out, np.int32), rng.normal(size=(channels, *kernel, depth)).astype(np.float32)]
    inputs = [*(Spec(a.shape, str(a.dtype), None, a) for a in operands), Spec((n, height, width, depth), "float32")]
    if draw(st.booleans()):
        inputs.append(Spec((channels,), "float32", None, rng.normal(size=channels).astype(np.float32)))
    options: dict[str, Any] = dict(zip(("stride_h", "stride_w"), strides, strict=True))
    options["fused_activation_function"] = draw(ACTIVATIONS)
    return one_op("TRANSPOSE_CONV", inputs, [Spec(out, "float32")], version=4, padding=padding, **options)


def run_transposed_float(examples: Any) -> None:
    @given(transposed_float())
    @examples
    def test(model: bytes) -> None:
        check(model)

    test()


def test_transposed_float() -> None:
    run_transposed_float(FAST)


@pytest.mark.slow
def test_transposed_float_often() -> None:
    run_transposed_float(SLOW)


@st.composite
def products(draw: st.DrawFn, left: str, right: str) -> bytes:
    """Broadcast batches, either side transposed, the right side a constant now and then."""
    m, k, n = (draw(st.integers(1, 6)) for _ in range(3))
    batches = draw(st.sampled_from([((), ()), ((2,), (2,)), ((3, 1), (2,)), ((2,), ())]))
    adj_x, adj_y = draw(st.booleans()), draw(st.booleans())
    a = (*batches[0], *((k, m) if adj_x else (m, k)))
    b = (*batches[1], *((n, k) if adj_y else (k, n)))
    rng = np.random.default_rng(draw(SEEDS))
    zero = left == "int8"
    qa, qb = (Quant(0.02, int(rng.integers(-128, 128)) if zero else 0) for _ in range(2))
    largest = 0.0004 * k**0.5 * (73.0 if left == "int8" else 18900.0) * (73.0 if right == "int8" else 18900.0)
    scale = float(np.float32(largest / (60 if zero else 12000) * draw(st.sampled_from([0.3, 1.0, 7.0]))))
    y = Quant(scale, int(rng.integers(-128, 128)) if zero else 0)
    limits = np.iinfo(right)
    data = rng.integers(limits.min, limits.max, b, right, endpoint=True) if draw(st.booleans()) else None
    out = Spec((*np.broadcast_shapes(*batches), m, n), left, y)
    inputs = [Spec(a, left, qa), Spec(b, right, qb, data)]
    return one_op("BATCH_MATMUL", inputs, [out], version=3 if left == "int16" else 2, adj_x=adj_x, adj_y=adj_y)


SIDES = [("int8", "int8"), ("int16", "int16"), ("int16", "int8")]


def run_products(left: str, right: str, examples: Any) -> None:
    @given(products(left, right))
    @examples
    def test(model: bytes) -> None:
        check(model)

    test()


@pytest.mark.parametrize(("left", "right"), SIDES)
def test_products(left: str, right: str) -> None:
    run_products(left, right, FAST)


@pytest.mark.slow
@pytest.mark.parametrize(("left", "right"), SIDES)
def test_products_often(left: str, right: str) -> None:
    run_products(left, right, SLOW)


@pytest.mark.parametrize("dtype", ["uint8", "int16"])
@pytest.mark.parametrize("kind", ["AVERAGE_POOL_2D", "MAX_POOL_2D"])
@pytest.mark.parametrize("activation", ["NONE", "RELU6"])
def test_pools(kind: str, dtype: str, activation: str) -> None:
    q = Quant(0.04, 0 if dtype == "int16" else 117)
    window = {"filter_height": 3, "filter_width": 2, "stride_h": 2, "stride_w": 2, "padding": "SAME"}
    inputs, out = [Spec((1, 7, 6, 5), dtype, q)], Spec((1, 4, 3, 5), dtype, q)
    check(one_op(kind, inputs, [out], version=3, fused_activation_function=activation, **window), host=True)


def test_legacy_softmax_and_mean() -> None:
    x = Quant(0.1, 99)
    check(one_op("SOFTMAX", [Spec((3, 17), "uint8", x)], [Spec((3, 17), "uint8", Quant(1 / 256, 0))], beta=1.0))
    check(one_op("MEAN", [Spec((1, 4, 5, 3), "uint8", x), const([1, 2])], [Spec((1, 3), "uint8", Quant(0.07, 120))]))


CONVERSIONS = [("int16", "int8"), ("int16", "int16"), ("int16", "int32"), ("int32", "int16"), ("int8", "int16")]


@pytest.mark.parametrize(("source", "target"), CONVERSIONS)
def test_requantised(source: str, target: str) -> None:
    x = Quant(0.003, 0 if source != "int8" else 5)
    y = Quant(0.011, 0 if target != "int8" else -7)
    data = np.random.default_rng(0).integers(-30000, 30000, (1, 300)).astype(np.int64)
    data = (data >> 8 if source == "int8" else data).astype(source)
    check(one_op("QUANTIZE", [Spec((1, 300), source, x)], [Spec((1, 300), target, y)], version=3), [data])
    if target == "int16":
        check(one_op("QUANTIZE", [Spec((1, 300), "float32")], [Spec((1, 300), target, y)], version=3))
        check(one_op("DEQUANTIZE", [Spec((1, 300), target, y)], [Spec((1, 300), "float32")], version=3))
