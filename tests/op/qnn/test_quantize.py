"""QUANTIZE of floats."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from aot.relay.interpreter import evaluate
from aot.testing import Quant, quantize_model
from tests.op._differential import FAST, SEEDS, SLOW, check, main_of, quants, same
from tests.op.qnn._conversion import model


def floats(y: Quant, seed: int) -> np.ndarray:
    """Ties, their neighbours in float32, and values on both sides of the range."""
    rng = np.random.default_rng(seed)
    ties = ((np.arange(-300, 300) + 0.5) * y.scale).astype(np.float32)
    near = [np.nextafter(ties, np.float32(np.inf)), np.nextafter(ties, np.float32(-np.inf))]
    special = np.array([0.0, -0.0, 1e-30, -1e-30, 1e5 * y.scale, -1e5 * y.scale], np.float32)
    return np.concatenate([ties, *near, special, (rng.normal(size=50) * 100 * y.scale).astype(np.float32)]).reshape(1, -1)


def from_float(y: Quant, seed: int) -> None:
    x = floats(y, seed)
    check(quantize_model(input_shape=x.shape, y=y), [x])


@given(quants(), SEEDS)
@FAST
def test_from_float(y: Quant, seed: int) -> None:
    from_float(y, seed)


@pytest.mark.slow
@given(quants(), SEEDS)
@SLOW
def test_from_float_often(y: Quant, seed: int) -> None:
    from_float(y, seed)


def test_beyond_int32_saturates() -> None:
    """The reference is undefined here, so this is our own word; NaN gives the zero point, within the clamp."""
    x = np.array([[np.inf, -np.inf, 1e30, -1e30, np.nan]], np.float32)
    y = Quant(0.1, 3)
    found = evaluate(main_of(quantize_model(input_shape=x.shape, y=y)), [x])
    same(found, [np.array([[127, -128, 127, -128, 3]], np.int8)], "saturation")


def test_unsigned() -> None:
    check(model("float32", "uint8", None, Quant(0.3, 200)))


def test_on_host() -> None:
    y = Quant(float(np.float32(0.1)), 3)
    x = np.concatenate([floats(y, 0), np.array([[1e6, -1e6]], np.float32)], axis=1)
    check(quantize_model(input_shape=x.shape, y=y), [x], host=True)
