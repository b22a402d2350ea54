"""The rounding of FULLY_CONNECTED: halves, which go away from zero, and accumulators that nearly come out as one."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from aot.numerics.fixed_point import (
    multiply_by_long_multiplier,
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    round_half_away,
    tir_multiply_long,
)
from aot.numerics.ties import Rescaling, limits, rounded_once
from aot.relay.expr import is_call, post_order
from aot.testing import Quant
from aot.tir.builder import IRBuilder
from aot.tir.interpreter import run
from tests.op._differential import FAST, check, main_of
from tests.op._layer_models import INT4, INT16, UINT8, Kind
from tests.op._one_op import Spec, one_op

INT8 = Kind("int8", "int8")
KINDS = [INT8, INT16, INT4, UINT8]


def row(kind: Kind, *, x: float, w: float, y: float, weight: int = 1, depth: int = 1) -> bytes:
    """Two channels of one weight, [60, depth] -> [60, 2]."""
    zp = 100 if kind.data == "uint8" else 0
    stored = np.full((2, depth), weight + zp, kind.weight.replace("int4", "int8"))
    bias = Spec((2,), kind.bias, Quant(x * w, 0), np.array([0, 1], kind.bias))
    inputs = [Spec((60, depth), kind.data, Quant(x, zp)), Spec((2, depth), kind.weight, Quant(w, zp), stored), bias]
    return one_op("FULLY_CONNECTED", inputs, [Spec((60, 2), kind.data, Quant(y, zp))], version=9)


def data(kind: Kind, depth: int = 1) -> np.ndarray:
    low, high = kind.data_range
    codes = np.linspace(low, high, 60) if kind.data == "int16" and depth > 1 else np.arange(60) - 30 + (low + high + 1) // 2
    return np.repeat(codes.astype(kind.data).reshape(60, 1), depth, axis=1)


def rounding(model: bytes) -> str:
    (found,) = (e for e in post_order(main_of(model).body) if is_call(e, "qnn.requantize"))
    return str(found.attrs.rounding)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("y", [0.5, 2.0])
def test_powers_of_two(kind: Kind, y: float) -> None:
    model = row(kind, x=0.5, w=0.5, y=y)
    assert rounding(model) == "single", "a multiplier that is larger by one"
    check(model, [data(kind)], host=kind in (INT8, INT16))


def test_where_no_multiplier_does() -> None:
    """Sums of 25 bits times a multiplier of 15: some are halves, and one more brings others to one."""
    model = row(INT16, x=16385 / 32768, w=1.0, y=256.0, weight=64, depth=8)
    assert rounding(model) == "away"
    codes = np.random.default_rng(0).integers(-(1 << 14), 1 << 14, (60, 8)).astype(np.int16)
    codes[:4] = np.array([-24576, -8192, 8192, 24576]).reshape(4, 1)
    ((found,),) = check(model, [codes], host=True)
    assert found[:4, 0].tolist() == [-24578, -8193, 8193, 24578]


def test_sums_of_64_bits() -> None:
    model = row(INT16, x=2.0**-8, w=2.0**-8, y=2.0**-3, weight=127, depth=700)
    assert rounding(model) == "away"
    codes = data(INT16, 700)
    codes[:, 1:] //= 2
    check(model, [codes], [data(INT8, 700).astype(np.int16) * 3], host=True)


def exactly(acc: np.ndarray, real: float) -> list[int]:
    """round(acc * real), halves away from zero, the product rounded to a double."""
    return [round_half_away(float(int(a)) * real) for a in acc]


@given(st.integers(0, 22), st.integers(0, 2**53), st.integers(-30, 2), st.integers(1, 31), st.sampled_from([1 << 8, 1 << 16]))
@FAST
def test_multipliers(zeros: int, odd: int, shift: int, width: int, codes: int) -> None:
    """Every kind of multiplier, for sums up to 2^width; among those that are tried are the limits between results."""
    rng = np.random.default_rng(odd)
    x, w, y = (float(np.float32((1 << 23 | odd >> n & 0x7FFFFF) >> zeros << zeros)) for n in (0, 15, 30))
    real = x * w / y * 2.0 ** (shift - 23)
    largest, results = (1 << width) - 1, (-codes // 2, codes // 2 - 1)
    found = rounded_once([real], [largest], results)
    near = limits(real, rng.integers(*results, 400))
    acc = np.concatenate([near + d for d in (-1, 0, 1)] + [rng.integers(-largest, largest + 1, 300)])
    acc = acc[np.abs(acc) <= largest].astype(np.int64)
    multiplier, by = found.multipliers[0], found.shifts[0]
    if found.fraction:
        scaled = multiply_by_long_multiplier(acc, multiplier, found.fraction[0], by)
    else:
        scaled = multiply_by_quantized_multiplier(acc, multiplier, by, rounding=found.rounding)
    np.testing.assert_array_equal(np.clip(scaled, *results), np.clip(exactly(acc, real), *results))


def test_a_multiplier_of_31_bits_is_not_enough() -> None:
    """An accumulator that the nearest multiplier takes to the other side of a half."""
    real = float(np.float32(0.3)) * float(np.float32(0.001)) / float(np.float32(0.9))
    found = rounded_once([real], [1 << 30], (-32768, 32767))
    assert found.fraction
    multiplier, shift = quantize_multiplier(real)
    acc = limits(real, np.arange(-32767, 32768)).astype(np.int64)
    short = multiply_by_quantized_multiplier(acc, multiplier, shift, rounding="single")
    assert (short != exactly(acc, real)).any()
    long = multiply_by_long_multiplier(acc, found.multipliers[0], found.fraction[0], found.shifts[0])
    assert long.tolist() == exactly(acc, real)


def test_each_channel_by_itself() -> None:
    half, third = quantize_multiplier(0.5), quantize_multiplier(1 / 3)
    found = rounded_once([0.5, 1 / 3], [1 << 20, 1 << 20], (-128, 127))
    assert found == Rescaling((half[0] + 1, third[0]), (half[1], third[1]), "single")


@pytest.mark.parametrize("width", [20, 40])
def test_long_multiplier_in_tir(width: int) -> None:
    """The expression for 32 and for 64 bits against the exact product."""
    rng = np.random.default_rng(width)
    dtype = "int32" if width < 32 else "int64"
    for shift in (-20 if width < 32 else -30, -width + 14):
        multiplier, fraction = int(rng.integers(1 << 30, 1 << 31)), int(rng.integers(0, 1 << 31))
        xs = np.concatenate([[0, -1, 1], rng.integers(-(1 << width), 1 << width, 200)])
        b = IRBuilder("f")
        data, out = b.input("x", xs.shape, dtype), b.output("y", xs.shape, "int32")
        with b.for_("i", len(xs)) as i:
            b.store(out, i, tir_multiply_long(b, data[i], multiplier, fraction=fraction, shift=shift))
        buffers = {"x": xs.astype(dtype), "y": np.zeros(len(xs), np.int32)}
        run(b.finish(), buffers)
        long, by = (multiplier << 31) + fraction, 62 - shift
        wanted = [(abs(int(x)) * long + (1 << (by - 1)) >> by) * (1 if x >= 0 else -1) for x in xs]
        assert buffers["y"].tolist() == wanted == multiply_by_long_multiplier(xs, multiplier, fraction, shift).tolist()
