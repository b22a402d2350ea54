"""TOPK_V2, CUMSUM, SCATTER_ND."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from aot.errors import AotError
from aot.relay.interpreter import evaluate
from tests.op._differential import FAST, SEEDS, SLOW, check, check_lowering, dims, main_of
from tests.op._one_op import EVERY, Spec, const, draw_array, one_op, same_quant

Case = tuple[bytes, list[Any]]


@st.composite
def topks(draw: st.DrawFn) -> Case:
    shape = draw(dims(draw(st.integers(1, 3)), largest=8))
    k = draw(st.integers(1, shape[-1]))
    dtype = draw(st.sampled_from(["int8", "uint8", "int16", "int32", "int64", "float32"]))
    result = (*shape[:-1], k)
    quant = same_quant(dtype)
    model = one_op("TOPK_V2", [Spec(shape, dtype, quant), const(k)], [Spec(result, dtype, quant), Spec(result, "int32")])
    seed = draw(SEEDS)
    few = np.random.default_rng(seed).integers(0, 4, shape).astype(dtype)  # many equal ones
    return model, [few if draw(st.booleans()) else draw_array(seed, shape, dtype)]


@st.composite
def cumsums(draw: st.DrawFn) -> Case:
    shape = draw(dims(draw(st.integers(1, 4))))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    data = Spec(shape, draw(st.sampled_from(["int32", "int64", "float32"])))
    options = {"exclusive": draw(st.booleans()), "reverse": draw(st.booleans())}
    return one_op("CUMSUM", [data, const(axis)], [data], **options), [draw_array(draw(SEEDS), shape, data.dtype)]


@st.composite
def scatters(draw: st.DrawFn) -> Case:
    shape = draw(dims(draw(st.integers(1, 4)), largest=4))
    depth = draw(st.integers(1, len(shape)))
    outer = draw(dims(draw(st.integers(1, 2)), largest=4))
    dtype = draw(st.sampled_from(EVERY))
    seed = draw(SEEDS)
    rng = np.random.default_rng(seed)
    indices = np.asarray(rng.integers(0, shape[:depth], (*outer, depth)), np.int32)
    updates = draw_array(seed, (*outer, *shape[depth:]), dtype)
    fixed = draw(st.booleans())
    quant = same_quant(dtype)
    operands = [const(indices) if fixed else Spec(indices.shape, "int32"), Spec(updates.shape, dtype, quant), const(shape)]
    model = one_op("SCATTER_ND", operands, [Spec(shape, dtype, quant)])
    return model, [updates] if fixed else [indices, updates]


@given(topks(), cumsums(), scatters())
@FAST
def test_random(topk: Case, cumsum: Case, scatter: Case) -> None:
    for model, inputs in (topk, cumsum, scatter):
        check(model, inputs)


@pytest.mark.slow
@given(topks(), cumsums(), scatters())
@SLOW
def test_random_often(topk: Case, cumsum: Case, scatter: Case) -> None:
    for model, inputs in (topk, cumsum, scatter):
        check(model, inputs)


def test_on_host() -> None:
    rows = np.array([[3, 5, 5, 3, 9], [7, 7, 7, 7, 7]], np.int8)
    results = [Spec((2, 3), "int8", same_quant("int8")), Spec((2, 3), "int32")]
    check(one_op("TOPK_V2", [Spec((2, 5), "int8", same_quant("int8")), const(3)], results), [rows], host=True)
    for dtype in ("int32", "float32"):
        data = Spec((2, 5, 3), dtype)
        check(one_op("CUMSUM", [data, const(1)], [data], exclusive=True, reverse=True), host=True)
        check(one_op("CUMSUM", [data, const(1)], [data]), host=True)
    indices = np.array([[1, 0], [1, 0], [3, 1]], np.int32)
    for dtype in ("int8", "int32", "bool", "float32"):
        updates = Spec((3, 2), dtype, same_quant(dtype))
        model = one_op("SCATTER_ND", [Spec((3, 2), "int32"), updates, const([4, 2, 2])], [Spec((4, 2, 2), dtype, updates.quant)])
        check(model, [indices, draw_array(0, (3, 2), dtype)], host=True)


def test_the_largest_with_nan() -> None:
    """Behind all numbers, in the order in which they stand."""
    nan, inf = float("nan"), float("inf")
    rows = np.array([[nan, 3, 3, nan, -inf], [nan, nan, nan, nan, nan], [1, nan, inf, -0.0, 0.0]], np.float32)
    for k in (1, 3, 5):
        model = one_op("TOPK_V2", [Spec((3, 5), "float32"), const(k)], [Spec((3, k), "float32"), Spec((3, k), "int32")])
        check(model, [rows], host=True)


def test_updates_outside_are_left_out() -> None:
    """The reference stops with an error; here no access may leave the tensor."""
    model = one_op("SCATTER_ND", [Spec((4, 1), "int64"), Spec((4,), "float32"), const([3])], [Spec((3,), "float32")])
    inputs = [np.array([[-1], [2], [3], [1 << 40]]), np.array([1, 2, 4, 8], np.float32)]
    found = evaluate(main_of(model), inputs)
    assert found[0].tolist() == [0, 0, 2]
    check_lowering(main_of(model), [inputs], [found], host=True)


def test_refused() -> None:
    with pytest.raises(AotError, match="E1122"):
        main_of(one_op("TOPK_V2", [Spec((2, 3)), const(4)], [Spec((2, 4)), Spec((2, 4), "int32")]))
    with pytest.raises(AotError, match="E1126"):
        main_of(one_op("CUMSUM", [Spec((2, 3), "int32"), const(2)], [Spec((2, 3), "int32")]))
    with pytest.raises(AotError, match="E1133"):
        main_of(one_op("SCATTER_ND", [const([[3]]), Spec((1,), "float32"), const([3])], [Spec((3,), "float32")]))
