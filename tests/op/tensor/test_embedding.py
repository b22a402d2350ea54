"""EMBEDDING_LOOKUP."""

from __future__ import annotations

import numpy as np
import pytest

from aot.errors import AotError
from aot.testing import Quant
from tests.op._differential import check, main_of
from tests.op._one_op import Spec, const, draw_array, one_op


def test_rows() -> None:
    table = np.arange(20, dtype=np.float32).reshape(5, 4)
    model = one_op("EMBEDDING_LOOKUP", [Spec((3,), "int32"), const(table, "float32")], [Spec((3, 4), "float32")])
    check(model, [np.array([4, 0, 2], np.int32)], host=True)


@pytest.mark.parametrize("count", [1, 5])
def test_an_integer_table(count: int) -> None:
    """What litert-torch writes for weights alone: rows of int8, float32 comes out."""
    codes = draw_array(3, (5, 4), "int8")
    table = Spec((5, 4), "int8", data=codes, scales=tuple(np.linspace(0.01, 0.3, count).tolist()))
    model = one_op("EMBEDDING_LOOKUP", [Spec((3,), "int32"), table], [Spec((3, 4), "float32")], version=3)
    check(model, [np.array([4, 0, 2], np.int32)], host=True)


def test_what_is_refused() -> None:
    """No scale; a zero point; scales along another axis; uint8 and odd rows of int4, which the reference misreads."""
    codes = draw_array(3, (5, 4), "int8")
    tables = {
        "E1206": Spec((5, 4), "int8", data=codes),
        "E1224": Spec((5, 4), "int8", Quant(0.5, 3), codes),
        "E1223": Spec((5, 4), "int8", data=codes, scales=(0.5,) * 4, axis=1),
        "E1202": Spec((5, 4), "uint8", Quant(0.5, 0), codes.view(np.uint8)),
    }
    half = Spec((5, 3), "int4", Quant(0.5, 0), np.ones((5, 3), np.int8))
    for code, table in (*tables.items(), ("odd number of int4", half)):
        result = Spec((3, table.shape[1]), "float32")
        with pytest.raises(AotError, match=code):
            main_of(one_op("EMBEDDING_LOOKUP", [Spec((3,), "int32"), table], [result], version=3))
