"""ADD_N and CUMSUM of int8 codes, SQUARED_DIFFERENCE of int16 codes: TFLM alone has them."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from aot.errors import AotError
from aot.testing import Quant
from tests.op._differential import FAST, SEEDS, SLOW, check_tflm, dims, main_of, quants, scales
from tests.op._one_op import Spec, const, one_op


@st.composite
def sums(draw: st.DrawFn) -> bytes:
    """More than 15 operands can leave 32 bits."""
    shape = draw(dims(draw(st.integers(1, 3))))
    x, y = draw(quants()), draw(quants())
    y = Quant(float(np.float32(max(y.scale, x.scale / 100))), y.zero_point)
    return one_op("ADD_N", [Spec(shape, "int8", x)] * draw(st.sampled_from([2, 3, 5, 20])), [Spec(shape, "int8", y)])


@st.composite
def running_sums(draw: st.DrawFn) -> bytes:
    shape = draw(st.sampled_from([(30,), (3, 4), (2, 20, 3), (1, 2, 3, 4)]))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    x, y = draw(quants()), draw(quants())
    y = Quant(float(np.float32(max(y.scale, x.scale / 100))), y.zero_point)
    options = {"exclusive": draw(st.booleans()), "reverse": draw(st.booleans())}
    return one_op("CUMSUM", [Spec(shape, "int8", x), const(axis)], [Spec(shape, "int8", y)], **options)


@st.composite
def squares(draw: st.DrawFn) -> bytes:
    """Of results with a scale that is too small, too, whose 32 bits wrap."""
    shapes: Any = draw(st.sampled_from([((40,), (40,)), ((4, 1, 3), (5, 1)), ((2, 3), (1, 3))]))
    a, b, y = (Quant(float(np.float32(draw(scales()) / 256)), 0) for _ in range(3))
    inputs = [Spec(s, "int16", q) for s, q in zip(shapes, (a, b), strict=True)]
    return one_op("SQUARED_DIFFERENCE", inputs, [Spec(tuple(np.broadcast_shapes(*shapes)), "int16", y)])


@given(sums(), running_sums(), squares(), SEEDS)
@settings(FAST, max_examples=4)
def test_random(total: bytes, running: bytes, square: bytes, seed: int) -> None:
    for model in (total, running, square):
        check_tflm(model, seed=seed)


@pytest.mark.slow
@given(sums(), running_sums(), squares(), SEEDS)
@SLOW
def test_random_often(total: bytes, running: bytes, square: bytes, seed: int) -> None:
    for model in (total, running, square):
        check_tflm(model, seed=seed)


def test_on_host() -> None:
    x, y = Spec((2, 9), "int8", Quant(0.1, -5)), Spec((2, 9), "int8", Quant(0.3, 9))
    check_tflm(one_op("ADD_N", [x, x, x], [y]), host=True)
    check_tflm(one_op("CUMSUM", [x, const(1)], [y], exclusive=True, reverse=True), host=True)


def test_refused() -> None:
    x, other, fine = (Spec((2, 3), "int8", q) for q in (Quant(0.5, 0), Quant(0.25, 0), Quant(1e-7, 0)))
    for model in (
        one_op("ADD_N", [x, other], [x]),
        one_op("ADD_N", [x, x], [fine]),
        one_op("CUMSUM", [x, const(0)], [fine]),
        one_op("SQUARED_DIFFERENCE", [Spec((4,), "int16", Quant(0.5, 1))] * 2, [Spec((4,), "int16", Quant(0.5, 0))]),
    ):
        with pytest.raises(AotError, match=r"E122[467]"):
            main_of(model)
