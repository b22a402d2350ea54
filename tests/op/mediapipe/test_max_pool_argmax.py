"""MaxPoolingWithArgmax2D: the maxima and where in their windows they are."""

from __future__ import annotations

from functools import partial
from itertools import product

import hypothesis.strategies as st
import numpy as np
import pytest

from aot.errors import AotError
from aot.frontend.tflite import from_tflite
from aot.frontend.tflite.layer import fit_axis
from tests.op._differential import FEW, SEEDS, SLOW, check_drawn, dims
from tests.op._one_op import Spec, draw_array
from tests.op.mediapipe._models import SAME, VALID, Array, check_by, custom

NAME = "MaxPoolingWithArgmax2D"
CLAMPS = {0: (-np.inf, np.inf), 1: (0, np.inf), 2: (-1, 1), 3: (0, 6)}


def fitted(image: tuple[int, ...], window: tuple[int, ...], strides: tuple[int, ...], padding: int) -> list[tuple[int, int, int]]:
    scheme = "SAME" if padding == SAME else "VALID"
    return [fit_axis(scheme, n, k, stride=s) for n, k, s in zip(image, window, strides, strict=True)]


def pooled(data: Array, *, window: tuple[int, int], strides: tuple[int, int], padding: int, activation: int) -> list[Array]:
    (rows, top, _), (columns, left, _) = fitted(data.shape[1:3], window, strides, padding)
    shape = (data.shape[0], rows, columns, data.shape[3])
    maxima, places = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    for n, y, x, c in product(*map(range, shape)):
        best, where = np.finfo(np.float32).min, 0
        for ky, kx in product(*map(range, window)):
            row, column = y * strides[0] - top + ky, x * strides[1] - left + kx
            if 0 <= row < data.shape[1] and 0 <= column < data.shape[2] and data[n, row, column, c] > best:
                best, where = data[n, row, column, c], ky * window[1] + kx
        low, high = CLAMPS[activation]
        maxima[n, y, x, c] = min(max(best, low), high)
        places[n, y, x, c] = np.float32(where) + np.float32(0.1)
    return [maxima, places]


@st.composite
def cases(draw: st.DrawFn) -> tuple[bytes, list[Array], partial[list[Array]]]:
    shape, window, strides = draw(dims(4, largest=6)), draw(dims(2, largest=3)), draw(dims(2, largest=3))
    fits = all(k <= n for k, n in zip(window, shape[1:3], strict=True))
    padding, activation = draw(st.sampled_from([SAME, VALID] if fits else [SAME])), draw(st.sampled_from([0, 1, 2, 3]))
    size = [n for n, _, _ in fitted(shape[1:3], window, strides, padding)]
    options = (padding, strides[1], strides[0], window[1], window[0], activation)
    model = custom(NAME, [Spec(shape, "float32")], [(shape[0], *size, shape[3])] * 2, *options)
    data = np.round(draw_array(draw(SEEDS), shape, "float32"))  # with equal elements
    oracle = partial(
        pooled, window=(window[0], window[1]), strides=(strides[0], strides[1]), padding=padding, activation=activation
    )
    return model, [data + np.float32(0)], oracle


def test_random() -> None:
    check_drawn(cases(), FEW, check_by)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(cases(), SLOW, check_by)


def test_on_host() -> None:
    model = custom(NAME, [Spec((1, 5, 5, 2), "float32")], [(1, 3, 3, 2)] * 2, SAME, 2, 2, 3, 2, 0)
    data = draw_array(4, (1, 5, 5, 2), "float32")
    check_by(model, [data], partial(pooled, window=(2, 3), strides=(2, 2), padding=SAME, activation=0), host=True)


def test_refused() -> None:
    with pytest.raises(AotError) as error:
        from_tflite(custom(NAME, [Spec((1, 4, 4, 1), "float32")], [(1, 2, 2, 1)] * 2, SAME, 2, 2, 2, 2, 4))
    assert [p.code for p in error.value.problems] == ["E1203"]
