"""A constant of nothing but zeros with a scale of 0, as the initial states of 16x8 recurrent networks have: it runs."""

from __future__ import annotations

import numpy as np
import pytest

from aot.errors import AotError
from aot.testing import ModelBuilder, Quant
from tests.op._differential import check, main_of
from tests.op._one_op import Spec, const, one_op


def network(dtype: str, name: str) -> bytes:
    """`name` of zeros, with the input where it takes two, then a MUL of the input and the result."""
    b = ModelBuilder()
    x, out = (b.tensor(n, (2, 4), dtype, scale=0.01, zero_point=0) for n in ("x", "out"))
    zeros = b.tensor("h0", (2, 4), dtype, scale=0.0, zero_point=0, data=np.zeros((2, 4), dtype))
    own = 2.0**-15 if name in ("TANH", "LOGISTIC") and dtype == "int16" else 0.01
    y = b.tensor("y", (2, 4), dtype, scale=own, zero_point=0)
    operands = [zeros]
    if name == "FULLY_CONNECTED":
        weights = b.tensor("w", (4, 4), "int8", scale=0.02, zero_point=0, data=np.full((4, 4), 3, np.int8))
        bias_type = "int64" if dtype == "int16" else "int32"
        values = np.array([100, -50000, 3000, 7], bias_type)
        operands += [weights, b.tensor("b", (4,), bias_type, scale=0.0, zero_point=0, data=values)]
    elif name in ("MUL", "DIV"):
        operands = [x, zeros] if name == "MUL" else [zeros, x]
    b.op(name, operands, [y], version=4 if name == "FULLY_CONNECTED" else 2)
    b.op("MUL", [x, y], [out], version=2)
    return b.build([x], [out, y])


CASES = [
    (name, dtype) for name in ("FULLY_CONNECTED", "MUL", "DIV", "QUANTIZE", "TANH", "RELU", "ABS") for dtype in ("int8", "int16")
]


@pytest.mark.parametrize(("name", "dtype"), [*CASES, ("LOGISTIC", "int16")])
def test_zeros_of_scale_0(name: str, dtype: str) -> None:
    x = np.arange(1, 9, dtype=dtype).reshape(2, 4)
    check(network(dtype, name), [x], host=name == "FULLY_CONNECTED")


SHAPE = (1, 2, 2, 4)
RESULT = {
    "DEQUANTIZE": Spec(SHAPE, "float32"),
    "SOFTMAX": Spec(SHAPE, "int16", Quant(1 / 32768, 0)),
    "L2_NORMALIZATION": Spec(SHAPE, "int8", Quant(1 / 128, 0)),
}
POOL = {"padding": "VALID", "stride_w": 1, "stride_h": 1, "filter_width": 1, "filter_height": 1}
ALONE = [
    *(
        (n, d)
        for n in ("DEQUANTIZE", "MEAN", "REDUCE_PROD", "AVERAGE_POOL_2D", "MAX_POOL_2D", "RSQRT")
        for d in ("int8", "int16")
    ),
    ("SOFTMAX", "int16"),
    ("L2_NORMALIZATION", "int8"),
]


@pytest.mark.parametrize(("name", "dtype"), ALONE)
def test_nothing_but_zeros(name: str, dtype: str) -> None:
    """An operator on the constant alone."""
    zeros = Spec(SHAPE, dtype, Quant(0.0, 0), np.zeros(SHAPE, dtype))
    reduces, options = name in ("MEAN", "REDUCE_PROD"), dict(POOL) if "POOL" in name else {}
    result = RESULT.get(name, Spec(SHAPE[:3] if reduces else SHAPE, dtype, Quant(0.01, 0)))
    options |= {"keep_dims": False} if reduces else {"beta": 1.0} if name == "SOFTMAX" else {}
    version = 1 if name == "RSQRT" else 2
    check(one_op(name, [zeros, *([const([3])] if reduces else [])], [result], version=version, **options), [])


def test_slopes_of_zero() -> None:
    x, slopes = Spec((2, 4), "int8", Quant(0.01, 3)), Spec((4,), "int8", Quant(0.0, 0), np.zeros(4, np.int8))
    check(one_op("PRELU", [x, slopes], [Spec((2, 4), "int8", Quant(0.02, -1))]))


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_matrix_of_zeros(dtype: str) -> None:
    b = ModelBuilder()
    x = b.tensor("x", (1, 2, 4), dtype, scale=0.01, zero_point=0)
    zeros = b.tensor("w", (1, 4, 3), dtype, scale=0.0, zero_point=0, data=np.zeros((1, 4, 3), dtype))
    y = b.tensor("y", (1, 2, 3), dtype, scale=0.01, zero_point=0)
    b.op("BATCH_MATMUL", [x, zeros], [y], version=2)
    check(b.build([x], [y]))


@pytest.mark.parametrize(("data", "code"), [(np.ones((2, 4), np.int8), "E1111"), (np.zeros((2, 4), np.int8), "E1226")])
def test_what_stays_refused(data: np.ndarray, code: str) -> None:
    """Other values of scale 0, and an ADD of zeros, on which the reference ends the whole process."""
    b = ModelBuilder()
    x, y = (b.tensor(n, (2, 4), "int8", scale=0.01, zero_point=0) for n in "xy")
    constant = b.tensor("c", (2, 4), "int8", scale=0.0, zero_point=0, data=data)
    b.op("ADD", [x, constant], [y], version=2)
    with pytest.raises(AotError) as found:
        main_of(b.build([x], [y]))
    assert {p.code for p in found.value.problems} == {code}
