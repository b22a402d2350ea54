"""RFFT2D of all sizes: exact to LiteRT."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest

from aot.errors import AotError
from tests.op._differential import FAST, OFTEN, SEEDS, Case, check, check_drawn, main_of
from tests.op._one_op import Spec, const, draw_array, one_op

ROWS = st.sampled_from([(), (1,), (3,), (2, 2)])


def rfft2d(shape: tuple[int, ...], height: int, width: int) -> bytes:
    result = Spec((*shape[:-2], height, width // 2 + 1), "complex64")
    return one_op("RFFT2D", [Spec(shape, "float32"), const([height, width])], [result])


@st.composite
def images(draw: st.DrawFn) -> Case:
    """All sizes; whole numbers as well, of which many bins are exact zeros."""
    height, width = draw(st.sampled_from([1, 1, 1, 2, 4, 8])), 1 << draw(st.integers(1, 7))
    shape = (*draw(ROWS), max(1, height - draw(st.integers(0, 1))), max(1, width + draw(st.integers(-2, 1))))
    data = draw_array(draw(SEEDS), shape, "float32")
    return rfft2d(shape, height, width), [np.round(data) if draw(st.booleans()) else data]


@pytest.mark.slow
@pytest.mark.parametrize("width", [256, 512, 1024, 2048])
def test_long_signals(width: int) -> None:
    data = draw_array(width, (1, width), "float32")
    check(rfft2d((1, width), 1, width), [data], [np.zeros_like(data)], [np.ones_like(data)], host=True)


def test_random() -> None:
    check_drawn(images(), FAST)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(images(), OFTEN)


def test_on_host() -> None:
    check(rfft2d((2, 1, 64), 1, 64), host=True)
    check(rfft2d((3, 15), 4, 16), host=True)


def test_refused() -> None:
    for model, code in (
        (rfft2d((1, 12), 1, 12), "E1181"),
        (rfft2d((1, 12), 3, 16), "E1181"),
        (rfft2d((1, 12), 1, 1), "E1181"),
        (one_op("RFFT2D", [Spec((12,), "float32"), const([1, 16])], [Spec((9,), "complex64")]), "E1207"),
    ):
        with pytest.raises(AotError, match=code):
            main_of(model)
