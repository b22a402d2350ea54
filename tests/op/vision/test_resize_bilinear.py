"""RESIZE_BILINEAR of every type; the lines of positions and weights."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from aot.errors import AotError
from aot.frontend.tflite.vision import integer_line
from aot.testing import Quant
from tests.op._differential import FAST, SEEDS, SLOW, check, dims, main_of
from tests.op._one_op import Spec, const, moving, one_op

TYPES = ["int8", "uint8", "int16", "float32"]


def resize(dtype: str, image: tuple[int, ...], size: tuple[int, int], *, align: bool = False, half: bool = False) -> bytes:
    result = (image[0], *size, image[3])
    return moving(
        "RESIZE_BILINEAR", dtype, [image, result], [const(size)], align_corners=align, half_pixel_centers=half, version=3
    )


@st.composite
def resizes(draw: st.DrawFn, largest: int) -> bytes:
    n, c = draw(dims(2, largest=2))
    h, w = draw(dims(2, largest=largest // 2))
    align, half = draw(st.sampled_from([(False, False), (True, False), (False, True)]))
    return resize(draw(st.sampled_from(TYPES)), (n, h, w, c), draw(dims(2, largest=largest)), align=align, half=half)


@given(resizes(12), SEEDS)
@FAST
def test_random(model: bytes, seed: int) -> None:
    check(model, seed=seed)


@pytest.mark.slow
@given(resizes(40), SEEDS)
@SLOW
def test_random_often(model: bytes, seed: int) -> None:
    check(model, seed=seed)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("align", "half"), [(False, False), (True, False), (False, True)])
def test_on_host(dtype: str, align: bool, half: bool) -> None:
    check(resize(dtype, (1, 3, 4, 2), (7, 6), align=align, half=half), host=True)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("name", ["RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"])
def test_codes_stay_whatever_the_result_s_scale(name: str, dtype: str) -> None:
    """Older converters write another one, and the reference does not look at it."""
    data, result = Spec((1, 3, 3, 2), dtype, Quant(0.5, 3)), Spec((1, 5, 4, 2), dtype, Quant(0.25, 7))
    check(one_op(name, [data, const([5, 4])], [result], version=3))


def test_positions_stay_inside() -> None:
    """The reference's rounded scale leads behind the last row here."""
    line = integer_line(1, 100, align_corners=False, half_pixel_centers=False)
    assert max(line.lower) == max(line.upper) == 0


def test_refused() -> None:
    with pytest.raises(AotError, match="E1131"):
        main_of(resize("int8", (1, 2, 2, 1), (4, 4), align=True, half=True))
