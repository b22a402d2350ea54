"""SignalRfft and SignalIrfft, of integers and of floats."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest

from aot.errors import AotError
from tests.op._differential import FAST, OFTEN, SEEDS, Case, check_drawn, check_tflm, main_of
from tests.op._one_op import Spec, draw_array
from tests.op.signal import _models as models
from tests.op.signal._models import draw_bits

LENGTHS = st.sampled_from([4, 6, 8, 10, 12, 16, 18, 20, 30, 32, 50, 60, 64])


@st.composite
def spectra(draw: st.DrawFn) -> Case:
    dtype, length = draw(st.sampled_from(["int16", "int32", "float32"])), draw(LENGTHS)
    rows = draw(st.sampled_from([(), (1,), (3,), (2, 2)]))
    samples = draw(st.integers(max(1, length - 3), length))
    shape = (*rows, samples)
    seed = draw(SEEDS)
    data = draw_array(seed, shape, dtype) if dtype == "float32" else draw_bits(seed, shape, dtype)
    return models.rfft(dtype, rows, samples, length), [data]


@st.composite
def inverse_spectra(draw: st.DrawFn) -> Case:
    dtype, length = draw(st.sampled_from(["int16", "int32", "float32"])), draw(LENGTHS)
    rows = draw(st.sampled_from([(), (1,), (3,), (2, 2)]))
    shape = (*rows, length + 2)
    seed = draw(SEEDS)
    data = draw_array(seed, shape, dtype) if dtype == "float32" else draw_bits(seed, shape, dtype)
    return models.irfft(dtype, rows, length), [data]


def test_random() -> None:
    check_drawn(spectra(), FAST, check_tflm)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(spectra(), OFTEN, check_tflm)


def test_random_inverse() -> None:
    check_drawn(inverse_spectra(), FAST, check_tflm)


@pytest.mark.slow
def test_random_inverse_often() -> None:
    check_drawn(inverse_spectra(), OFTEN, check_tflm)


def test_on_host() -> None:
    for dtype in ("int16", "int32", "float32"):
        check_tflm(models.rfft(dtype, (2,), 29, 30), host=True)
        check_tflm(models.irfft(dtype, (2,), 16), host=True)


def test_refused() -> None:
    frame = Spec((8,), "int16")
    for model, code in (
        (models.rfft("int16", (), 4, 14), "E1180"),
        (models.rfft("int16", (), 4, 2), "E1180"),
        (models.rfft("int16", (), 9, 8), "E1122"),
        (models.custom("SignalRfft", [frame], [Spec((10,), "int16")], T=7), "E1116"),
        (models.custom("SignalIrfft", [frame], [frame], T=7, fft_length=8), "E1122"),
    ):
        with pytest.raises(AotError, match=code):
            main_of(model, oracle="tflm")
