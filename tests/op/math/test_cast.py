"""CAST between all types, SELECT, SELECT_V2, ONE_HOT."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from aot.op.math.cast import DTYPES
from tests.op._differential import FAST, SEEDS, SLOW, check, dims
from tests.op._one_op import EVERY, Spec, const, draw_array, one_op, same_quant

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


@st.composite
def selects(draw: st.DrawFn, name: str = "") -> bytes:
    """Of that operator, or of either."""
    dtype = draw(st.sampled_from(EVERY))
    quant = same_quant(dtype)
    name = name or draw(st.sampled_from(["SELECT_V2", "SELECT"]))
    if name == "SELECT":
        shape = draw(dims(draw(st.integers(1, 3)), largest=4))
        cond = draw(st.sampled_from([shape, shape[:1]]))
        data = Spec(shape, dtype, quant)
        return one_op("SELECT", [Spec(cond, "bool"), data, data], [data])
    shape = draw(dims(draw(st.integers(0, 4)), largest=4))

    def part() -> tuple[int, ...]:
        return tuple(draw(st.sampled_from([1, n])) for n in shape)[draw(st.integers(0, len(shape))) :]

    shapes = part(), part(), part()
    result = np.broadcast_shapes(*shapes)
    operands = [Spec(shapes[0], "bool"), *(Spec(s, dtype, quant) for s in shapes[1:])]
    return one_op("SELECT_V2", operands, [Spec(result, dtype, quant)])


@given(selects(), SEEDS)
@FAST
def test_select(model: bytes, seed: int) -> None:
    check(model, seed=seed)


@pytest.mark.slow
@given(selects(), SEEDS)
@SLOW
def test_select_often(model: bytes, seed: int) -> None:
    check(model, seed=seed)


def test_select_on_host() -> None:
    data = Spec((2, 3), "int8", same_quant("int8"))
    check(one_op("SELECT_V2", [Spec((3,), "bool"), data, data], [data]), host=True)


@st.composite
def one_hots(draw: st.DrawFn) -> tuple[bytes, list[Any]]:
    shape = draw(dims(draw(st.integers(0, 3)), largest=4))
    axis, depth = draw(st.integers(-1, len(shape))), draw(st.integers(1, 5))
    where = len(shape) if axis == -1 else axis
    dtype = draw(st.sampled_from(EVERY))
    index = draw(st.sampled_from(["int32", "int64"]))
    quant = same_quant(dtype)
    value, result = Spec((), dtype, quant), Spec((*shape[:where], depth, *shape[where:]), dtype, quant)
    model = one_op("ONE_HOT", [Spec(shape, index), const(depth), value, value], [result], axis=axis)
    seed = draw(SEEDS)
    indices = np.asarray(np.random.default_rng(seed).integers(-2, depth + 2, shape), index)
    return model, [indices, draw_array(seed, (), dtype), draw_array(seed + 1, (), dtype)]


@given(one_hots())
@FAST
def test_one_hot(case: tuple[bytes, list[Any]]) -> None:
    check(case[0], case[1])


@pytest.mark.slow
@given(one_hots())
@SLOW
def test_one_hot_often(case: tuple[bytes, list[Any]]) -> None:
    check(case[0], case[1])


def test_one_hot_on_host() -> None:
    on, off = const(1.0, "float32"), const(0.0, "float32")
    model = one_op("ONE_HOT", [Spec((3,), "int32"), const(4), on, off], [Spec((3, 4), "float32")], axis=-1)
    check(model, [np.array([0, 3, 7], np.int32)], host=True)
