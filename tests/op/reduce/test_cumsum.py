"""CUMSUM of numbers, and of int8 codes, which TFLM alone has."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from aot.errors import AotError
from aot.testing import Quant
from tests.op._differential import FAST, SEEDS, SLOW, Case, check, check_drawn, check_tflm, dims, main_of, quants
from tests.op._one_op import Spec, const, draw_array, one_op


@st.composite
def cumsums(draw: st.DrawFn) -> Case:
    shape = draw(dims(draw(st.integers(1, 4))))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    data = Spec(shape, draw(st.sampled_from(["int32", "int64", "float32"])))
    options = {"exclusive": draw(st.booleans()), "reverse": draw(st.booleans())}
    return one_op("CUMSUM", [data, const(axis)], [data], **options), [draw_array(draw(SEEDS), shape, data.dtype)]


def test_random() -> None:
    check_drawn(cumsums(), FAST)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(cumsums(), SLOW)


def test_on_host() -> None:
    for dtype in ("int32", "float32"):
        data = Spec((2, 5, 3), dtype)
        check(one_op("CUMSUM", [data, const(1)], [data], exclusive=True, reverse=True), host=True)
        check(one_op("CUMSUM", [data, const(1)], [data]), host=True)


def test_refused() -> None:
    with pytest.raises(AotError, match="E1126"):
        main_of(one_op("CUMSUM", [Spec((2, 3), "int32"), const(2)], [Spec((2, 3), "int32")]))


@st.composite
def running_sums(draw: st.DrawFn) -> bytes:
    shape = draw(st.sampled_from([(30,), (3, 4), (2, 20, 3), (1, 2, 3, 4)]))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    x, y = draw(quants()), draw(quants())
    y = Quant(float(np.float32(max(y.scale, x.scale / 100))), y.zero_point)
    options = {"exclusive": draw(st.booleans()), "reverse": draw(st.booleans())}
    return one_op("CUMSUM", [Spec(shape, "int8", x), const(axis)], [Spec(shape, "int8", y)], **options)


@given(running_sums(), SEEDS)
@settings(FAST, max_examples=4)
def test_codes(model: bytes, seed: int) -> None:
    check_tflm(model, seed=seed)


@pytest.mark.slow
@given(running_sums(), SEEDS)
@SLOW
def test_codes_often(model: bytes, seed: int) -> None:
    check_tflm(model, seed=seed)


def test_codes_on_host() -> None:
    x, y = Spec((2, 9), "int8", Quant(0.1, -5)), Spec((2, 9), "int8", Quant(0.3, 9))
    check_tflm(one_op("CUMSUM", [x, const(1)], [y], exclusive=True, reverse=True), host=True)


def test_codes_of_a_scale_too_small() -> None:
    x, fine = (Spec((2, 3), "int8", q) for q in (Quant(0.5, 0), Quant(1e-7, 0)))
    with pytest.raises(AotError, match="E1226"):
        main_of(one_op("CUMSUM", [x, const(0)], [fine]))
