"""Fixed-point arithmetic against its definitions in rationals, and its TIR forms against numpy."""

from __future__ import annotations

import math
from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from aot.ir.type import TensorType, per_tensor
from aot.numerics import fixed_point as fp
from aot.tir.builder import IRBuilder
from aot.tir.expr import imm
from aot.tir.interpreter import run
from tests.op._differential import FAST

INT32 = st.one_of(
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.integers(-300, 300),
    st.sampled_from([-(1 << 31), (1 << 31) - 1, 1 << 30, -(1 << 30)]),
)
MULTIPLIER = st.one_of(st.integers(1 << 30, (1 << 31) - 1), st.sampled_from([0, 1 << 30, (1 << 31) - 1, 3 << 29]))
ROUNDINGS = ["double", "single"]


def half_up(x: Fraction) -> int:
    return math.floor(x + Fraction(1, 2))


def half_away(x: Fraction) -> int:
    return half_up(x) if x >= 0 else -half_up(-x)


def twice_rounded(x: int, m: int, shift: int) -> int:
    """gemmlowp: high product halves up, right shift halves away from zero; the left shift drops high bits."""
    left = ((x << max(shift, 0)) + (1 << 31)) % (1 << 32) - (1 << 31)
    return half_away(Fraction(half_up(Fraction(left * m, 1 << 31)), 1 << max(-shift, 0)))


def once_rounded(x: int, m: int, shift: int) -> int:
    return half_up(Fraction(x * m, 1 << (31 - shift)))


def expected(x: int, m: int, shift: int, rounding: str) -> int:
    return twice_rounded(x, m, shift) if rounding == "double" else once_rounded(x, m, shift)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@given(st.lists(INT32, min_size=1, max_size=40), MULTIPLIER, st.integers(-31, 30))
@FAST
def test_numpy(rounding: str, xs: list[int], m: int, shift: int) -> None:
    found = fp.multiply_by_quantized_multiplier(xs, m, shift, rounding=rounding)
    assert found.tolist() == [expected(x, m, shift, rounding) for x in xs]


def tie(m: int, shift: int) -> list[int]:
    """Accumulators near the ties of a multiplier."""
    step = Fraction(1 << (31 - shift), m)
    return [int(step * (n + Fraction(1, 2))) + d for n in (-4, -3, -1, 0, 1, 2) for d in (-1, 0, 1)]


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("variable", [False, True])
@given(st.lists(INT32, min_size=1, max_size=12), MULTIPLIER, st.integers(-31, 8))
@FAST
def test_tir(rounding: str, variable: bool, xs: list[int], m: int, shift: int) -> None:
    """The one-step form, with numbers as constants and as loads."""
    xs = [x for x in [*xs, *(tie(m, shift) if m else [])] if -(1 << 31) <= x < 1 << 31]
    xs = [x for x in xs if abs(expected(x, m, shift, rounding)) < 1 << 31]
    if rounding == "single":
        xs = [x for x in xs if abs(x * m) < 1 << 62]
    b = IRBuilder("f")
    data, out = b.input("x", (len(xs),), "int32"), b.output("y", (len(xs),), "int32")
    numbers = b.const("numbers", (2,), "int32")
    with b.for_("i", len(xs)) as i:
        multiplier, by = (numbers[0], numbers[1]) if variable else (m, shift)
        b.store(out, i, fp.tir_multiply_by_quantized_multiplier(b, data[i], multiplier, by, rounding=rounding))
    result = np.zeros(len(xs), np.int32)
    run(b.finish(), {"x": np.array(xs, np.int32), "y": result, "numbers": np.array([m, shift], np.int32)})
    assert result.tolist() == [expected(x, m, shift, rounding) for x in xs]


@given(INT32, st.integers(0, 31))
@FAST
def test_divide_by_power_of_two(x: int, n: int) -> None:
    assert fp.rounding_divide_by_pot(x, n) == half_away(Fraction(x, 1 << n))


@pytest.mark.parametrize(
    ("real", "pair"),
    [
        (0.0, (0, 0)),
        (0.5, (1 << 30, 0)),
        (1.0, (1 << 30, 1)),
        (0.75, (3 << 29, 0)),
        (1 - 2.0**-40, (1 << 30, 1)),  # the mantissa rounds up to 2^31
        (2.0**-32, (1 << 30, -31)),
        (2.0**-33, (0, 0)),  # too small: flushed
        (1e9, (2000000000, 30)),
    ],
)
def test_quantize_multiplier(real: float, pair: tuple[int, int]) -> None:
    assert fp.quantize_multiplier(real) == pair


@pytest.mark.parametrize("real", [-0.5, math.nan, math.inf])
def test_quantize_multiplier_refuses(real: float) -> None:
    with pytest.raises(ValueError, match="multiplier"):
        fp.quantize_multiplier(real)


@given(st.floats(1e-9, 1e9))
@FAST
def test_quantize_multiplier_is_close(real: float) -> None:
    multiplier, shift = fp.quantize_multiplier(real)
    assert 1 << 30 <= multiplier < 1 << 31
    assert abs(multiplier * 2.0 ** (shift - 31) / real - 1) <= 2.0**-31


@pytest.mark.parametrize("value", [0.5, 1.5, 2.5, -0.5, -1.5, -2.5])
def test_halves_go_away_from_zero(value: float) -> None:
    assert fp.round_half_away(value) == int(value + math.copysign(0.5, value))


def test_round_does_not_add_a_half_inexactly() -> None:
    assert fp.round_half_away(0.49999999999999994) == 0


@pytest.mark.parametrize(
    ("activation", "scale", "zero_point", "bounds"),
    [
        ("NONE", 0.1, 5, (-128, 127)),
        ("RELU", 0.1, 5, (5, 127)),
        ("RELU6", 0.1, 5, (5, 65)),
        ("RELU6", 0.001, -128, (-128, 127)),
        ("RELU_N1_TO_1", 0.25, 5, (1, 9)),
        ("RELU_N1_TO_1", 2.0, 0, (-1, 1)),
    ],
)
def test_activation_range(activation: str, scale: float, zero_point: int, bounds: tuple[int, int]) -> None:
    assert fp.activation_range(activation, TensorType((1,), "int8", per_tensor(scale, zero_point))) == bounds


def test_exp_is_monotonous_and_close() -> None:
    a = -np.linspace(0, 31.99, 5000)
    found = fp.exp_on_negative_values(np.round(a * 2.0**26).astype(np.int64)) / 2.0**31
    assert np.abs(found - np.exp(a)).max() < 1e-6
    assert fp.exp_on_negative_values(0) == (1 << 31) - 1


def test_reciprocal_is_close() -> None:
    spread = np.geomspace(1 << 19, (1 << 31) - 1, 3000).astype(np.int64)
    x = np.unique(np.concatenate([np.arange(1 << 19, (1 << 19) + 50), spread]))
    mantissa, bits = fp.reciprocal(x, 12)
    found = mantissa / 2.0**31 * 2.0 ** (-bits.astype(np.float64))
    assert np.abs(found * (x / 2.0**19) - 1).max() < 1e-6


def test_named_keeps_what_may_be_repeated() -> None:
    b = IRBuilder("f")
    assert fp.named(b, "x", imm(3)) == imm(3)
