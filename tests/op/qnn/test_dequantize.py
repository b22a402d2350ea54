"""DEQUANTIZE of codes, and of constants of any storage."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from aot.errors import AotError
from aot.testing import ModelBuilder, Quant, dequantize_model
from tests.op._differential import EVERY_CODE, FAST, SEEDS, SLOW, check, check_drawn, main_of, quants
from tests.op.qnn._conversion import CODES, model


@given(quants())
@FAST
def test_every_code(x: Quant) -> None:
    check(dequantize_model(input_shape=(1, 256), x=x), [EVERY_CODE])


@st.composite
def constants(draw: st.DrawFn) -> bytes:
    """Weights stored as float16, or as integers with one scale or one a channel, which the network multiplies with."""
    dtype = draw(st.sampled_from(["int4", "int8", "uint8", "int16", "float16"]))
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    rng = np.random.default_rng(draw(SEEDS))
    b = ModelBuilder()
    x, y, wide = (b.tensor(name, shape, "float32") for name in "xyw")
    if dtype == "float16":
        stored = b.tensor("s", shape, dtype, data=rng.normal(size=shape).astype(np.float16))
    else:
        low, high = (-8, 7) if dtype == "int4" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
        data = rng.integers(low, high, shape, "int8" if dtype == "int4" else dtype, endpoint=True)
        # the reference has no int16 with a scale a channel, and takes only its first zero point
        axis = draw(st.integers(0, len(shape) - 1)) if dtype != "int16" and draw(st.booleans()) else None
        count = 1 if axis is None else shape[axis]
        zero = [int(rng.integers(low, high)) if dtype in ("int8", "uint8") and count == 1 else 0] * count
        scale = rng.uniform(0.001, 0.1, count).astype(np.float32)
        stored = b.tensor("s", shape, dtype, data=data, scale=scale, zero_point=zero, axis=axis or 0)
    b.op("DEQUANTIZE", [stored], [wide], version=6)
    b.op("MUL", [x, wide], [y])
    return b.build([x], [y])


def test_constants_of_any_storage() -> None:
    check_drawn(constants(), FAST)


@pytest.mark.slow
def test_constants_of_any_storage_often() -> None:
    check_drawn(constants(), SLOW)


def test_int16_has_one_scale() -> None:
    """As in the reference."""
    b = ModelBuilder()
    w = b.tensor("w", (2, 2), "int16", data=np.ones((2, 2), np.int16), scale=[0.5, 0.25], zero_point=[0, 0])
    y = b.tensor("y", (2, 2), "float32")
    b.op("DEQUANTIZE", [w], [y])
    with pytest.raises(AotError, match="E1202"):
        main_of(b.build([], [y]))


def test_constants_of_float16() -> None:
    """Also denormal and infinite ones."""
    data = np.array([1.5, -6e-8, 65504, np.inf, -0.0, 0.1], np.float16)
    b = ModelBuilder()
    x, y, wide = (b.tensor(name, (6,), "float32") for name in "xyw")
    b.op("DEQUANTIZE", [b.tensor("h", (6,), "float16", data=data)], [wide], version=3)
    b.op("MAXIMUM", [x, wide], [y])
    check(b.build([x], [y]))


def test_unsigned() -> None:
    check(model("uint8", "float32", Quant(0.3, 200), None, op="DEQUANTIZE"), [CODES["uint8"]])


def test_on_host() -> None:
    check(dequantize_model(), host=True)
