"""FILL and ZEROS_LIKE."""

from __future__ import annotations

import pytest

from tests.op._differential import check
from tests.op._one_op import Spec, const, moving, one_op, same_quant


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "bool", "float32"])
def test_fill(dtype: str) -> None:
    value, result = Spec((), dtype, same_quant(dtype)), Spec((2, 3), dtype, same_quant(dtype))
    check(one_op("FILL", [const([2, 3]), value], [result], version=4), host=True)


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32"])
def test_zeros_like(dtype: str) -> None:
    check(moving("ZEROS_LIKE", dtype, [(2, 300), (2, 300)]), host=dtype == "int32")
