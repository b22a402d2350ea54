"""CAST between all types."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from aot.op.math.unary import CASTABLE
from tests.op._differential import SEEDS, SLOW, check
from tests.op._one_op import Spec, draw_array, one_op

EDGES = [0.5, -0.5, 1.5, 126.9, 127.5, -127.9, -128.9, 254.9, 255.5, 300.7, -300.7, 32767.9, 65535.9, -32768.5]
EDGES += [2147483520.0, 2147483648.0, -2147483648.0, 4294967040.0, 3e9, -3e9, 1e20, -1e20, 9.2233715e18, -9.2233721e18]
EDGES += [65519.996, 65520.0, 6.1e-5, 5.96e-8, 2.98e-8, 2.99e-8, 1.0004883, 1.0014648, 1e-40]
EDGES += [np.nan, np.inf, -np.inf, -0.0]


def cast_model(source: str, result: str, count: int) -> bytes:
    return one_op("CAST", [Spec((count,), source)], [Spec((count,), result)])


@pytest.mark.parametrize("source", CASTABLE)
@pytest.mark.parametrize("result", CASTABLE)
def test_cast(source: str, result: str) -> None:
    if source.startswith("float"):
        with np.errstate(all="ignore"):
            values = np.array(EDGES).astype(source)
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
    for result in ("int8", "bool", "float32", "float16"):
        check(cast_model("int32", result, 5), host=True)


def test_every_float16() -> None:
    """To float32, and the numbers between two float16 to the nearer one, in the interpreter and in C."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    halves[np.isnan(halves)] = np.nan  # whose bits carry nothing
    check(cast_model("float16", "float32", halves.size), [halves], host=True)
    finite = np.sort(halves[np.isfinite(halves)].astype(np.float32))
    ties = (finite[1:] + finite[:-1]) / 2
    near = np.concatenate([np.nextafter(ties, np.float32(s)) for s in (-np.inf, np.inf)] + [ties])
    check(cast_model("float32", "float16", near.size), [near], host=True)


@pytest.mark.slow
@given(st.sampled_from(CASTABLE), st.sampled_from(CASTABLE), st.lists(st.floats(width=32), min_size=1, max_size=20), SEEDS)
@SLOW
def test_cast_often(source: str, result: str, floats: list[float], seed: int) -> None:
    values = draw_array(seed, (len(floats),), source)
    if source.startswith("float"):
        with np.errstate(over="ignore"):
            values = np.array(floats, np.float32).astype(source)
    check(cast_model(source, result, len(floats)), [values])
