"""FULLY_CONNECTED where sums fall on halves, which go away from zero: scales that are powers of two, or have few bits."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from aot.numerics.fixed_point import multiply_by_quantized_multiplier, quantize_multiplier
from aot.numerics.ties import ties_away
from aot.relay.expr import is_call, post_order
from aot.testing import Quant
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


def exactly(acc: np.ndarray, multiplier: int, shift: int) -> np.ndarray:
    """acc * multiplier * 2^(shift-31), halves away from zero."""
    total = 31 - shift
    return np.array([(abs(int(a)) * multiplier + (1 << (total - 1)) >> total) * (1 if a >= 0 else -1) for a in acc])


@given(st.integers(0, 30), st.integers(0, 2**30), st.integers(-12, 2), st.integers(1, 20))
@FAST
def test_multipliers(zeros: int, odd: int, shift: int, width: int) -> None:
    """Every kind of multiplier, for sums up to 2^width; among those that are tried are all that could be halves."""
    multiplier = ((1 << 30 | odd) >> zeros << zeros) & 0x7FFFFFFF
    largest = (1 << width) - 1
    step = 1 << max(30 - shift - zeros, 0)
    near = np.arange(-largest // step, largest // step + 1)[:2000] * step
    acc = np.concatenate([near, near + 1, near - 1, np.random.default_rng(odd).integers(-largest, largest + 1, 300)])
    acc = acc[np.abs(acc) <= largest]
    ((found, by),), rounding = ties_away([(multiplier, shift)], [largest])
    np.testing.assert_array_equal(
        multiply_by_quantized_multiplier(acc, found, by, rounding=rounding), exactly(acc, multiplier, shift)
    )


def test_each_channel_by_itself() -> None:
    half, third = quantize_multiplier(0.5), quantize_multiplier(1 / 3)
    assert ties_away([half, third], [1 << 20, 1 << 20]) == ([(half[0] + 1, half[1]), third], "single")
    assert ties_away([half, third], [1 << 31, 1 << 20]) == ([half, third], "away")
