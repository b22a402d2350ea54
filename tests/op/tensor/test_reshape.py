"""RESHAPE, EXPAND_DIMS, SQUEEZE."""

from __future__ import annotations

import pytest

from aot.errors import AotError
from aot.testing import reshape_model
from tests.op._differential import check, main_of
from tests.op.tensor._moving import DTYPES, moving


@pytest.mark.parametrize("shape", [(1, 60), (60,), (-1, 6), (3, 4, 5, 1, 1)])
@pytest.mark.parametrize("tensor", [True, False])
def test_shapes(shape: tuple[int, ...], tensor: bool) -> None:
    check(reshape_model(shape=shape, shape_tensor=tensor))


def test_to_another_size() -> None:
    with pytest.raises(AotError):
        main_of(moving("RESHAPE", "int8", (1, 6), (1, 7), constant=[1, 7]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_views_of_other_types(dtype: str) -> None:
    check(moving("RESHAPE", dtype, (1, 6), (2, 3), constant=[2, 3]))
    check(moving("EXPAND_DIMS", dtype, (2, 3), (2, 1, 3), constant=1))
    check(moving("SQUEEZE", dtype, (2, 1, 3, 1), (2, 3), squeeze_dims=[1, 3]))
