"""Rescaling by 32-bit products against the reference's steps, on every value."""

from __future__ import annotations

import numpy as np
import pytest

from aot.numerics.linear import SPLIT, LinearRescaling, Rescaling, rescaling_of_products, rescaling_of_range
from aot.tir.arith import wrap
from aot.tir.builder import IRBuilder
from aot.tir.expr import cast
from aot.tir.interpreter import run

CODES = np.arange(-128, 128, dtype=np.int64)
SHIFTS = (-3, -6, -7, -8, -9, -15)


def drawn(seed: int, *, zero_point: int) -> tuple[tuple[int, int], Rescaling]:
    rng = np.random.default_rng(seed)
    zps = tuple(int(v) for v in rng.choice([-128, 0, 127, -7], 2))
    shift = SHIFTS[seed % len(SHIFTS)]
    return (zps[0], zps[1]), Rescaling(int(rng.integers(1 << 30, 1 << 31)), shift, zero_point, -128, 127)


@pytest.mark.parametrize("zero_point", [-128, 0, 5, 127])
def test_products_of_bytes(zero_point: int) -> None:
    """Every drawn rescaling has a form, and no step of it leaves 32 bits."""
    kinds = set()
    for seed in range(24):
        zps, by = drawn(seed, zero_point=zero_point)
        products = np.outer(CODES - zps[0], CODES - zps[1]).ravel()
        form = rescaling_of_products(zps, by)
        assert form is not None
        np.testing.assert_array_equal(form.evaluate(products), by.evaluate(products))
        kinds.add((bool(form.low), bool(form.below)))
        for p in (int(products.min()), int(products.max()), 0, -1):
            total = p * form.high + ((p * form.low) >> SPLIT)
            steps = (p * form.high, p * form.low, total, total + (form.below if p < 0 else 0), form.below)
            assert all(wrap(v, "int32") == v for v in steps)
    assert len(kinds) > 1


def test_what_is_emitted() -> None:
    """The interpreter, which checks 32 bits, computes the same as `evaluate`."""
    forms = [rescaling_of_products(*drawn(seed, zero_point=zp)) for seed in range(6) for zp in (-128, 5)]
    assert {bool(f.low) for f in forms if f is not None} == {False, True}
    for form in forms:
        assert form is not None
        values = np.arange(-16256, 16257, 127)
        b = IRBuilder("emitted")
        x, out = b.input("x", values.shape, "int32"), b.output("out", values.shape, "int8")
        with b.for_("i", values.size) as i:
            b.store(out, i, cast("int8", form.emit(b, x[i])))
        computed = np.zeros(values.shape, np.int8)
        run(b.finish(), {"x": values.astype(np.int32), "out": computed})
        np.testing.assert_array_equal(computed, form.evaluate(values))


@pytest.mark.parametrize("input_zp", [-128, 0, -4, 127])
@pytest.mark.parametrize("real", [0.05, 0.5, 0.7, 1.0, 2.9, 40.0])
def test_codes(input_zp: int, real: float) -> None:
    mantissa, exponent = np.frexp(real)
    by = Rescaling(round(mantissa * (1 << 31)), int(exponent), 7, -128, 120)
    form = rescaling_of_range(-128 - input_zp, 127 - input_zp, by)
    values = CODES - input_zp
    assert form is not None
    np.testing.assert_array_equal(form.evaluate(values), by.evaluate(values))


def test_none_for_nothing() -> None:
    """A multiplier of zero has no factor near it."""
    assert rescaling_of_range(-128, 127, Rescaling(0, 0, 3, -128, 127)) is None


def test_limits_that_leave_one_result() -> None:
    form = rescaling_of_range(-128, 127, Rescaling(1 << 30, 0, 0, 7, 7))
    assert isinstance(form, LinearRescaling)
    assert (form.evaluate(CODES) == 7).all()
