"""REDUCE_WINDOW and STABLEHLO_REDUCE_WINDOW against the reference's kernel."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest

from aot.errors import AotError
from tests.op._differential import FAST, OFTEN, SEEDS, Case, check_drawn, dims, main_of
from tests.op._one_op import Spec, const, draw_array, one_op
from tests.op.gather._models import numbers, reduce_window

REDUCED = ["bool", "int8", "uint8", "int16", "int32", "int64", "float32"]
BODIES = ["ADD", "STABLEHLO_ADD", "MUL", "STABLEHLO_MULTIPLY", "MAXIMUM", "STABLEHLO_MAXIMUM", "MINIMUM", "STABLEHLO_MINIMUM"]
BODIES += ["LOGICAL_AND", "LOGICAL_OR"]


@st.composite
def reduced_windows(draw: st.DrawFn) -> Case:
    rank, seed = draw(st.integers(1, 4)), draw(SEEDS)
    window, strides, dilations = draw(dims(rank, largest=3)), draw(dims(rank, largest=2)), draw(dims(rank, largest=2))
    spans = [(w - 1) * d + 1 for w, d in zip(window, dilations, strict=True)]
    shape = tuple(s + draw(st.integers(0, 2)) for s in spans)
    result = tuple((n - s) // t + 1 for n, s, t in zip(shape, spans, strides, strict=True))
    dtype = draw(st.sampled_from(REDUCED))
    kind = draw(st.integers(2 if dtype == "bool" else 1, 6))
    numbers = [const(n, "int64") for n in (window, strides, dilations)]
    first = Spec((), dtype)
    model = one_op("REDUCE_WINDOW", [Spec(shape, dtype), first, *numbers], [Spec(result, dtype)], reduce_function=kind)
    data = draw_array(seed, shape, dtype)
    if dtype in ("int32", "int64"):  # sums and products of the reference must not overflow
        data = np.asarray(data % 3, dtype)
    return model, [data, np.asarray(draw(st.integers(0 if dtype == "uint8" else -3, 3)), dtype)]


@st.composite
def windows(draw: st.DrawFn) -> Case:
    rank, seed, body, dtype = draw(st.integers(1, 4)), draw(SEEDS), draw(st.sampled_from(BODIES)), draw(st.sampled_from(REDUCED))
    if dtype == "bool" and body in ("ADD", "STABLEHLO_ADD"):
        body = "LOGICAL_OR"
    shape, base = draw(dims(rank, largest=4)), draw(dims(rank, largest=3))
    whole = [(n - 1) * d + 1 for n, d in zip(shape, base, strict=True)]
    low = [draw(st.integers(-((n - 1) // 2), 2)) for n in whole]
    high = [draw(st.integers(-((n - 1) // 2), 2)) for n in whole]
    padded = [n + a + z for n, a, z in zip(whole, low, high, strict=True)]
    window = [draw(st.integers(1, min(n, 3))) for n in padded]
    dilations = [draw(st.integers(1, max(1, (n - 1) // (w - 1)))) if w > 1 else 1 for n, w in zip(padded, window, strict=True)]
    strides = draw(dims(rank, largest=2))
    spans = [(w - 1) * d + 1 for w, d in zip(window, dilations, strict=True)]
    result = tuple((n - s) // t + 1 for n, s, t in zip(padded, spans, strides, strict=True))
    attributes = {
        "window_dimensions": window,
        "window_strides": strides,
        "base_dilations": base,
        "window_dilations": dilations,
        "padding": [n for pair in zip(low, high, strict=True) for n in pair],
    }
    first = np.asarray(draw(st.integers(0, 2)), dtype)
    dims_ = {k: numbers(v) for k, v in attributes.items()}
    model = reduce_window(Spec(shape, dtype), Spec((), dtype, None, first), Spec(result, dtype), body, **dims_)
    data = draw_array(seed, shape, dtype)
    if dtype in ("int32", "int64"):  # sums and products of the reference must not overflow
        data = np.asarray(data % 3, dtype)
    return model, [data]


DRAWN = {"REDUCE_WINDOW": reduced_windows(), "STABLEHLO_REDUCE_WINDOW": windows()}


@pytest.mark.parametrize("name", DRAWN)
def test_random(name: str) -> None:
    check_drawn(DRAWN[name], FAST)


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWN)
def test_random_often(name: str) -> None:
    check_drawn(DRAWN[name], OFTEN)


def test_refused() -> None:
    dims_ = {k: numbers([1]) for k in ("window_dimensions", "window_strides", "base_dilations", "window_dilations")}
    dims_["padding"] = numbers([0, 0])
    row, one = Spec((4,), "float32"), Spec((), "float32")
    truth = Spec((4,), "bool")
    for model, code in (
        (reduce_window(row, one, row, "SUB", **dims_), "E1203"),
        (reduce_window(truth, Spec((), "bool"), truth, "ADD", **dims_), "E1203"),
        (reduce_window(row, one, Spec((2,), "float32"), "ADD", **{**dims_, "padding": numbers([-3, -3])}), "E1207"),
        (reduce_window(row, one, Spec((5,), "float32"), "ADD", **{**dims_, "padding": numbers([1, 0])}), "E1204"),
    ):
        with pytest.raises(AotError, match=code):
            main_of(model)
