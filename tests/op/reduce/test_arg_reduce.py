"""ARG_MAX and ARG_MIN."""

from __future__ import annotations

from platform import machine

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from aot.errors import AotError
from aot.relay.interpreter import evaluate
from aot.testing import HAVE_LITERT, reference
from tests.op._differential import FAST, SEEDS, SLOW, check, check_tflm, dims, main_of
from tests.op._one_op import Spec, const, one_op, same_quant


@st.composite
def arg_reductions(draw: st.DrawFn, name: str = "") -> bytes:
    """Of that operator, or of either."""
    shape = draw(dims(draw(st.integers(1, 4))))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    dtype = draw(st.sampled_from(["int8", "uint8", "int16", "int32", "int64", "bool", "float32"]))
    result = Spec(tuple(n for i, n in enumerate(shape) if i != axis % len(shape)), draw(st.sampled_from(["int32", "int64"])))
    name = name or draw(st.sampled_from(["ARG_MAX", "ARG_MIN"]))
    data = Spec(shape, dtype, same_quant(dtype))
    return one_op(name, [data, const(axis)], [result], output_type=result.dtype.upper())


@given(arg_reductions(), SEEDS)
@FAST
def test_random(model: bytes, seed: int) -> None:
    check(model, seed=seed)


@pytest.mark.slow
@given(arg_reductions(), SEEDS)
@SLOW
def test_random_often(model: bytes, seed: int) -> None:
    check(model, seed=seed)


@pytest.mark.parametrize("name", ["ARG_MAX", "ARG_MIN"])
def test_ties_on_host(name: str) -> None:
    values = np.array([[3, 5, 5, 3], [7, 7, 7, 7], [-128, 127, -128, 127]], np.int8)
    data = Spec(values.shape, "int8", same_quant("int8"))
    check(one_op(name, [data, const(1)], [Spec((3,), "int32")], output_type="INT32"), [values], host=True)


NAN, INF = float("nan"), float("inf")
WITH_NAN = [[3, NAN, 1], [NAN, 3, 1], [NAN, NAN, -INF], [NAN, NAN, NAN], [-0.0, NAN, 0], [NAN, INF, INF]]


def float_model(name: str, shape: tuple[int, int], axis: int) -> bytes:
    result = Spec((shape[1 - axis],), "int32")
    return one_op(name, [Spec(shape, "float32"), const(axis)], [result], output_type="INT32")


@pytest.mark.parametrize(("name", "best"), [("ARG_MAX", [0, 1, 2, 0, 0, 1]), ("ARG_MIN", [2, 2, 2, 0, 0, 1])])
def test_a_nan_is_passed_over(name: str, best: list[int]) -> None:
    data = np.array(WITH_NAN, np.float32)
    for rows, axis in ((data, 1), (np.ascontiguousarray(data.T), 0)):
        ((found,),) = check(float_model(name, rows.shape, axis), [rows], host=True)
        assert found.tolist() == best


def test_tflm_keeps_a_first_nan() -> None:
    """It compares alone, which a NaN never passes."""
    data = np.array(WITH_NAN, np.float32)
    check_tflm(float_model("ARG_MAX", data.shape, 1), [data])


@pytest.mark.skipif(not HAVE_LITERT or machine() != "x86_64", reason="about LiteRT on x86")
def test_the_reference_contradicts_itself_along_the_last_axis() -> None:
    """From four numbers on; the day that this fails, the limit named in arg_reduce.py is gone."""
    row = np.array([[NAN, 1, 2, 3]], np.float32)
    columns = np.ascontiguousarray(np.repeat(row, 2, axis=0).T)
    (right,) = reference(float_model("ARG_MAX", (4, 2), 0), [columns])
    (wrong,) = reference(float_model("ARG_MAX", (1, 4), 1), [row])
    (ours,) = evaluate(main_of(float_model("ARG_MAX", (1, 4), 1)), [row])
    assert (right.tolist(), ours.tolist(), wrong.tolist()) == ([3, 3], [3], [0])


def test_no_such_axis() -> None:
    with pytest.raises(AotError, match="E1126"):
        main_of(one_op("ARG_MAX", [Spec((2, 3)), const(2)], [Spec((2,), "int32")], output_type="INT32"))
