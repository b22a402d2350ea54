"""Mfcc: exact to LiteRT."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest

from aot.errors import AotError
from tests.op._differential import FAST, OFTEN, SEEDS, Case, check, check_drawn, main_of
from tests.op._one_op import Spec, const, draw_array
from tests.op.signal._models import custom


def mfcc(shape: tuple[int, int, int], rate: int, **options: int) -> bytes:
    result = Spec((*shape[:2], options["dct_coefficient_count"]), "float32")
    return custom("Mfcc", [Spec(shape, "float32"), const([rate])], [result], **options)


@st.composite
def cepstra(draw: st.DrawFn) -> Case:
    bins, channels = draw(st.sampled_from([17, 65, 129, 257])), draw(st.integers(1, 40))
    shape = (draw(st.integers(1, 2)), draw(st.integers(1, 3)), bins)
    lower = draw(st.integers(0, 300))
    options = {"lower_frequency_limit": lower, "upper_frequency_limit": draw(st.integers(lower + 1, 4000))}
    model = mfcc(shape, draw(st.sampled_from([8000, 16000, 44100])), **options, filterbank_channel_count=channels,
                 dct_coefficient_count=draw(st.integers(1, channels)))  # fmt: skip
    return model, [np.abs(draw_array(draw(SEEDS), shape, "float32")) * np.float32(draw(st.sampled_from([1.0, 1e-6, 0.0])))]


def test_random() -> None:
    check_drawn(cepstra(), FAST)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(cepstra(), OFTEN)


NUMBERS = {"lower_frequency_limit": 20, "filterbank_channel_count": 10, "dct_coefficient_count": 6}


def test_on_host() -> None:
    check(mfcc((1, 2, 65), 16000, **NUMBERS, upper_frequency_limit=4000), [np.ones((1, 2, 65), np.float32)], host=True)


def test_refused() -> None:
    with pytest.raises(AotError, match="E1122"):
        main_of(mfcc((1, 2, 65), 16000, **NUMBERS, upper_frequency_limit=9000))
