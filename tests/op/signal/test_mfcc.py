"""Mfcc: exact to LiteRT."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest

from aot.errors import AotError
from tests.op._differential import FAST, FEW, OFTEN, SEEDS, Case, check, check_drawn, main_of
from tests.op._one_op import Spec, const, draw_array
from tests.op.signal._models import custom


def mfcc(shape: tuple[int, int, int], rate: int | None, **options: int) -> bytes:
    """A rate of None is an input."""
    result = Spec((*shape[:2], options["dct_coefficient_count"]), "float32")
    operand = Spec((1,), "int32") if rate is None else const([rate])
    return custom("Mfcc", [Spec(shape, "float32"), operand], [result], **options)


@st.composite
def cepstra(draw: st.DrawFn, *, given: bool = False) -> Case:
    """With the rate as an input also one at which the spectrogram does not reach the upper limit."""
    bins, channels = draw(st.sampled_from([17, 65, 129, 257])), draw(st.integers(1, 40))
    shape = (draw(st.integers(1, 2)), draw(st.integers(1, 3)), bins)
    lower = draw(st.integers(0, 300))
    options = {"lower_frequency_limit": lower, "upper_frequency_limit": draw(st.integers(lower + 1, 4000))}
    rate = draw(st.sampled_from([8000, 16000, 44100, *([1, 2000, 7999] if given else [])]))
    model = mfcc(shape, None if given else rate, **options, filterbank_channel_count=channels,
                 dct_coefficient_count=draw(st.integers(1, channels)))  # fmt: skip
    data = np.abs(draw_array(draw(SEEDS), shape, "float32")) * np.float32(draw(st.sampled_from([1.0, 1e-6, 0.0])))
    return model, [data, *([np.array([rate], np.int32)] if given else [])]


def test_random() -> None:
    check_drawn(cepstra(), FAST)


def test_random_with_a_rate() -> None:
    check_drawn(cepstra(given=True), FEW)


@pytest.mark.slow
@pytest.mark.parametrize("given", [False, True])
def test_random_often(given: bool) -> None:
    check_drawn(cepstra(given=given), OFTEN)


NUMBERS = {"lower_frequency_limit": 20, "filterbank_channel_count": 10, "dct_coefficient_count": 6}


def test_on_host() -> None:
    check(mfcc((1, 2, 65), 16000, **NUMBERS, upper_frequency_limit=4000), [np.ones((1, 2, 65), np.float32)], host=True)


def test_rates_on_host() -> None:
    """16 kHz, one that is too low, and two that the reference refuses and that give zeros here."""
    model, data = mfcc((1, 2, 65), None, **NUMBERS, upper_frequency_limit=4000), np.ones((1, 2, 65), np.float32)
    check(model, *([data, np.array([rate], np.int32)] for rate in (16000, 4000)), host=True)
    found = check(model, *([data, np.array([rate], np.int32)] for rate in (0, -8000)), host=True, oracle="tflm")
    assert not any(f[0].any() for f in found)


def test_refused() -> None:
    with pytest.raises(AotError, match="E1122"):
        main_of(mfcc((1, 2, 65), 16000, **NUMBERS, upper_frequency_limit=9000))
