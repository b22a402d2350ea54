"""DIV of codes: every divisor, quotients that ask the reference for shifts beyond 31 bits, divisions by zero."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from aot.driver.build import build
from aot.errors import AotError
from aot.relay.interpreter import evaluate
from aot.report.measure.inputs import rule_sets
from aot.testing import Quant
from tests.op._differential import ACTIVATIONS, FAST, SEEDS, SLOW, Array, check, check_lowering, check_tflm, main_of, scales
from tests.op._one_op import Spec, draw_array, one_op

Case = tuple[bytes, list[Array]]
SHAPES = st.sampled_from([((60,), (60,)), ((4, 1, 3), (5, 1)), ((1,), (2, 3, 2)), ((2, 30), ())])


def model_of(dtype: str, shapes: Any, quants: Any, **options: Any) -> bytes:
    specs = [Spec(s, dtype, q) for s, q in zip((*shapes, np.broadcast_shapes(*shapes)), quants, strict=True)]
    return one_op("DIV", specs[:2], specs[2:], version=2, **options)


def divisors(data: Array, zero_point: int) -> Array:
    """The codes without the one of zero."""
    other = zero_point + 1 if zero_point < 100 else zero_point - 1
    return np.where(data == zero_point, data.dtype.type(other), data)


@st.composite
def quotients(draw: st.DrawFn, dtypes: tuple[str, ...] = ("int8", "int16", "uint8")) -> Case:
    """Without divisors of zero where they are an error, in TensorFlow Lite."""
    dtype = draw(st.sampled_from(dtypes))
    limits = np.iinfo(dtype)
    zero = st.just(0) if dtype == "int16" else st.one_of(st.sampled_from([0, limits.min]), st.integers(limits.min, limits.max))
    x, y, z = (draw(st.builds(Quant, scales(), zero)) for _ in range(3))
    quants = [x, y, Quant(float(np.float32(max(z.scale, x.scale / y.scale / 8000))), z.zero_point)]
    shapes, seed = draw(SHAPES), draw(SEEDS)
    small = np.random.default_rng(seed).integers(-8, 9, shapes[0]) + quants[0].zero_point
    a = np.clip(small, limits.min, limits.max).astype(dtype) if draw(st.booleans()) else draw_array(seed, shapes[0], dtype)
    b = draw_array(seed + 1, shapes[1], dtype)
    b = b if dtypes == ("int8",) else divisors(b, quants[1].zero_point)
    return model_of(dtype, shapes, quants, fused_activation_function=draw(ACTIVATIONS)), [a, b]


@given(quotients(), quotients(("int8",)))
@settings(FAST, max_examples=4)
def test_random(case: Case, tflm: Case) -> None:
    check(case[0], case[1])
    check_tflm(tflm[0], tflm[1])


@pytest.mark.slow
@given(quotients(), quotients(("int8",)))
@SLOW
def test_random_often(case: Case, tflm: Case) -> None:
    check(case[0], case[1])
    check_tflm(tflm[0], tflm[1])


def test_shifts_beyond_31_bits() -> None:
    """Small quotients come out far off; so they do in the reference."""
    a, b = np.repeat(np.arange(-128, -112), 16).astype(np.int8), np.tile(np.arange(-126, -110), 16).astype(np.int8)
    model = model_of("int8", ((256,), (256,)), [Quant(0.01, -128), Quant(0.9, -128), Quant(0.02, -128)])
    (found,), _ = check(model, [a, b], [a, np.full_like(b, 100)], host=True)
    assert found.max() == 127


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_division_by_zero_gives_zero(dtype: str) -> None:
    """The reference stops with an error; TFLM goes on, with numbers that mean nothing."""
    zp = 5 if dtype == "int8" else 0
    model = model_of(dtype, ((40,), (40,)), [Quant(0.5, 0), Quant(0.25, zp), Quant(0.125, zp)])
    a, b = np.arange(-20, 20).astype(dtype), np.full(40, zp, dtype)
    func = main_of(model)
    found = evaluate(func, [a, b])
    assert (found[0] == zp).all()
    check_lowering(func, [[a, b]], [found], host=False)
    if dtype == "int8":
        check_tflm(model, [a, b])


@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("power", [15, 23, 30])
def test_results_of_small_scales(dtype: str, power: int) -> None:
    """int16 quotients of operands of like scales have 15 bits to shift; beyond, the reference shifts by negative numbers."""
    rng, limits = np.random.default_rng(power), np.iinfo(dtype)
    model = model_of(dtype, ((200,), (200,)), [Quant(1.0, 0), Quant(1.0, 0), Quant(2.0**-power / 1.37, 0)])
    a, b = (rng.integers(limits.min, limits.max, 200, dtype, endpoint=True) for _ in range(2))
    a[:50], b[25:75] = rng.integers(-3, 4, 50), rng.integers(-3, 4, 50)
    a[100:102], b[100:102] = limits.min, (-1, 1)
    check(model, [a, divisors(b, 0)])


def test_refused() -> None:
    with pytest.raises(AotError, match="E1226"):
        main_of(model_of("int8", ((4,), (4,)), [Quant(1.0, 0), Quant(1e-5, 0), Quant(1e-5, 0)]))


@pytest.mark.parametrize("zp", [0, 5, 127, -128])
def test_drawn_divisors_are_not_zero(zp: int) -> None:
    model = model_of("int8", ((40,), (40,)), [Quant(0.5, 0), Quant(0.25, zp), Quant(0.125, 0)])
    for _, divisor in rule_sets(build(model, target="host", name="m").metadata["inputs"], 3).inputs:
        assert (divisor != zp).all()
