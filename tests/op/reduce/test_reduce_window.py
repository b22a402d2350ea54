"""REDUCE_WINDOW against the reference's kernel."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest

from tests.op._differential import FAST, OFTEN, SEEDS, Case, check_drawn, dims
from tests.op._one_op import Spec, const, draw_array, one_op


@st.composite
def reduced_windows(draw: st.DrawFn) -> Case:
    rank, seed = draw(st.integers(1, 4)), draw(SEEDS)
    window, strides, dilations = draw(dims(rank, largest=3)), draw(dims(rank, largest=2)), draw(dims(rank, largest=2))
    spans = [(w - 1) * d + 1 for w, d in zip(window, dilations, strict=True)]
    shape = tuple(s + draw(st.integers(0, 2)) for s in spans)
    result = tuple((n - s) // t + 1 for n, s, t in zip(shape, spans, strides, strict=True))
    kind, dtype = (
        draw(st.integers(1, 4)),
        draw(st.sampled_from(["int32", "int64", "float32"])),
    )
    numbers = [const(n, "int64") for n in (window, strides, dilations)]
    first = Spec((), dtype)
    model = one_op("REDUCE_WINDOW", [Spec(shape, dtype), first, *numbers], [Spec(result, dtype)], reduce_function=kind)
    data = draw_array(seed, shape, dtype)
    if dtype != "float32":  # sums and products of the reference must not overflow
        data = np.asarray(data % 3, dtype)
    return model, [data, np.asarray(draw(st.integers(-3, 3)), dtype)]


def test_random() -> None:
    check_drawn(reduced_windows(), FAST)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(reduced_windows(), OFTEN)
