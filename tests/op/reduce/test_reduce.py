"""SUM, MEAN, REDUCE_PROD, REDUCE_MAX, REDUCE_MIN, REDUCE_ANY, REDUCE_ALL on all types."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from aot.frontend.tflite.convert import normalized_axes
from aot.frontend.tflite.reduce import OF_BOOL
from aot.op.reduce import OPERATORS
from aot.relay.interpreter import evaluate
from aot.testing import Quant
from tests.op._differential import FAST, SEEDS, SLOW, check, dims, main_of, same_as_tflm, scales
from tests.op._one_op import Spec, const, draw_array, one_op, same_quant


@st.composite
def shapes(draw: st.DrawFn) -> tuple[tuple[int, ...], list[int], tuple[int, ...], bool]:
    """Shape, axes, shape of the result, keep_dims."""
    shape = draw(dims(draw(st.integers(1, 4))))
    axes = draw(st.lists(st.integers(-len(shape), len(shape) - 1), min_size=1, max_size=len(shape)))
    keep = draw(st.booleans())
    gone = normalized_axes(np.array(axes), len(shape))
    return shape, axes, tuple(1 if i in gone else n for i, n in enumerate(shape) if keep or i not in gone), keep


@st.composite
def plain(draw: st.DrawFn, name: str = "") -> bytes:
    """A reduction of plain numbers, or an extreme of codes; by that name, or by any."""
    name = name or draw(st.sampled_from(sorted(OPERATORS)))
    dtype = draw(st.sampled_from([*OPERATORS[name][1], *(["bool"] if name in OF_BOOL else [])]))
    shape, axes, result, keep = draw(shapes())
    quant = same_quant(dtype)
    return one_op(name, [Spec(shape, dtype, quant), const(axes)], [Spec(result, dtype, quant)], keep_dims=keep)


@st.composite
def codes(draw: st.DrawFn, name: str = "") -> tuple[str, str, bytes]:
    """A sum, mean or product of codes; by that name, or by any."""
    name = name or draw(st.sampled_from(["SUM", "MEAN", "REDUCE_PROD"]))
    dtype = draw(st.sampled_from(["int8", "int16"] if name == "REDUCE_PROD" else ["int8", "uint8", "int16"]))
    limits = np.iinfo(dtype)
    zero = st.just(0) if dtype == "int16" else st.integers(limits.min, limits.max)
    x = draw(st.builds(Quant, scales(), zero))
    y = draw(st.one_of(st.just(x), st.builds(Quant, scales(), zero)))
    if name == "REDUCE_PROD":
        y = Quant(float(np.float32(max(y.scale, x.scale / 100))), y.zero_point)
    shape, axes, result, keep = draw(shapes())
    return name, dtype, one_op(name, [Spec(shape, dtype, x), const(axes)], [Spec(result, dtype, y)], keep_dims=keep)


def check_codes(case: tuple[str, str, bytes], seed: int) -> None:
    """TFLite's SUM leaves int8 and int16 results uncomputed; there TFLM is the oracle."""
    name, dtype, model = case
    if name != "SUM" or dtype == "uint8":
        check(model, seed=seed)
        return
    func = main_of(model)
    inputs = [draw_array(seed, v.type.shape, v.type.dtype) for v in func.params]
    found = evaluate(func, inputs)
    check(model, inputs, oracle="tflm")
    same_as_tflm(model, [inputs], [found])


@given(plain(), codes(), SEEDS)
@FAST
def test_random(model: bytes, case: tuple[str, str, bytes], seed: int) -> None:
    check(model, seed=seed)
    check_codes(case, seed)


@pytest.mark.slow
@given(plain(), codes(), SEEDS)
@SLOW
def test_random_often(model: bytes, case: tuple[str, str, bytes], seed: int) -> None:
    check(model, seed=seed)
    check_codes(case, seed)


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_on_host(name: str) -> None:
    for dtype in OPERATORS[name][1]:
        quant = same_quant(dtype)
        result = Spec((2, 4), dtype, quant)
        check(one_op(name, [Spec((2, 3, 4), dtype, quant), const([1])], [result], keep_dims=False), host=True)


@pytest.mark.parametrize("name", ["SUM", "MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"])
def test_special_floats(name: str) -> None:
    values = np.array([[-0.0, -0.0], [np.nan, 1], [1, np.nan], [np.inf, 1], [-np.inf, -1], [3e38, 3e38]], np.float32)
    found: list[Any] = check(one_op(name, [Spec((6, 2), "float32"), const([1])], [Spec((6,), "float32")]), [values])
    assert found[0][0].shape == (6,)


def test_large_float_mean() -> None:
    model = one_op("MEAN", [Spec((1, 40, 50, 3), "float32"), const([1, 2])], [Spec((1, 3), "float32")])
    check(model)
