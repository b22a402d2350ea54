"""Convolution2DTransposeBias, whose sums begin with the bias."""

from __future__ import annotations

from functools import partial
from itertools import product

import hypothesis.strategies as st
import numpy as np
import pytest

from aot.errors import AotError
from aot.frontend.tflite import from_tflite
from aot.frontend.tflite.conv import transpose_extent
from tests.op._differential import FEW, SEEDS, SLOW, check_drawn, dims
from tests.op._one_op import Spec, draw_array
from tests.op.mediapipe._models import SAME, VALID, Array, check_by, custom

NAME = "Convolution2DTransposeBias"


def scattered(data: Array, *, weight: Array, bias: Array, strides: tuple[int, int], same: bool) -> list[Array]:
    """Each pixel adds its products to the window that it reaches."""
    axes = [transpose_extent(data.shape[i + 1], weight.shape[i + 1], strides[i], same=same) for i in (0, 1)]
    (rows, top), (columns, left) = axes
    out = np.zeros((data.shape[0], rows, columns, len(weight)), np.float32) + bias
    places = product(*map(range, (*data.shape, *weight.shape[1:3])))
    for n, y, x, i, ky, kx in places:
        row, column = y * strides[0] - top + ky, x * strides[1] - left + kx
        if 0 <= row < rows and 0 <= column < columns:
            out[n, row, column] += data[n, y, x, i] * weight[:, ky, kx, i]
    return [out]


def model_of(data: tuple[int, ...], weight: Array, bias: Array, strides: tuple[int, int], padding: int) -> bytes:
    size = [transpose_extent(data[i + 1], weight.shape[i + 1], strides[i], same=padding == SAME)[0] for i in (0, 1)]
    operands = [Spec(data, "float32"), Spec(weight.shape, "float32", data=weight), Spec(bias.shape, "float32", data=bias)]
    return custom(NAME, operands, [(data[0], *size, len(weight))], padding, strides[1], strides[0])


@st.composite
def cases(draw: st.DrawFn) -> tuple[bytes, list[Array], partial[list[Array]]]:
    seed, strides = draw(SEEDS), draw(dims(2, largest=3))
    shape, kernel = draw(dims(4, largest=4)), draw(dims(2, largest=4))
    channels, padding = draw(st.integers(1, 3)), draw(st.sampled_from([SAME, VALID]))
    weight = draw_array(seed, (channels, *kernel, shape[3]), "float32")
    bias, data = draw_array(seed + 1, (channels,), "float32"), draw_array(seed + 2, shape, "float32")
    oracle = partial(scattered, weight=weight, bias=bias, strides=(strides[0], strides[1]), same=padding == SAME)
    return model_of(shape, weight, bias, (strides[0], strides[1]), padding), [data], oracle


def test_random() -> None:
    check_drawn(cases(), FEW, check_by)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(cases(), SLOW, check_by)


def test_on_host() -> None:
    weight, bias, data = (draw_array(i, shape, "float32") for i, shape in enumerate([(2, 3, 2, 5), (2,), (1, 3, 4, 5)]))
    oracle = partial(scattered, weight=weight, bias=bias, strides=(2, 2), same=True)
    check_by(model_of(data.shape, weight, bias, (2, 2), SAME), [data], oracle, host=True)


@pytest.mark.parametrize(("options", "code"), [((SAME, 2), "E1116"), ((0, 2, 2), "E1122"), ((SAME, 0, 2), "E1122")])
def test_refused(options: tuple[int, ...], code: str) -> None:
    weight, bias = np.ones((1, 2, 2, 1), np.float32), np.ones(1, np.float32)
    operands = [Spec((1, 2, 2, 1), "float32"), Spec(weight.shape, "float32", data=weight), Spec((1,), "float32", data=bias)]
    with pytest.raises(AotError) as error:
        from_tflite(custom(NAME, operands, [(1, 4, 4, 1)], *options))
    assert [p.code for p in error.value.problems] == [code]
