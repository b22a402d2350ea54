"""ADD_N of int8 codes, which TFLM alone has."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from aot.errors import AotError
from aot.testing import Quant
from tests.op._differential import FAST, SEEDS, SLOW, check_tflm, dims, main_of, quants
from tests.op._one_op import Spec, one_op


@st.composite
def sums(draw: st.DrawFn) -> bytes:
    """More than 15 operands can leave 32 bits."""
    shape = draw(dims(draw(st.integers(1, 3))))
    x, y = draw(quants()), draw(quants())
    y = Quant(float(np.float32(max(y.scale, x.scale / 100))), y.zero_point)
    return one_op("ADD_N", [Spec(shape, "int8", x)] * draw(st.sampled_from([2, 3, 5, 20])), [Spec(shape, "int8", y)])


@given(sums(), SEEDS)
@settings(FAST, max_examples=4)
def test_random(model: bytes, seed: int) -> None:
    check_tflm(model, seed=seed)


@pytest.mark.slow
@given(sums(), SEEDS)
@SLOW
def test_random_often(model: bytes, seed: int) -> None:
    check_tflm(model, seed=seed)


def test_on_host() -> None:
    x, y = Spec((2, 9), "int8", Quant(0.1, -5)), Spec((2, 9), "int8", Quant(0.3, 9))
    check_tflm(one_op("ADD_N", [x, x, x], [y]), host=True)


def test_refused() -> None:
    x, other, fine = (Spec((2, 3), "int8", q) for q in (Quant(0.5, 0), Quant(0.25, 0), Quant(1e-7, 0)))
    for model in (one_op("ADD_N", [x, other], [x]), one_op("ADD_N", [x, x], [fine])):
        with pytest.raises(AotError, match=r"E122[67]"):
            main_of(model)
