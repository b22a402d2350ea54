"""CAST between all types."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from aot.op.math.cast import DTYPES
from tests.op._differential import SEEDS, SLOW, check
from tests.op._one_op import Spec, draw_array, one_op

EDGES = [0.5, -0.5, 1.5, 126.9, 127.5, -127.9, -128.9, 254.9, 255.5, 300.7, -300.7, 32767.9, 65535.9, -32768.5]
EDGES += [2147483520.0, 2147483648.0, -2147483648.0, 4294967040.0, 3e9, -3e9, 1e20, -1e20, 9.2233715e18, -9.2233721e18]
EDGES += [np.nan, np.inf, -np.inf, -0.0]


def cast_model(source: str, result: str, count: int) -> bytes:
    return one_op("CAST", [Spec((count,), source)], [Spec((count,), result)])


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("result", DTYPES)
def test_cast(source: str, result: str) -> None:
    if source == "float32":
        values = np.array(EDGES, np.float32)
    elif source == "bool":
        values = np.array([True, False])
    else:
        limits = np.iinfo(source)
        values = np.array([limits.min, limits.max, limits.max // 2, limits.min // 3, 0, 1, 2, 100], source)
    check(cast_model(source, result, len(values)), [values])


def test_cast_on_host() -> None:
    values = np.array(EDGES, np.float32)
    for result in ("int8", "uint8", "int32", "int64", "bool"):
        check(cast_model("float32", result, len(values)), [values], host=True)
    for result in ("int8", "bool", "float32"):
        check(cast_model("int32", result, 5), host=True)


@pytest.mark.slow
@given(st.sampled_from(DTYPES), st.sampled_from(DTYPES), st.lists(st.floats(width=32), min_size=1, max_size=20), SEEDS)
@SLOW
def test_cast_often(source: str, result: str, floats: list[float], seed: int) -> None:
    values = np.array(floats, np.float32) if source == "float32" else draw_array(seed, (len(floats),), source)
    check(cast_model(source, result, len(floats)), [values])
