"""PAD and PADV2."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from aot.errors import AotError
from aot.testing import Quant, pad_model
from tests.op._differential import FAST, check, dims, main_of
from tests.op._one_op import Spec, const, one_op
from tests.op.tensor._moving import DTYPES, moving

PADS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=4, max_size=4)


@given(dims(4, largest=3), PADS, st.integers(-128, 127), st.booleans())
@FAST
def test_random(shape: tuple[int, ...], paddings: Any, zero_point: int, wide: bool) -> None:
    check(pad_model(input_shape=shape, paddings=paddings, x=Quant(0.5, zero_point), wide_paddings=wide))


@pytest.mark.parametrize("dtype", DTYPES)
def test_of_other_types(dtype: str) -> None:
    pads = [[0, 0], [1, 2], [0, 1]]
    check(moving("PAD", dtype, (1, 3, 2), (1, 6, 3), constant=pads), host=True)
    check(moving("PADV2", dtype, (1, 3, 2), (1, 6, 3), constant=pads, value=3), host=dtype == "float32")


def test_codes_stay_whatever_the_result_s_scale() -> None:
    """The border is the result's zero point."""
    data, result = Spec((3, 3), "int8", Quant(0.5, 3)), Spec((4, 5), "int8", Quant(0.25, 7))
    check(one_op("PAD", [data, const([[1, 0], [0, 2]])], [result], version=2))


def test_with_a_large_number() -> None:
    """Elements are numbered while a copy is planned; a fill must not be taken for one of them."""
    for value in (np.iinfo(np.int64).max, (1 << 40) + 1, 1 << 39, -(1 << 39) - 1):
        check(moving("PADV2", "int64", (1, 2), (1, 4), constant=[[0, 0], [1, 1]], value=value))


def test_negative() -> None:
    with pytest.raises(AotError, match="E1127"):
        main_of(moving("PAD", "int8", (1, 3, 2), (1, 3, 2), constant=[[0, 0], [-1, 1], [0, 0]]))
