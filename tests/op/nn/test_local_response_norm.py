"""LOCAL_RESPONSE_NORMALIZATION against the reference's kernel."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest

from tests.op._differential import FAST, OFTEN, SEEDS, Case, check, check_drawn
from tests.op._one_op import Spec, draw_array, one_op


@st.composite
def responses(draw: st.DrawFn) -> Case:
    shape = (draw(st.integers(1, 2)), draw(st.integers(1, 3)), 2, draw(st.integers(1, 9)))
    options = {"bias": draw(st.floats(0.125, 4, width=32)), "alpha": draw(st.floats(0, 2, width=32))}
    options["beta"] = draw(st.sampled_from([0.5, 0.75, 1.0, 2.0]))
    given = Spec(shape, "float32")
    model = one_op("LOCAL_RESPONSE_NORMALIZATION", [given], [given], radius=draw(st.integers(0, 5)), **options)
    return model, [draw_array(draw(SEEDS), shape, "float32")]


def test_random() -> None:
    check_drawn(responses(), FAST)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(responses(), OFTEN)


def test_on_host() -> None:
    data = Spec((1, 2, 2, 5), "float32")
    check(one_op("LOCAL_RESPONSE_NORMALIZATION", [data], [data], radius=2, bias=1.0, alpha=0.5, beta=0.75), host=True)
