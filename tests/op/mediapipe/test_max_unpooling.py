"""MaxUnpooling2D: elements go back to the places that a maximum pool has found."""

from __future__ import annotations

from functools import partial
from itertools import product

import hypothesis.strategies as st
import numpy as np
import pytest

from aot.errors import AotError
from aot.frontend.tflite import from_tflite
from tests.op._differential import FEW, SEEDS, SLOW, check_drawn, dims
from tests.op._one_op import Spec, draw_array
from tests.op.mediapipe._models import SAME, VALID, Array, check_by, custom

NAME = "MaxUnpooling2D"


def put_back(data: Array, indices: Array, *, window: tuple[int, int]) -> list[Array]:
    n, h, w, c = data.shape
    out = np.zeros((n, h * window[0], w * window[1], c), np.float32)
    for at in product(*map(range, data.shape)):
        place = int(indices[at])
        row, column = at[1] * window[0] + place // window[1], at[2] * window[1] + place % window[1]
        out[at[0], row, column, at[3]] = data[at]
    return [out]


@st.composite
def cases(draw: st.DrawFn) -> tuple[bytes, list[Array], partial[list[Array]]]:
    shape, window, seed = draw(dims(4, largest=4)), draw(dims(2, largest=3)), draw(SEEDS)
    result = (shape[0], shape[1] * window[0], shape[2] * window[1], shape[3])
    options = (draw(st.sampled_from([SAME, VALID])), window[1], window[0], window[1], window[0], 0)
    places = np.random.default_rng(seed).integers(0, window[0] * window[1], shape).astype(np.float32) + np.float32(0.1)
    model = custom(NAME, [Spec(shape, "float32")] * 2, [result], *options)
    return model, [draw_array(seed, shape, "float32"), places], partial(put_back, window=(window[0], window[1]))


def test_random() -> None:
    check_drawn(cases(), FEW, check_by)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(cases(), SLOW, check_by)


def test_on_host() -> None:
    shape = (1, 2, 3, 2)
    model = custom(NAME, [Spec(shape, "float32")] * 2, [(1, 4, 6, 2)], SAME, 2, 2, 2, 2, 0)
    places = np.arange(12, dtype=np.float32).reshape(shape) % 4 + np.float32(0.1)
    check_by(model, [draw_array(4, shape, "float32"), places], partial(put_back, window=(2, 2)), host=True)


def test_refused() -> None:
    with pytest.raises(AotError) as error:
        from_tflite(custom(NAME, [Spec((1, 2, 2, 1), "float32")] * 2, [(1, 4, 4, 1)], SAME, 1, 1, 2, 2, 0))
    assert [p.code for p in error.value.problems] == ["E1203"]
