"""FAKE_QUANT against the reference's kernel."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest

from aot.errors import AotError
from tests.op._differential import FAST, OFTEN, SEEDS, Case, check, check_drawn, dims, main_of
from tests.op._one_op import Spec, draw_array, one_op


@st.composite
def fake_quants(draw: st.DrawFn) -> Case:
    shape, seed = draw(dims(2)), draw(SEEDS)
    low, high = -draw(st.floats(0, 100, width=32)), draw(st.floats(0.125, 100, width=32))
    options = {"min": low, "max": high, "num_bits": draw(st.sampled_from([8, 16, 4]))}
    model = one_op("FAKE_QUANT", [Spec(shape, "float32")], [Spec(shape, "float32")], narrow_range=False, **options)
    data = draw_array(seed, shape, "float32")
    data.flat[0] = draw(st.sampled_from([np.inf, -np.inf, np.nan, -0.0]))
    return model, [data]


def test_random() -> None:
    check_drawn(fake_quants(), FAST)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(fake_quants(), OFTEN)


def test_on_host() -> None:
    data = Spec((1, 2, 2, 5), "float32")
    check(one_op("FAKE_QUANT", [data], [data], min=-3.0, max=5.0, num_bits=8, narrow_range=False), host=True)


def test_refused() -> None:
    row = Spec((4,), "float32")
    for model, code in (
        (one_op("FAKE_QUANT", [row], [row], min=1.0, max=2.0, num_bits=8), "E1122"),
        (one_op("FAKE_QUANT", [row], [row], min=-1.0, max=2.0, num_bits=8, narrow_range=True), "E1203"),
    ):
        with pytest.raises(AotError, match=code):
            main_of(model)
