"""CONCATENATION; of legacy uint8 with scales of its own."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from aot.errors import UnsupportedError
from aot.testing import ModelBuilder, concat_model
from tests.op._differential import FAST, check, dims, main_of, scales


@given(st.integers(-4, 3), st.lists(st.integers(1, 3), min_size=1, max_size=4), dims(4, largest=3))
@FAST
def test_random(axis: int, extents: list[int], shape: tuple[int, ...]) -> None:
    shapes = [tuple(e if i == axis % 4 else n for i, n in enumerate(shape)) for e in extents]
    check(concat_model(shapes=shapes, axis=axis))


def test_on_host() -> None:
    check(concat_model(shapes=((1, 2, 2), (1, 3, 2), (1, 1, 2)), axis=1), host=True)


def test_does_not_rescale() -> None:
    b = ModelBuilder()
    x = b.tensor("x", (1, 2), scale=0.5, zero_point=0)
    z = b.tensor("z", (1, 2), scale=0.25, zero_point=0)
    y = b.tensor("y", (1, 4), scale=0.5, zero_point=0)
    b.op("CONCATENATION", [x, z], [y], axis=1)
    with pytest.raises(UnsupportedError, match="E1227"):
        main_of(b.build([x, z], [y]))


@given(scales(), st.integers(0, 255), scales(), st.integers(0, 255))
@FAST
def test_legacy_uint8_rescales(scale: float, zero_point: int, out_scale: float, out_zero_point: int) -> None:
    b = ModelBuilder()
    x = b.tensor("x", (1, 256), "uint8", scale=scale, zero_point=zero_point)
    z = b.tensor("z", (1, 2), "uint8", scale=out_scale, zero_point=out_zero_point)
    y = b.tensor("y", (1, 258), "uint8", scale=out_scale, zero_point=out_zero_point)
    b.op("CONCATENATION", [x, z], [y], axis=1)
    codes = np.arange(256, dtype=np.uint8).reshape(1, 256)
    check(b.build([x, z], [y]), [codes, codes[:, :2]])
