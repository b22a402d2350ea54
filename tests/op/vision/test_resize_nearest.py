"""RESIZE_NEAREST_NEIGHBOR, and which neighbour is the nearest."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from aot.frontend.tflite.vision import nearest_neighbors
from aot.testing import resize_nearest_model
from tests.op._differential import FAST, SLOW, check, dims


@given(dims(2, largest=9), dims(2, largest=19), st.booleans(), st.booleans())
@FAST
def test_random(image: tuple[int, int], size: tuple[int, int], align: bool, half: bool) -> None:
    check(resize_nearest_model(input_shape=(1, *image, 2), size=size, align_corners=align, half_pixel_centers=half))


@pytest.mark.slow
@given(dims(2, largest=40), dims(2, largest=60), st.booleans(), st.booleans())
@SLOW
def test_random_often(image: tuple[int, int], size: tuple[int, int], align: bool, half: bool) -> None:
    check(resize_nearest_model(input_shape=(1, *image, 1), size=size, align_corners=align, half_pixel_centers=half))


@pytest.mark.parametrize(("size", "align"), [((8, 6), False), ((7, 9), False), ((7, 9), True)])
def test_on_host(size: tuple[int, int], align: bool) -> None:
    """By a factor, by a quotient, by a table."""
    check(resize_nearest_model(size=size, align_corners=align), host=True)


def test_neighbors_of_a_doubled_axis() -> None:
    assert nearest_neighbors(3, 6, align_corners=False, half_pixel_centers=False) == (0, 0, 1, 1, 2, 2)
