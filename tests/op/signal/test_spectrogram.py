"""AudioSpectrogram: exact to LiteRT."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest

from aot.errors import AotError
from tests.op._differential import FAST, OFTEN, SEEDS, Case, check, check_drawn, main_of
from tests.op._one_op import Spec, draw_array
from tests.op.signal._models import custom


def spectrogram(samples: int, channels: int, **options: Any) -> bytes:
    window = options["window_size"]
    frames = 1 + (samples - window) // options["stride"]
    result = Spec((channels, frames, (1 << (window - 1).bit_length()) // 2 + 1), "float32")
    return custom("AudioSpectrogram", [Spec((samples, channels), "float32")], [result], **options)


@st.composite
def spectrograms(draw: st.DrawFn) -> Case:
    samples, channels = draw(st.integers(8, 60)), draw(st.integers(1, 3))
    options = {"window_size": draw(st.integers(2, samples)), "stride": draw(st.integers(1, 20))}
    model = spectrogram(samples, channels, **options, magnitude_squared=draw(st.booleans()))
    return model, [draw_array(draw(SEEDS), (samples, channels), "float32")]


def test_random() -> None:
    check_drawn(spectrograms(), FAST)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(spectrograms(), OFTEN)


def test_on_host() -> None:
    check(spectrogram(40, 2, window_size=30, stride=5, magnitude_squared=False), host=True)


def test_refused() -> None:
    model = custom("AudioSpectrogram", [Spec((8, 1), "float32")], [Spec((1, 0, 9), "float32")], window_size=9, stride=1)
    with pytest.raises(AotError, match="E1122"):
        main_of(model)
