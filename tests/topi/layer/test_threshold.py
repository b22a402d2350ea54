"""Requantisation with a common shift against TFLite's own steps."""

from __future__ import annotations

import numpy as np
import pytest

from aot.ir.type import TensorType
from aot.op.qnn.quantize import RequantizeAttrs
from aot.target.target import find_target
from aot.topi.layer.requant import plan_folded, plan_uniform, thresholds

M3, M4 = find_target("cortex-m3"), find_target("cortex-m4")


def random_attrs(rng: np.random.Generator, channels: int, rounding: str) -> RequantizeAttrs:
    lo, hi = ((-128, 127), (-128, 40), (-100, 127))[int(rng.integers(3))]
    multipliers = tuple(int(m) for m in rng.integers(1 << 30, 1 << 31, channels))
    shifts = tuple(-int(s) for s in rng.integers(5, 9, channels))
    zero_point = lo if rounding == "double" else int(rng.integers(lo, hi + 1))
    return RequantizeAttrs(multipliers, shifts, zero_point, lo, hi, rounding)


def form(acc: np.ndarray, plan: object, attrs: RequantizeAttrs, prescale: int) -> np.ndarray:
    """SMMLA, shift and clamp in int64, which shows an overflow that int32 would hide."""
    m, c, s = (f.values for f in plan.params)  # type: ignore[attr-defined]
    total = ((acc * (1 << prescale) * m) >> 32) + c
    assert (np.abs(total) < 1 << 31).all()
    result: np.ndarray = np.clip(total >> s, attrs.lo, attrs.hi)
    return result


@pytest.mark.parametrize("rounding", ["double", "single"])
@pytest.mark.parametrize("seed", range(4))
def test_equal_for_every_accumulator(rounding: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    attrs = random_attrs(rng, 5, rounding)
    low, high = -rng.integers(1, 40000, 5), rng.integers(0, 40000, 5)
    plan = plan_uniform(attrs, low, high, target=M4, prescale=8)
    assert plan is not None
    assert plan.params[2].uniform
    assert not plan.signed
    for c in range(5):
        one = RequantizeAttrs((attrs.multiplier[c],), (attrs.shift[c],), attrs.zero_point, attrs.lo, attrs.hi, rounding)
        acc = np.arange(low[c], high[c] + 1).reshape(-1, 1)
        expected = one.evaluate(acc, out_type=TensorType(acc.shape, "int8"))
        columns = np.repeat(acc, 5, axis=1)
        np.testing.assert_array_equal(form(columns, plan, attrs, 8)[:, c], expected[:, 0])


@pytest.mark.parametrize("rounding", ["double", "single"])
@pytest.mark.parametrize("seed", range(4))
def test_folded_equals_for_every_accumulator(rounding: str, seed: int) -> None:
    """Nothing is added behind the product, and no sum before it leaves an int32."""
    rng = np.random.default_rng(seed)
    attrs = random_attrs(rng, 16, rounding)
    low, high = -rng.integers(1, 40000, 16), rng.integers(0, 40000, 16)
    found = plan_folded(attrs, low, high, target=M3, prescale=11)
    assert found is not None
    plan, added = found
    multiplier, constant, shift = (f.values for f in plan.params)
    assert not constant.any()
    assert plan.params[2].uniform
    for c in range(16):
        one = RequantizeAttrs((attrs.multiplier[c],), (attrs.shift[c],), attrs.zero_point, attrs.lo, attrs.hi, rounding)
        acc = np.arange(low[c], high[c] + 1).reshape(-1, 1)
        scaled = (acc << 11) + added[c]
        assert np.abs(scaled).max() < 1 << 31
        result = np.clip(((scaled * multiplier[c]) >> 32) >> shift[c], attrs.lo, attrs.hi)
        np.testing.assert_array_equal(result, one.evaluate(acc, out_type=TensorType(acc.shape, "int8")))


def test_folded_where_a_multiplier_has_to_move() -> None:
    """Of these channels at few bits of prescale some have no constant at their own multiplier."""
    rng = np.random.default_rng(1)
    attrs = random_attrs(rng, 64, "double")
    low, high = np.full(64, -40000), np.full(64, 40000)
    found = plan_folded(attrs, low, high, target=M3, prescale=9)
    assert found is not None
    shift = 9 - 1 - np.asarray(attrs.shift)
    dropped = shift - found[0].params[2].values
    own = (np.asarray(attrs.multiplier) + ((1 << dropped) >> 1)) >> dropped
    assert (found[0].params[0].values != own).any()


def test_folded_has_no_form_for_ties_of_both_signs() -> None:
    attrs = RequantizeAttrs((1 << 30,), (-3,), 0, -128, 127, "double")
    assert plan_folded(attrs, np.array([-5000]), np.array([5000]), target=M3, prescale=8) is None
    assert plan_folded(attrs, np.array([0]), np.array([5000]), target=M3, prescale=8) is not None


def test_thresholds_are_where_the_result_changes() -> None:
    attrs = RequantizeAttrs((1 << 30,), (-3,), 0, -128, 127, "double")  # acc / 16, halves away from zero
    at = thresholds(attrs, np.array([-5000]), np.array([5000]))
    assert at is not None
    assert at[128, 0] == 7  # 7 / 2 rounds up to 4, and 4 / 8 to 1
    assert at[126, 0] == -24 + 1  # -24 / 16 = -1.5 rounds to -2, -23 / 2 to -11, and -11 / 8 to -1
    narrow = thresholds(attrs, np.array([-10]), np.array([10]))
    assert narrow is not None
    assert (narrow[0, 0], narrow[-1, 0]) == (-10, 11)


def test_ties_of_both_signs_have_no_form() -> None:
    """Double rounding moves halves away from zero: no constant serves positive and negative results."""
    attrs = RequantizeAttrs((1 << 30,), (-3,), 0, -128, 127, "double")
    assert plan_uniform(attrs, np.array([-5000]), np.array([5000]), target=M4, prescale=8) is None
    assert plan_uniform(attrs, np.array([0]), np.array([5000]), target=M4, prescale=8) is not None


def test_channels_with_one_result_do_not_limit_the_shift() -> None:
    attrs = RequantizeAttrs((1 << 30, 5 << 28, 1 << 30), (-1, -8, -9), -128, -128, 127, "double")
    low, high = np.array([40, -9000, -9000]), np.array([40, 9000, 9000])
    plan = plan_uniform(attrs, low, high, target=M4, prescale=8)
    assert plan is not None
    assert plan.params[2].values[0] == 8 + 8 - 1
    for acc in (np.array([[40, -9000, 7]]), np.array([[40, 8999, 8999]])):
        expected = attrs.evaluate(acc, out_type=TensorType(acc.shape, "int8"))
        np.testing.assert_array_equal(form(acc, plan, attrs, 8), expected)


def test_range_too_wide() -> None:
    attrs = RequantizeAttrs((1 << 30,), (-9,), 0, -128, 127, "double")
    assert plan_uniform(attrs, np.array([-(1 << 23)]), np.array([1 << 23]), target=M4, prescale=8) is None
