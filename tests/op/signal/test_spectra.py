"""RFFT2D, complex numbers, AudioSpectrogram, Mfcc: exact to LiteRT."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from aot.errors import AotError
from tests.op._differential import FAST, OFTEN, SEEDS, check, main_of
from tests.op._one_op import Spec, const, draw_array, one_op
from tests.op.signal._models import Array, custom

Case = tuple[bytes, list[Array]]
ROWS = st.sampled_from([(), (1,), (3,), (2, 2)])


def rfft2d(shape: tuple[int, ...], height: int, width: int) -> bytes:
    result = Spec((*shape[:-2], height, width // 2 + 1), "complex64")
    return one_op("RFFT2D", [Spec(shape, "float32"), const([height, width])], [result])


def spectrogram(samples: int, channels: int, **options: Any) -> bytes:
    window = options["window_size"]
    frames = 1 + (samples - window) // options["stride"]
    result = Spec((channels, frames, (1 << (window - 1).bit_length()) // 2 + 1), "float32")
    return custom("AudioSpectrogram", [Spec((samples, channels), "float32")], [result], **options)


def mfcc(shape: tuple[int, int, int], rate: int, **options: int) -> bytes:
    result = Spec((*shape[:2], options["dct_coefficient_count"]), "float32")
    return custom("Mfcc", [Spec(shape, "float32"), const([rate])], [result], **options)


@st.composite
def images(draw: st.DrawFn) -> Case:
    """All sizes; whole numbers as well, of which many bins are exact zeros."""
    height, width = draw(st.sampled_from([1, 1, 1, 2, 4, 8])), 1 << draw(st.integers(1, 7))
    shape = (*draw(ROWS), max(1, height - draw(st.integers(0, 1))), max(1, width + draw(st.integers(-2, 1))))
    data = draw_array(draw(SEEDS), shape, "float32")
    return rfft2d(shape, height, width), [np.round(data) if draw(st.booleans()) else data]


@st.composite
def parts(draw: st.DrawFn, opcode: str) -> Case:
    shape, seed = (*draw(ROWS), draw(st.integers(1, 5))), draw(SEEDS)
    pairs = draw_array(seed, (*shape, 2), "float32")
    extremes = np.array([np.inf, -np.inf, 0.0, -0.0, 3e38, 1e-44], np.float32)
    rng = np.random.default_rng(seed)
    pairs = np.where(rng.random(pairs.shape) < 0.2, rng.choice(extremes, pairs.shape), pairs)
    data = np.ascontiguousarray(pairs).view(np.complex64).reshape(shape)
    return one_op(opcode, [Spec(shape, "complex64")], [Spec(shape, "float32")]), [data]


@st.composite
def views(draw: st.DrawFn) -> Case:
    shape = (draw(st.integers(1, 4)), 1, draw(st.integers(1, 4)))
    data = np.ascontiguousarray(draw_array(draw(SEEDS), (*shape, 2), "float32")).view(np.complex64).reshape(shape)
    given = Spec(shape, "complex64")
    opcode = draw(st.sampled_from(["RESHAPE", "EXPAND_DIMS", "SQUEEZE"]))
    if opcode == "RESHAPE":
        return one_op(opcode, [given, const([-1])], [Spec((shape[0] * shape[2],), "complex64")]), [data]
    if opcode == "EXPAND_DIMS":
        return one_op(opcode, [given, const(0)], [Spec((1, *shape), "complex64")]), [data]
    return one_op(opcode, [given], [Spec((shape[0], shape[2]), "complex64")], squeeze_dims=[1]), [data]


@st.composite
def spectrograms(draw: st.DrawFn) -> Case:
    samples, channels = draw(st.integers(8, 60)), draw(st.integers(1, 3))
    options = {"window_size": draw(st.integers(2, samples)), "stride": draw(st.integers(1, 20))}
    model = spectrogram(samples, channels, **options, magnitude_squared=draw(st.booleans()))
    return model, [draw_array(draw(SEEDS), (samples, channels), "float32")]


@st.composite
def cepstra(draw: st.DrawFn) -> Case:
    bins, channels = draw(st.sampled_from([17, 65, 129, 257])), draw(st.integers(1, 40))
    shape = (draw(st.integers(1, 2)), draw(st.integers(1, 3)), bins)
    lower = draw(st.integers(0, 300))
    options = {"lower_frequency_limit": lower, "upper_frequency_limit": draw(st.integers(lower + 1, 4000))}
    model = mfcc(shape, draw(st.sampled_from([8000, 16000, 44100])), **options, filterbank_channel_count=channels,
                 dct_coefficient_count=draw(st.integers(1, channels)))  # fmt: skip
    return model, [np.abs(draw_array(draw(SEEDS), shape, "float32")) * np.float32(draw(st.sampled_from([1.0, 1e-6, 0.0])))]


PARTS = [partial(parts, opcode) for opcode in ("COMPLEX_ABS", "REAL", "IMAG")]
DRAWN: list[Callable[[], st.SearchStrategy[Case]]] = [images, *PARTS, views, spectrograms, cepstra]


@pytest.mark.parametrize("strategy", DRAWN)
def test_random(strategy: Callable[[], st.SearchStrategy[Case]]) -> None:
    @given(strategy())
    @FAST
    def test(case: Case) -> None:
        check(case[0], case[1])

    test()


@pytest.mark.slow
@pytest.mark.parametrize("strategy", DRAWN)
def test_random_often(strategy: Callable[[], st.SearchStrategy[Case]]) -> None:
    @given(strategy())
    @OFTEN
    def test(case: Case) -> None:
        check(case[0], case[1])

    test()


@pytest.mark.slow
@pytest.mark.parametrize("width", [256, 512, 1024, 2048])
def test_long_signals(width: int) -> None:
    data = draw_array(width, (1, width), "float32")
    check(rfft2d((1, width), 1, width), [data], [np.zeros_like(data)], [np.ones_like(data)], host=True)


def test_on_host() -> None:
    check(rfft2d((2, 1, 64), 1, 64), host=True)
    check(rfft2d((3, 15), 4, 16), host=True)
    check(spectrogram(40, 2, window_size=30, stride=5, magnitude_squared=False), host=True)
    numbers = {"lower_frequency_limit": 20, "upper_frequency_limit": 4000, "filterbank_channel_count": 10}
    check(mfcc((1, 2, 65), 16000, **numbers, dct_coefficient_count=6), [np.ones((1, 2, 65), np.float32)], host=True)
    pairs = np.array([complex(np.inf, np.nan), complex(np.nan, -np.inf), complex(np.nan, 1), complex(3e38, 3e38)], np.complex64)
    for opcode in ("COMPLEX_ABS", "REAL", "IMAG"):
        check(one_op(opcode, [Spec((4,), "complex64")], [Spec((4,), "float32")]), [pairs[[0, 1, 3]].repeat(2)[:4]], host=True)


def test_refused() -> None:
    numbers = {"lower_frequency_limit": 20, "upper_frequency_limit": 9000, "filterbank_channel_count": 10}
    for model, code in (
        (rfft2d((1, 12), 1, 12), "E1181"),
        (rfft2d((1, 12), 3, 16), "E1181"),
        (rfft2d((1, 12), 1, 1), "E1181"),
        (one_op("RFFT2D", [Spec((12,), "float32"), const([1, 16])], [Spec((9,), "complex64")]), "E1207"),
        (custom("AudioSpectrogram", [Spec((8, 1), "float32")], [Spec((1, 0, 9), "float32")], window_size=9, stride=1), "E1122"),
        (mfcc((1, 2, 65), 16000, **numbers, dct_coefficient_count=6), "E1122"),
    ):
        with pytest.raises(AotError, match=code):
            main_of(model)
