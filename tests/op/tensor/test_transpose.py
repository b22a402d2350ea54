"""TRANSPOSE of up to four dimensions."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from aot.errors import AotError
from aot.testing import transpose_model
from tests.op._differential import FAST, check, dims, main_of
from tests.op.tensor._moving import DTYPES, moving


@given(st.permutations(range(4)), dims(4, largest=4))
@FAST
def test_random(perm: list[int], shape: tuple[int, ...]) -> None:
    check(transpose_model(input_shape=shape, perm=perm))


@pytest.mark.parametrize("dtype", DTYPES)
def test_of_other_types(dtype: str) -> None:
    check(moving("TRANSPOSE", dtype, (2, 3, 4), (4, 2, 3), constant=[2, 0, 1]), host=True)


def test_no_permutation() -> None:
    with pytest.raises(AotError):
        main_of(moving("TRANSPOSE", "int8", (2, 3), (2, 3), constant=[0, 0]))
