"""Scales whose product or quotient in float32 gives another multiplier than in double precision, for every rescaling operator.

Each case is one operator with drawn scales and inputs that hold every code, or accumulators that fall on a limit between two
results.  It is sensitive if the graph's own result changes when the table of precisions is made to say something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from aot.numerics import fixed_point as table
from aot.numerics.fixed_point import (
    Precision,
    multiply_by_quantized_multiplier,
    precision,
    quantize_multiplier,
    quotient,
    real_multiplier,
    reduced_multiplier,
)
from aot.relay.interpreter import evaluate
from aot.testing import Quant, reference_sets, tflm_reference
from tests.op._differential import Array, main_of, same
from tests.op._one_op import Spec, const, one_op
from tests.scale import cases

Rng = np.random.Generator
Case = tuple[bytes, list[Array]]
Form = Callable[[Rng, str], Case]


def scale(rng: Rng, low: float = 1e-3, high: float = 1.0) -> float:
    return float(np.float32(np.exp(rng.uniform(np.log(low), np.log(high)))))


def quant(rng: Rng, dtype: str, low: float = 1e-3, high: float = 1.0) -> Quant:
    limits = np.iinfo(dtype)
    return Quant(scale(rng, low, high), 0 if dtype == "int16" else int(rng.integers(limits.min, limits.max + 1)))


def tied(rng: Rng, real: float) -> float:
    """A scale by which real * n is k + 1/2 but for the last bits, for some integers n and k: what is seen of those bits."""
    n, k = int(rng.integers(1, 120)), int(rng.integers(0, 60))
    return float(np.float32(real * 2 * n / (2 * k + 1)))


def every_code(dtype: str) -> Array:
    limits = np.iinfo(dtype)
    return np.arange(limits.min, limits.max + 1).astype(dtype).reshape(1, -1)


def some_codes(rng: Rng, dtype: str, shape: tuple[int, ...]) -> Array:
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


# --- operators element by element


def unary(name: str, out: str = "", **options: Any) -> Form:
    def form(rng: Rng, dtype: str) -> Case:
        x = every_code(dtype)
        data, result = quant(rng, dtype), quant(rng, out or dtype)
        if name == "HARD_SWISH":
            data, result = narrow(rng, data.zero_point, result.zero_point)
        elif name == "RSQRT":
            data = Quant(data.scale, -128)  # the reference takes no negative numbers
        else:
            result = Quant(tied(rng, data.scale * float(np.float32(options.get("alpha", 1.0)))), result.zero_point)
        return one_op(name, [Spec(x.shape, dtype, data)], [Spec(x.shape, out or dtype, result)], **options), [x]

    return form


def binary(name: str, out: str = "", **options: Any) -> Form:
    def form(rng: Rng, dtype: str) -> Case:
        codes = np.repeat(every_code(dtype), 256, 0) if dtype != "int16" else some_codes(rng, dtype, (256, 256))
        x, y = codes, (codes.T if dtype != "int16" else some_codes(rng, dtype, (256, 256)))
        a, b, c = quant(rng, dtype), quant(rng, dtype), quant(rng, dtype, 3e-3)
        if name == "MUL":
            c = Quant(tied(rng, a.scale * b.scale), c.zero_point)
        if name == "DIV":  # a divisor of 0 is an error
            b = Quant(b.scale, b.zero_point)
            y = np.where(y == b.zero_point, b.zero_point + (1 if b.zero_point < np.iinfo(dtype).max else -1), y).astype(dtype)
            c = Quant(a.scale / b.scale * scale(rng, 0.01, 0.5), c.zero_point)
        if name in ("ADD", "SUB"):
            c = Quant(max(a.scale, b.scale) * scale(rng, 0.1, 3), c.zero_point)
        if name == "SQUARED_DIFFERENCE":
            spread = (0.5, 200) if dtype == "int8" else (16000, 90000)
            c = Quant(max(a.scale, b.scale) ** 2 * scale(rng, *spread), c.zero_point)
        result = Spec(x.shape, out) if out else Spec(x.shape, dtype, c)
        return one_op(name, [Spec(x.shape, dtype, a), Spec(x.shape, dtype, b)], [result], **options), [x, y]

    return form


def prelu(rng: Rng, dtype: str) -> Case:
    x, slopes = every_code(dtype).T, 16
    x = np.repeat(x, slopes, 1)
    alpha, kind = some_codes(rng, "int8" if dtype == "int16" else dtype, (1, slopes)), "int8" if dtype == "int16" else dtype
    data, slope = quant(rng, dtype), quant(rng, kind)
    result = Quant(tied(rng, data.scale * slope.scale), 0 if dtype == "int16" else 7)
    operands = [Spec(x.shape, dtype, data), Spec(alpha.shape, kind, slope, alpha)]
    return one_op("PRELU", operands, [Spec(x.shape, dtype, result)]), [x]


def narrow(rng: Rng, data_zp: int, result_zp: int) -> tuple[Quant, Quant]:
    """Parameters of HARD_SWISH, whose multipliers keep 15 bits, that differ in those."""
    while True:
        x = scale(rng)
        y = float(np.float32(x * rng.uniform(0.5, 3)))
        if len({(quantize_multiplier(quotient((x, 1 / 128), (y,), how))[0] + (1 << 15)) >> 16 for how in Precision}) > 1:
            return Quant(x, data_zp), Quant(y, result_zp)


def softmax(rng: Rng, dtype: str) -> Case:
    x = some_codes(rng, dtype, (64, 40)) // 4
    result = {"int8": Quant(1 / 256, -128), "uint8": Quant(1 / 256, 0), "int16": Quant(2.0**-15, 0)}[dtype]
    options = {"beta": scale(rng, 0.3, 2.0)}
    low, high = (1e-5, 1e-3) if dtype == "int16" else (0.01, 0.3)
    return one_op("SOFTMAX", [Spec(x.shape, dtype, quant(rng, dtype, low, high))], [Spec(x.shape, dtype, result)], **options), [x]


def reduction(name: str, **options: Any) -> Form:
    def form(rng: Rng, dtype: str) -> Case:
        x = some_codes(rng, dtype, (400, int(rng.integers(2, 5))))
        a, c = quant(rng, dtype), quant(rng, dtype)
        if name == "REDUCE_PROD":
            a, c = Quant(scale(rng, 0.05, 0.2), 0), Quant(scale(rng, 0.5, 2.0), 0)
        elif rng.random() < 0.8:
            c = Quant(tied(rng, a.scale), c.zero_point)
        return one_op(name, [Spec(x.shape, dtype, a), const([1])], [Spec((400,), dtype, c)], keep_dims=False, **options), [x]

    return form


def sums(rng: Rng, dtype: str) -> Case:
    x, y = np.repeat(every_code(dtype), 256, 0), np.repeat(every_code(dtype), 256, 0).T
    data = quant(rng, dtype)
    spec = Spec(x.shape, dtype, data)
    return one_op("ADD_N", [spec, spec], [Spec(x.shape, dtype, Quant(data.scale * scale(rng, 0.3, 3), 5))]), [
        x,
        np.ascontiguousarray(y),
    ]


# --- layers: accumulators at which the multipliers disagree, as biases


def critical(rng: Rng, reals: list[float], dtype: str, *, wide: bool, count: int) -> Array:
    """Accumulators next to the limits between results: where rounding with the multipliers differs, then any others."""
    limits = np.iinfo(dtype)
    ks = np.arange(limits.min, limits.max) if dtype != "int16" else rng.integers(limits.min, limits.max, 20000)
    near = np.concatenate([np.floor((ks + 0.5) / reals[0]) + d for d in (-1, 0, 1, 2)]).astype(np.int64)
    near = near[np.abs(near) < (1 << 30)]
    rounded = []
    for real in reals:
        multiplier, shift = quantize_multiplier(real)
        if wide:
            rounded.append(multiply_by_quantized_multiplier(near, reduced_multiplier(multiplier), shift, rounding="single"))
        else:
            rounded.append(multiply_by_quantized_multiplier(near, multiplier, shift))
        exact = np.abs(near.astype(np.float64) * real)
        rounded.append(np.where(exact - np.floor(exact) >= 0.5, np.ceil(exact), np.floor(exact)) * np.sign(near))
    differ = np.any([r != rounded[0] for r in rounded], axis=0)
    chosen = np.concatenate([rng.permutation(near[differ]), rng.permutation(near[~differ])])[:count]
    return np.asarray(np.resize(chosen, count))


def differs_in_16_bits(x: float, w: float, y: float) -> bool:
    """Whether the multipliers of convolutions with 64-bit sums differ, which keep 16 bits."""
    return len({reduced_multiplier(quantize_multiplier(quotient((x, w), (y,), how))[0]) for how in Precision}) > 1


def layer(name: str, *, per_channel: bool = False, depth: int = 1, channels: int = 64) -> Form:
    """A layer that multiplies by nothing: data at their zero point, and accumulators that are the biases."""

    def form(rng: Rng, dtype: str) -> Case:
        (
            x,
            y,
        ) = quant(rng, dtype), quant(rng, dtype, 0.01, 0.3)
        wide = dtype == "int16"
        weight_type, bias_type = ("uint8" if dtype == "uint8" else "int8"), ("int64" if wide else "int32")
        low, high = (2e-5, 2e-3) if wide else (1e-5, 1e-3)
        count = channels if per_channel else 1
        scales = [scale(rng, low, high) for _ in range(count)]
        while wide and name != "FULLY_CONNECTED" and not differs_in_16_bits(x.scale, scales[0], y.scale):
            scales[0] = scale(rng, low, high)
        zp = int(rng.integers(0, 256)) if dtype == "uint8" else 0
        biases = []
        for s in scales:
            reals = [quotient((x.scale, s), (y.scale,), how) for how in Precision]
            biases.append(critical(rng, reals, dtype, wide=wide and name != "FULLY_CONNECTED", count=channels // count))
        bias = np.concatenate(biases).astype(bias_type)
        square = (channels, 1, 1, depth)
        shape = {"DEPTHWISE_CONV_2D": (1, 1, 1, channels), "FULLY_CONNECTED": (channels, depth)}.get(name, square)
        axis = 3 if name == "DEPTHWISE_CONV_2D" else 0
        weights = np.full(shape, zp, weight_type)
        data = np.full((1, depth) if name == "FULLY_CONNECTED" else (1, 1, 1, depth), x.zero_point, dtype)
        result = (1, channels) if name == "FULLY_CONNECTED" else (1, 1, 1, channels)
        bias_spec = Spec(bias.shape, bias_type, Quant(x.scale * scales[0], 0), bias)
        operands = [
            Spec(data.shape, dtype, x),
            Spec(shape, weight_type, Quant(scales[0], zp), weights, tuple(scales) if per_channel else (), axis),
            bias_spec,
        ]
        options: dict[str, Any] = {} if name == "FULLY_CONNECTED" else {"stride_h": 1, "stride_w": 1, "padding": "VALID"}
        if name == "DEPTHWISE_CONV_2D":
            options["depth_multiplier"] = channels
        if name == "TRANSPOSE_CONV":
            operands = [const(result), operands[1], operands[0], operands[2]]
        return one_op(name, operands, [Spec(result, dtype, y)], version=3, **options), [data]

    return form


def matmul(rng: Rng, dtype: str) -> Case:
    """Products of random matrices; the accumulators are spread over the range of the results."""
    x, y = some_codes(rng, dtype, (1, 60, 3)), some_codes(rng, dtype, (1, 3, 60))
    a, b = quant(rng, dtype), quant(rng, dtype)
    c = Quant(tied(rng, a.scale * b.scale * (100 if dtype == "int8" else 40000)), 0)
    operands = [Spec(x.shape, dtype, a), Spec(y.shape, dtype, b)]
    return one_op("BATCH_MATMUL", operands, [Spec((1, 60, 60), dtype, c)]), [x, y]


LAYERS = ("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED")
COMPARISONS = ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")
CODES = ("int8", "uint8", "int16")
FORMS: dict[str, tuple[Form, tuple[str, ...]]] = {
    **{name: (layer(name), CODES) for name in LAYERS},
    **{f"{name} per channel": (layer(name, per_channel=True), ("int8", "int16")) for name in LAYERS},
    "BATCH_MATMUL": (matmul, ("int8", "int16")),
    **{name: (binary(name), CODES) for name in ("ADD", "SUB", "MUL", "DIV")},
    "SQUARED_DIFFERENCE": (binary("SQUARED_DIFFERENCE"), ("int8",)),
    **{name: (binary(name, "bool"), ("int8", "uint8")) for name in COMPARISONS},
    **{name: (unary(name), CODES) for name in ("RELU", "RELU6")},
    **{name: (unary(name), ("int8", "uint8")) for name in ("RELU_N1_TO_1", "RELU_0_TO_1")},
    "LEAKY_RELU": (unary("LEAKY_RELU", alpha=0.3), CODES),
    "PRELU": (prelu, ("int8", "uint8")),
    "HARD_SWISH": (unary("HARD_SWISH"), ("int8", "uint8")),
    "SOFTMAX": (softmax, CODES),
    "ABS": (unary("ABS"), ("int8", "int16")),
    "RSQRT": (unary("RSQRT"), ("int8",)),
    "QUANTIZE": (unary("QUANTIZE"), CODES),
    "MEAN": (reduction("MEAN"), CODES),
    "SUM": (reduction("SUM"), ("uint8",)),
    "REDUCE_PROD": (reduction("REDUCE_PROD"), ("int8", "int16")),
}
TFLM_FORMS: dict[str, tuple[Form, tuple[str, ...]]] = {
    **{name: (layer(name), ("int8", "int16")) for name in LAYERS},
    "FULLY_CONNECTED per channel": (layer("FULLY_CONNECTED", per_channel=True), ("int8",)),
    **{name: (binary(name), ("int8", "int16")) for name in ("ADD", "SUB", "MUL")},
    "DIV": (binary("DIV"), ("int8",)),
    "SQUARED_DIFFERENCE": (binary("SQUARED_DIFFERENCE"), ("int8", "int16")),
    "ADD_N": (sums, ("int8",)),
    **{name: (unary(name), ("int8", "int16")) for name in ("RELU", "ABS")},
    "LEAKY_RELU": (unary("LEAKY_RELU", alpha=0.3), ("int8", "int16")),
    "PRELU": (prelu, ("int8",)),
    "HARD_SWISH": (unary("HARD_SWISH"), ("int8",)),
    "SOFTMAX": (softmax, ("int8", "int16")),
    "BATCH_MATMUL": (matmul, ("int8", "int16")),
    "RSQRT": (unary("RSQRT"), ("int8",)),
    **{name: (reduction(name), ("int8", "int16")) for name in ("MEAN", "SUM")},
}


@contextmanager
def saying(opcode: str, how: Precision) -> Iterator[None]:
    """The table says `how` of everything that `opcode` makes."""
    kept = dict(table.LITERT), dict(table.TFLM)
    try:
        for rows in (table.LITERT, table.TFLM):
            rows.update({(opcode, kind): how for kind in ("*", "uint8", "int16", "per channel")})
        yield
    finally:
        for rows, old in zip((table.LITERT, table.TFLM), kept, strict=True):
            rows.clear()
            rows.update(old)


def is_sensitive(opcode: str, case: Case, *, oracle: str) -> bool:
    """Whether another precision gives another result."""
    model, inputs = case
    own = evaluate(main_of(model, oracle=oracle), inputs)
    for how in Precision:
        with saying(opcode, how):
            other = evaluate(main_of(model, oracle=oracle), inputs)
        if any(a.tobytes() != b.tobytes() for a, b in zip(own, other, strict=True)):
            return True
    return False


# --- the tests

Group = dict[str, tuple[Form, tuple[str, ...]]]
GROUPS: dict[str, Group] = {"litert": FORMS, "tflm": TFLM_FORMS}
SEEDS: dict[tuple[str, str, str], int] = {
    ("litert", "CONV_2D", "int8"): 0,
    ("litert", "CONV_2D", "uint8"): 0,
    ("litert", "DEPTHWISE_CONV_2D", "int8"): 0,
    ("litert", "DEPTHWISE_CONV_2D", "uint8"): 2,
    ("litert", "TRANSPOSE_CONV", "int8"): 0,
    ("litert", "TRANSPOSE_CONV", "uint8"): 0,
    ("litert", "FULLY_CONNECTED", "int8"): 0,
    ("litert", "FULLY_CONNECTED", "uint8"): 0,
    ("litert", "FULLY_CONNECTED", "int16"): 0,
    ("litert", "BATCH_MATMUL", "int8"): 10,
    ("litert", "ADD", "int8"): 3,
    ("litert", "ADD", "uint8"): 0,
    ("litert", "ADD", "int16"): 0,
    ("litert", "SUB", "int8"): 29,
    ("litert", "SUB", "uint8"): 18,
    ("litert", "SUB", "int16"): 0,
    ("litert", "MUL", "int8"): 0,
    ("litert", "MUL", "uint8"): 7,
    ("litert", "MUL", "int16"): 12,
    ("litert", "DIV", "int16"): 2,
    ("litert", "RELU", "int8"): 0,
    ("litert", "RELU", "uint8"): 11,
    ("litert", "RELU", "int16"): 1,
    ("litert", "RELU6", "int8"): 2,
    ("litert", "RELU6", "uint8"): 0,
    ("litert", "RELU6", "int16"): 3,
    ("litert", "RELU_N1_TO_1", "int8"): 0,
    ("litert", "RELU_N1_TO_1", "uint8"): 9,
    ("litert", "RELU_0_TO_1", "int8"): 11,
    ("litert", "RELU_0_TO_1", "uint8"): 21,
    ("litert", "LEAKY_RELU", "int8"): 5,
    ("litert", "LEAKY_RELU", "uint8"): 28,
    ("litert", "LEAKY_RELU", "int16"): 4,
    ("litert", "PRELU", "int8"): 1,
    ("litert", "PRELU", "uint8"): 3,
    ("litert", "HARD_SWISH", "int8"): 3,
    ("litert", "HARD_SWISH", "uint8"): 2,
    ("litert", "SOFTMAX", "int16"): 23,
    ("litert", "ABS", "int8"): 10,
    ("litert", "ABS", "int16"): 2,
    ("litert", "QUANTIZE", "int8"): 1,
    ("litert", "QUANTIZE", "uint8"): 11,
    ("litert", "QUANTIZE", "int16"): 1,
    ("litert", "MEAN", "int8"): 0,
    ("litert", "MEAN", "uint8"): 24,
    ("litert", "MEAN", "int16"): 22,
    ("litert", "SUM", "uint8"): 5,
    ("tflm", "CONV_2D", "int8"): 0,
    ("tflm", "DEPTHWISE_CONV_2D", "int8"): 0,
    ("tflm", "TRANSPOSE_CONV", "int8"): 0,
    ("tflm", "FULLY_CONNECTED", "int8"): 0,
    ("tflm", "ADD", "int8"): 3,
    ("tflm", "ADD", "int16"): 0,
    ("tflm", "SUB", "int8"): 29,
    ("tflm", "SUB", "int16"): 0,
    ("tflm", "MUL", "int8"): 0,
    ("tflm", "MUL", "int16"): 12,
    ("tflm", "DIV", "int8"): 42,
    ("tflm", "SQUARED_DIFFERENCE", "int8"): 91,
    ("tflm", "SQUARED_DIFFERENCE", "int16"): 0,
    ("tflm", "RELU", "int8"): 0,
    ("tflm", "RELU", "int16"): 1,
    ("tflm", "ABS", "int8"): 10,
    ("tflm", "ABS", "int16"): 2,
    ("tflm", "LEAKY_RELU", "int8"): 5,
    ("tflm", "LEAKY_RELU", "int16"): 4,
    ("tflm", "PRELU", "int8"): 1,
    ("tflm", "HARD_SWISH", "int8"): 3,
    ("tflm", "SOFTMAX", "int16"): 23,
    ("tflm", "BATCH_MATMUL", "int8"): 10,
    ("tflm", "MEAN", "int8"): 0,
    ("tflm", "MEAN", "int16"): 22,
    ("tflm", "SUM", "int8"): 7,
    ("tflm", "SUM", "int16"): 0,
    ("litert", "CONV_2D", "int16"): 0,
    ("litert", "DEPTHWISE_CONV_2D", "int16"): 0,
    ("litert", "TRANSPOSE_CONV", "int16"): 0,
    ("litert", "CONV_2D per channel", "int8"): 0,
    ("litert", "DEPTHWISE_CONV_2D per channel", "int8"): 0,
    ("litert", "TRANSPOSE_CONV per channel", "int8"): 0,
    ("litert", "FULLY_CONNECTED per channel", "int8"): 0,
    ("tflm", "FULLY_CONNECTED per channel", "int8"): 0,
    ("litert", "DIV", "int8"): 42,
    ("litert", "SQUARED_DIFFERENCE", "int8"): 91,
}
"""(oracle, form, type) -> a seed whose case is sensitive; types that are not named have none among some hundreds."""


def draw(name: str, dtype: str, seed: int, *, oracle: str) -> Case:
    form, _ = GROUPS[oracle][name]
    return form(np.random.default_rng([seed, crc32(f"{name} {dtype}".encode())]), dtype)


def compare(case: Case, *, oracle: str) -> None:
    """The graph gives the reference's bytes."""
    model, inputs = case
    found = evaluate(main_of(model, oracle=oracle), inputs)
    wanted = tflm_reference(model, inputs) if oracle == "tflm" else reference_sets(model, [inputs])[0]
    same([f.reshape(w.shape) for f, w in zip(found, wanted, strict=True)], wanted, "evaluate differs from the reference")


@pytest.mark.parametrize(("oracle", "name", "dtype"), SEEDS)
def test_sensitive_scales(oracle: str, name: str, dtype: str) -> None:
    """Another precision gives other bytes than this one, which gives the reference's."""
    case = draw(name, dtype, SEEDS[oracle, name, dtype], oracle=oracle)
    assert is_sensitive(name.removesuffix(" per channel"), case, oracle=oracle)
    compare(case, oracle=oracle)


DRAWN = [(oracle, name, dtype) for oracle, group in GROUPS.items() for name, (_, types) in group.items() for dtype in types]


@pytest.mark.slow
@pytest.mark.parametrize(("oracle", "name", "dtype"), DRAWN)
def test_drawn_scales(oracle: str, name: str, dtype: str) -> None:
    for seed in range(cases(100)):
        compare(draw(name, dtype, seed, oracle=oracle), oracle=oracle)


def test_every_row_is_read() -> None:
    """Each operator of the table makes its multiplier of it: another precision reaches `quotient`."""
    for opcode, dtype in table.LITERT:
        assert precision(opcode, dtype, oracle="litert") is table.LITERT[opcode, dtype]
    with pytest.raises(KeyError, match="TILE of int8"):
        precision("TILE", "int8", oracle="litert")


def test_what_the_precisions_are() -> None:
    a, b, c = (float(np.float32(x)) for x in (0.1, 0.3, 0.7))
    assert quotient((a, b), (c,), Precision.DOUBLE) == a * b / c
    assert quotient((a, b), (c,), Precision.SINGLE_PRODUCT) == float(np.float32(a) * np.float32(b)) / c
    assert quotient((a, b), (c,), Precision.SINGLE) == float(np.float32(a) * np.float32(b) / np.float32(c))
    assert quotient((a,), (b, c), Precision.SINGLE) == float(np.float32(a) / (np.float32(b) * np.float32(c)))
    assert real_multiplier("MUL", "int8", (1.0, 1.0), (0.0,)) == np.inf
