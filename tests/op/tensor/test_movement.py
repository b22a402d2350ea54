"""Operators that only move data: PAD, PADV2, RESHAPE, EXPAND_DIMS, SQUEEZE, TRANSPOSE, CONCATENATION, RESIZE_NEAREST_NEIGHBOR."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from aot.errors import AotError, UnsupportedError
from aot.op.vision.resize_nearest import nearest_neighbors
from aot.testing import (
    ModelBuilder,
    Quant,
    concat_model,
    pad_model,
    reshape_model,
    resize_nearest_model,
    transpose_model,
)
from tests.op._differential import FAST, SLOW, check, dims, main_of, scales

DTYPES = ["int8", "uint8", "int32", "float32"]


def moving(
    name: str, dtype: str, shape: Sequence[int], result: Sequence[int], *, constant: Any = None, value: Any = None, **options: Any
) -> bytes:
    """One operator on `dtype` with a constant second operand, and a third one of the data's type."""
    quant: dict[str, Any] = {"scale": 0.5, "zero_point": 7} if dtype in ("int8", "uint8") else {}
    b = ModelBuilder()
    x, y = b.tensor("x", shape, dtype, **quant), b.tensor("y", result, dtype, **quant)
    inputs = [x]
    if constant is not None:
        array = np.asarray(constant, np.int32)
        inputs.append(b.tensor("c", array.shape, "int32", data=array))
    if value is not None:
        inputs.append(b.tensor("v", (1,), dtype, data=np.array([value], dtype), **quant))
    b.op(name, inputs, [y], version=2 if name in ("PADV2", "PAD", "TRANSPOSE") else 1, **options)
    return b.build([x], [y])


PADS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=4, max_size=4)


@given(dims(4, largest=3), PADS, st.integers(-128, 127), st.booleans())
@FAST
def test_pad(shape: tuple[int, ...], paddings: Any, zero_point: int, wide: bool) -> None:
    check(pad_model(input_shape=shape, paddings=paddings, x=Quant(0.5, zero_point), wide_paddings=wide))


@pytest.mark.parametrize("dtype", DTYPES)
def test_pad_of_other_types(dtype: str) -> None:
    pads = [[0, 0], [1, 2], [0, 1]]
    check(moving("PAD", dtype, (1, 3, 2), (1, 6, 3), constant=pads), host=True)
    check(moving("PADV2", dtype, (1, 3, 2), (1, 6, 3), constant=pads, value=3), host=dtype == "float32")


def test_padding_with_a_large_number() -> None:
    """Elements are numbered while a copy is planned; a fill must not be taken for one of them."""
    for value in (np.iinfo(np.int64).max, (1 << 40) + 1, 1 << 39, -(1 << 39) - 1):
        check(moving("PADV2", "int64", (1, 2), (1, 4), constant=[[0, 0], [1, 1]], value=value))


def test_negative_padding() -> None:
    with pytest.raises(AotError, match="E1127"):
        main_of(moving("PAD", "int8", (1, 3, 2), (1, 3, 2), constant=[[0, 0], [-1, 1], [0, 0]]))


@pytest.mark.parametrize("shape", [(1, 60), (60,), (-1, 6), (3, 4, 5, 1, 1)])
@pytest.mark.parametrize("tensor", [True, False])
def test_reshape(shape: tuple[int, ...], tensor: bool) -> None:
    check(reshape_model(shape=shape, shape_tensor=tensor))


def test_reshape_to_another_size() -> None:
    with pytest.raises(AotError):
        main_of(moving("RESHAPE", "int8", (1, 6), (1, 7), constant=[1, 7]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_views_of_other_types(dtype: str) -> None:
    check(moving("RESHAPE", dtype, (1, 6), (2, 3), constant=[2, 3]))
    check(moving("EXPAND_DIMS", dtype, (2, 3), (2, 1, 3), constant=1))
    check(moving("SQUEEZE", dtype, (2, 1, 3, 1), (2, 3), squeeze_dims=[1, 3]))


@given(st.permutations(range(4)), dims(4, largest=4))
@FAST
def test_transpose(perm: list[int], shape: tuple[int, ...]) -> None:
    check(transpose_model(input_shape=shape, perm=perm))


@pytest.mark.parametrize("dtype", DTYPES)
def test_transpose_of_other_types(dtype: str) -> None:
    check(moving("TRANSPOSE", dtype, (2, 3, 4), (4, 2, 3), constant=[2, 0, 1]), host=True)


def test_no_permutation() -> None:
    with pytest.raises(AotError):
        main_of(moving("TRANSPOSE", "int8", (2, 3), (2, 3), constant=[0, 0]))


@given(st.integers(-4, 3), st.lists(st.integers(1, 3), min_size=1, max_size=4), dims(4, largest=3))
@FAST
def test_concatenation(axis: int, extents: list[int], shape: tuple[int, ...]) -> None:
    shapes = [tuple(e if i == axis % 4 else n for i, n in enumerate(shape)) for e in extents]
    check(concat_model(shapes=shapes, axis=axis))


def test_concatenation_on_host() -> None:
    check(concat_model(shapes=((1, 2, 2), (1, 3, 2), (1, 1, 2)), axis=1), host=True)


def test_concatenation_does_not_rescale() -> None:
    b = ModelBuilder()
    x = b.tensor("x", (1, 2), scale=0.5, zero_point=0)
    z = b.tensor("z", (1, 2), scale=0.25, zero_point=0)
    y = b.tensor("y", (1, 4), scale=0.5, zero_point=0)
    b.op("CONCATENATION", [x, z], [y], axis=1)
    with pytest.raises(UnsupportedError, match="E1227"):
        main_of(b.build([x, z], [y]))


@given(scales(), st.integers(0, 255), scales(), st.integers(0, 255))
@FAST
def test_concatenation_of_legacy_uint8_rescales(scale: float, zero_point: int, out_scale: float, out_zero_point: int) -> None:
    b = ModelBuilder()
    x = b.tensor("x", (1, 256), "uint8", scale=scale, zero_point=zero_point)
    z = b.tensor("z", (1, 2), "uint8", scale=out_scale, zero_point=out_zero_point)
    y = b.tensor("y", (1, 258), "uint8", scale=out_scale, zero_point=out_zero_point)
    b.op("CONCATENATION", [x, z], [y], axis=1)
    codes = np.arange(256, dtype=np.uint8).reshape(1, 256)
    check(b.build([x, z], [y]), [codes, codes[:, :2]])


@given(dims(2, largest=9), dims(2, largest=19), st.booleans(), st.booleans())
@FAST
def test_resize(image: tuple[int, int], size: tuple[int, int], align: bool, half: bool) -> None:
    check(resize_nearest_model(input_shape=(1, *image, 2), size=size, align_corners=align, half_pixel_centers=half))


@pytest.mark.slow
@given(dims(2, largest=40), dims(2, largest=60), st.booleans(), st.booleans())
@SLOW
def test_resize_often(image: tuple[int, int], size: tuple[int, int], align: bool, half: bool) -> None:
    check(resize_nearest_model(input_shape=(1, *image, 1), size=size, align_corners=align, half_pixel_centers=half))


@pytest.mark.parametrize(("size", "align"), [((8, 6), False), ((7, 9), False), ((7, 9), True)])
def test_resize_on_host(size: tuple[int, int], align: bool) -> None:
    """By a factor, by a quotient, by a table."""
    check(resize_nearest_model(size=size, align_corners=align), host=True)


def test_neighbors_of_a_doubled_axis() -> None:
    assert nearest_neighbors(3, 6, align_corners=False, half_pixel_centers=False) == (0, 0, 1, 1, 2, 2)
