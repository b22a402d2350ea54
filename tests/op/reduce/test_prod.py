"""REDUCE_PROD of codes as C, and a scale too small; drawn with the other reductions in test_reduce.py."""

from __future__ import annotations

import pytest

from aot.errors import AotError
from aot.testing import Quant
from tests.op._differential import check, main_of
from tests.op._one_op import Spec, const, one_op


def test_of_codes_on_host() -> None:
    data, result = Spec((3, 4, 2), "int8", Quant(0.05, 3)), Spec((4,), "int8", Quant(0.02, -7))
    check(one_op("REDUCE_PROD", [data, const([0, 2])], [result], keep_dims=False), host=True)
    with pytest.raises(AotError, match="E1226"):
        main_of(one_op("REDUCE_PROD", [data, const([0])], [Spec((4, 2), "int8", Quant(1e-20, 0))], keep_dims=False))
