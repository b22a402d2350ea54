"""Products that give the codes of quotients: at the numbers at which codes change, and rounded once."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from aot.ir.type import TensorType
from aot.op.qnn.quantize import QuantizeAttrs
from aot.topi.arm_mve.elementwise import LEAST_DIVISOR, Reciprocal, is_proven, reciprocal


@pytest.mark.parametrize("scale", [0.0123, 0.1, 1 / 255, 3.0, 2.0**-7, 1e-9, 1e9])
def test_products_give_the_codes_of_quotients(scale: float) -> None:
    """For numbers at which codes change and those around them, and for any others."""
    factors = reciprocal(scale, 255)
    assert factors is not None
    assert (factors.low == 0) == (scale == 2.0**-7)
    rng, type_ = np.random.default_rng(0), TensorType((1,), "int16")
    changes = np.float32((np.arange(-300, 300) + 0.5) * np.float32(scale))
    x = np.concatenate(
        [changes, *(np.nextafter(changes, np.float32(v)) for v in (np.inf, -np.inf)), rng.normal(0, 99 * scale, 9999)]
    )
    x = x.astype(np.float32)
    product = factors.product(x).astype(np.float64)
    codes = np.clip(np.copysign(np.floor(np.abs(product) + 0.5), product), -255, 255)
    expected = QuantizeAttrs(scale, 0, -255, 255, "int16").evaluate(x, out_type=type_)
    np.testing.assert_array_equal(codes, expected)


def test_one_product_is_not_always_the_quotient() -> None:
    high = float(np.float32(1 / np.float32(0.1)))
    assert not is_proven(Reciprocal(high, 0.0), np.float32(0.1), 255)
    assert reciprocal(LEAST_DIVISOR / 2, 255) is None


def test_sums_and_products_are_rounded_once() -> None:
    """As Fraction has them: the nearest of the float32 numbers around them, the even one of two as near."""
    rng = np.random.default_rng(1)
    for high, low in rng.uniform(0.5, 1, (50, 2)).astype(np.float32):
        factors = Reciprocal(float(high), float(low * np.float32(2.0**-24)))
        x = rng.uniform(0.5, 1, 20).astype(np.float32)
        for value, found in zip(x, factors.product(x), strict=True):
            exact = Fraction(float(value)) * Fraction(factors.high) + Fraction(float(value * np.float32(factors.low)))
            around = [found, np.nextafter(found, np.float32(0)), np.nextafter(found, np.float32(2))]
            errors = [abs(Fraction(float(v)) - exact) for v in around]
            assert errors[0] <= min(errors)
            assert errors.count(errors[0]) == 1 or int(found.view(np.int32)) % 2 == 0
