"""ARG_MAX and ARG_MIN."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from aot.errors import AotError
from tests.op._differential import FAST, SEEDS, SLOW, check, dims, main_of
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


def test_no_such_axis() -> None:
    with pytest.raises(AotError, match="E1126"):
        main_of(one_op("ARG_MAX", [Spec((2, 3)), const(2)], [Spec((2,), "int32")], output_type="INT32"))
