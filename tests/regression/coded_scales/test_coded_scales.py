"""Values that no converter of a model writes end in a code of their own, not in E1124 ("this should not happen")."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aot.errors import AotError
from aot.testing import Quant
from tests.op._differential import main_of
from tests.op._one_op import Spec, const, one_op

TINY, HUGE = 1e-45, 3e38
ODD = [0.0, TINY, 1e-38, HUGE, float("inf"), float("nan"), -1.0]
_STEPS: dict[str, Any] = {"stride_h": 1, "stride_w": 1, "padding": "VALID"}


def layer(name: str, x: float, w: float, y: float, *, dtype: str = "int8", **options: Any) -> bytes:
    """A layer of one weight a channel."""
    weight = "uint8" if dtype == "uint8" else "int8"
    square = {"FULLY_CONNECTED": (2, 2), "DEPTHWISE_CONV_2D": (1, 1, 1, 2)}.get(name, (2, 1, 1, 2))
    image = (1, 2) if name == "FULLY_CONNECTED" else (1, 1, 1, 2)
    data = Spec(image, dtype, Quant(x, 0))
    weights = Spec(square, weight, Quant(w, 0), np.ones(square, weight))
    operands = [const(image), weights, data] if name == "TRANSPOSE_CONV" else [data, weights]
    if name != "FULLY_CONNECTED":
        options = {**_STEPS, **options}
    if name == "DEPTHWISE_CONV_2D":
        options["depth_multiplier"] = 1
    return one_op(name, operands, [Spec(image, dtype, Quant(y, 0))], version=3, **options)


def codes_of(model: bytes) -> set[str]:
    """Codes of what is wrong with it."""
    try:
        main_of(model)
    except AotError as error:
        return {p.code for p in error.problems}
    return set()


SLOW = pytest.mark.slow
OTHER_TYPES = [pytest.param("uint8", marks=SLOW), pytest.param("int16", marks=SLOW)]

LAYERS = ["CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED"]


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("activation", ["TANH", "SIGN_BIT"])
def test_fused_activations_that_clamp_nothing(name: str, activation: str) -> None:
    assert codes_of(layer(name, 0.5, 0.5, 0.5, fused_activation_function=activation)) == {"E1203"}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dtype", ["int8", *OTHER_TYPES])
def test_layers_of_odd_scales(name: str, dtype: str) -> None:
    found = {
        s: codes_of(layer(name, s[0], s[1], s[2], dtype=dtype))
        for a in ODD
        for s in ((a, 0.5, 0.5), (0.5, a, 0.5), (0.5, 0.5, a), (HUGE, a, TINY))
    }
    assert set().union(*found.values()) <= {"E1111", "E1226"}, found


UNARY = [
    "LEAKY_RELU",
    "RSQRT",
    "RELU",
    "RELU6",
    "ABS",
    "HARD_SWISH",
    "QUANTIZE",
    "TANH",
    "LOGISTIC",
    "SQRT",
    "LOG",
    "EXP",
    "GELU",
    "ELU",
]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*UNARY, "SOFTMAX", "LOG_SOFTMAX", "DEQUANTIZE"])
@pytest.mark.parametrize("dtype", ["int8", *OTHER_TYPES])
def test_functions_of_odd_scales(name: str, dtype: str) -> None:
    options: dict[str, Any] = {"LEAKY_RELU": {"alpha": HUGE}, "SOFTMAX": {"beta": HUGE}}.get(name, {})
    kinds = {"E1111", "E1122", "E1201", "E1202", "E1203", "E1225", "E1226"}
    for x in (*ODD, 0.5):
        for y in (*ODD, 0.5):
            result = Spec((2, 4), "float32") if name == "DEQUANTIZE" else Spec((2, 4), dtype, Quant(y, 0))
            assert codes_of(one_op(name, [Spec((2, 4), dtype, Quant(x, 0))], [result], **options)) <= kinds, (x, y)


@pytest.mark.parametrize("name", ["ADD", "SUB", "MUL", "DIV", "SQUARED_DIFFERENCE", "PRELU", "BATCH_MATMUL", "LESS", "MAXIMUM"])
@pytest.mark.parametrize("dtype", ["int8", OTHER_TYPES[1]])
def test_two_operands_of_odd_scales(name: str, dtype: str) -> None:
    kinds = {"E1111", "E1202", "E1203", "E1226", "E1227"}
    shape = (1, 4, 4)
    for a in ODD:
        for scales in ((a, 0.5, 0.5), (0.5, 0.5, a), (HUGE, 0.5, TINY), (TINY, TINY, HUGE), (HUGE, HUGE, a), (a, a, a)):
            x, w, y = (Spec(shape, dtype, Quant(s, 0)) for s in scales)
            w = Spec(shape, "int8", Quant(scales[1], 0), np.ones(shape, np.int8)) if name == "PRELU" else w
            result = Spec(shape, "bool") if name == "LESS" else y
            assert codes_of(one_op(name, [x, w], [result])) <= kinds, scales


@pytest.mark.parametrize("name", ["SUM", "MEAN", "REDUCE_PROD", "REDUCE_MAX", "CUMSUM", "ADD_N"])
def test_sums_of_odd_scales(name: str) -> None:
    for x, y in ((a, b) for a in ODD for b in (*ODD, 0.5)):
        data = Spec((2, 4), "int8", Quant(x, 0))
        operands = [data, data] if name == "ADD_N" else [data, const([1] if name != "CUMSUM" else 1)]
        shape = (2, 4) if name in ("ADD_N", "CUMSUM") else (2,)
        options = {} if name in ("ADD_N", "CUMSUM") else {"keep_dims": False}
        found = codes_of(one_op(name, operands, [Spec(shape, "int8", Quant(y, 0))], **options))
        assert found <= {"E1111", "E1202", "E1203", "E1226", "E1227"}, (x, y)
