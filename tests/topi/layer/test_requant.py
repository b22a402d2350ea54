"""The short requantisation forms against TFLite's own steps."""

from __future__ import annotations

import numpy as np
import pytest

from aot.ir.type import TensorType
from aot.op.qnn.quantize import RequantizeAttrs
from aot.target.target import find_target
from aot.tir.builder import IRBuilder
from aot.tir.interpreter import run
from aot.topi.layer.requant import General, HighMultiply, plan_high_multiply, plan_requantize


def run_plan(plan: HighMultiply | General, acc: np.ndarray, *, prescale: int = 0) -> np.ndarray:
    """Requantise `acc` (one channel) by a plan in the TIR interpreter."""
    b = IRBuilder("requantise")
    x, y = b.input("x", acc.shape, "int32"), b.output("y", acc.shape, "int32")
    fields = tuple(b.let(f.name, b.const(f.name, (1,), "int32")[0]) for f in plan.params)
    with b.for_("i", acc.size) as i:
        if prescale:
            assert isinstance(plan, HighMultiply)
            b.store(y, i, plan.emit_scaled(b, x[i], fields))
        else:
            b.store(y, i, plan.emit(b, x[i], fields))
    out = np.zeros(acc.shape, np.int32)
    scaled = (acc.astype(np.int64) << prescale).astype(np.int32)
    run(b.finish(), {"x": scaled, "y": out, **{f.name: np.asarray(f.values[:1], np.int32) for f in plan.params}})
    return out


def accumulators(rng: np.random.Generator, limit: int, attrs: RequantizeAttrs) -> np.ndarray:
    """Random values, small ones of both signs, and values near the ties of this multiplier."""
    step = 2.0 ** (31 - attrs.shift[0]) / max(attrs.multiplier[0], 1)
    ties = [int((k + 0.5) * step) + d for k in range(-130, 130, 7) for d in (-1, 0, 1)]
    values = np.concatenate([rng.integers(-limit, limit, 300), np.arange(-40, 40), ties, [-limit, limit - 1]])
    return values[np.abs(values) <= limit].astype(np.int32)


@pytest.mark.parametrize("cpu", ["cortex-m3", "cortex-m4"])
@pytest.mark.parametrize("rounding", ["double", "single"])
@pytest.mark.parametrize(
    ("zero_point", "lo", "hi"), [(-128, -128, 127), (0, -128, 127), (127, -128, 127), (3, 3, 90), (-5, -100, 100)]
)
@pytest.mark.parametrize("prescale", [0, 1, 2, 5, 8])
def test_short_form(cpu: str, rounding: str, zero_point: int, lo: int, hi: int, prescale: int) -> None:
    rng = np.random.default_rng([prescale, zero_point + 128])
    for shift, multiplier in ((-1, 1 << 30), (-4, (1 << 31) - 1), (-9, 3 << 29), (-14, int(rng.integers(1 << 30, 1 << 31)))):
        attrs = RequantizeAttrs((multiplier,), (shift,), zero_point, lo, hi, rounding)
        limit = (1 << (30 - prescale)) - 1 if prescale else (1 << 30) - 1
        acc = accumulators(rng, limit, attrs)
        low, high = np.array([-limit]), np.array([limit])
        plan = plan_high_multiply(attrs, low, high, target=find_target(cpu), prescale=max(prescale, 1))
        assert plan is not None
        expected = attrs.evaluate(acc, out_type=TensorType(acc.shape, "int8"))
        np.testing.assert_array_equal(run_plan(plan, acc, prescale=prescale), expected)


@pytest.mark.parametrize("shift", [0, 1, 5, -22, -31])
@pytest.mark.parametrize("rounding", ["double", "single"])
def test_any_shift_has_a_form(shift: int, rounding: str) -> None:
    attrs = RequantizeAttrs(((1 << 31) - 12345,), (shift,), 7, -128, 127, rounding)
    limit = 1 << 20
    acc = np.random.default_rng(1).integers(-limit, limit, 500).astype(np.int32)
    plan = plan_requantize(attrs, np.array([-limit]), np.array([limit]), find_target("cortex-m4"))
    expected = attrs.evaluate(acc, out_type=TensorType(acc.shape, "int8"))
    np.testing.assert_array_equal(run_plan(plan, acc), expected)


@pytest.mark.parametrize("prescale", [0, 1, 2, 8])
@pytest.mark.parametrize(("rounding", "lo"), [("double", 3), ("single", -128), ("double", -128)])
def test_no_shift(prescale: int, rounding: str, lo: int) -> None:
    """s = 0 has a short form, unless a sign term or a missing pre-scale stands in the way."""
    attrs = RequantizeAttrs(((1 << 30) + 777,), (0,), 3, lo, 127, rounding)
    limit = 1000
    acc = accumulators(np.random.default_rng(prescale), limit, attrs)
    bounds = np.array([-limit]), np.array([limit])
    plan = plan_high_multiply(attrs, *bounds, target=find_target("cortex-m4"), prescale=max(prescale, 1))
    if (rounding == "single" and prescale < 2) or (rounding == "double" and lo < 3):
        assert plan is None
        return
    assert plan is not None
    np.testing.assert_array_equal(
        run_plan(plan, acc, prescale=prescale), attrs.evaluate(acc, out_type=TensorType(acc.shape, "int8"))
    )


def test_short_form_is_refused_where_it_would_overflow() -> None:
    attrs = RequantizeAttrs((1 << 30,), (-4,), 0, -128, 127, "double")
    big = 1 << 30
    target = find_target("cortex-m4")
    assert plan_high_multiply(attrs, np.array([-big]), np.array([big]), target=target) is None
    assert isinstance(plan_requantize(attrs, np.array([-big]), np.array([big]), target), General)
    assert plan_high_multiply(attrs, np.array([-1 << 20]), np.array([1 << 20]), target=target, prescale=11) is None


@pytest.mark.parametrize("shift", [1, 2, 5])
@pytest.mark.parametrize("prescale", [7, 8, 11])
@pytest.mark.parametrize("multiplier", [1 << 30, (1 << 31) - 1, (1 << 30) + 777])
@pytest.mark.parametrize("rounding", ["double", "single"])
def test_shift_to_the_left(shift: int, prescale: int, multiplier: int, rounding: str) -> None:
    """s < 0 has a short form for sums that come pre-scaled far enough, every accumulator tried."""
    attrs = RequantizeAttrs((multiplier,), (shift,), -3, -3, 127, rounding)
    acc = np.arange(-3000, 3001).astype(np.int32)
    plan = plan_high_multiply(attrs, np.array([-3000]), np.array([3000]), target=find_target("cortex-m4"), prescale=prescale)
    assert plan is not None
    expected = attrs.evaluate(acc, out_type=TensorType(acc.shape, "int8"))
    np.testing.assert_array_equal(run_plan(plan, acc, prescale=prescale), expected)
    assert plan_high_multiply(attrs, np.array([-3000]), np.array([3000]), target=find_target("cortex-m4"), prescale=1) is None
