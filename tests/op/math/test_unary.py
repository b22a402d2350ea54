"""Functions of one tensor of floats: every bit of the reference's."""

from __future__ import annotations

import platform
from collections.abc import Sequence

import numpy as np
import pytest

from aot.ir.op import Array, reset_op
from aot.ir.type import TensorType
from aot.op.math.unary import Unary, UnaryAttrs, f32, register_unary
from aot.relay.expr import Function, Var, call
from aot.relay.interpreter import evaluate
from aot.testing import Quant
from aot.tir.expr import select
from tests.op._differential import check, check_lowering
from tests.op._one_op import Spec, one_op

FLOATS = ["ABS", "NEG", "SQUARE", "FLOOR", "SQRT", "RELU", "RELU6", "RELU_N1_TO_1", "LEAKY_RELU", "CEIL", "ROUND"]
ELEMENTARY = ["EXP", "LOG", "SIN", "COS", "TANH", "LOGISTIC", "RSQRT", "GELU", "HARD_SWISH", "LOG_SOFTMAX", "SOFTMAX"]
ELEMENTARY += ["L2_NORMALIZATION", "ELU"]


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_negative_of_codes(dtype: str) -> None:
    """The reference negates the codes, whatever they mean, and the lowest stays as it is."""
    data = np.array([[np.iinfo(dtype).min, np.iinfo(dtype).max, 0, 5, -3]], dtype)
    model = one_op("NEG", [Spec((1, 5), dtype, Quant(0.5, 0))], [Spec((1, 5), dtype, Quant(0.25, 0))])
    check(model, [data], host=dtype == "int16")


@pytest.mark.parametrize("opcode", FLOATS)
def test_floats(opcode: str) -> None:
    data = np.linspace(-9, 9, 73, dtype=np.float32).reshape(1, 73)
    data = np.abs(data) if opcode == "SQRT" else data
    options = {"alpha": 0.3} if opcode == "LEAKY_RELU" else {}
    check(one_op(opcode, [Spec((1, 73), "float32")], [Spec((1, 73), "float32")], **options), [data], host=True)


def test_an_activation_is_one_row() -> None:
    """A row of `UNARY` makes type rule, meaning, kernels and C; .tflite files need a converter, and its test a name above."""
    row = Unary("SOFTSIGN", lambda x, _a: x / (np.float32(1) + np.abs(x)), lambda _b, x, _a: x / (f32(1) + select(x < 0, -x, x)))
    register_unary("mine.softsign", row)
    try:
        x = Var("x", TensorType((1, 73), "float32"))
        func = Function((x,), call("mine.softsign", [x], UnaryAttrs()))
        data = np.linspace(-9, 9, 73, dtype=np.float32).reshape(1, 73)
        (found,) = evaluate(func, [data])
        np.testing.assert_array_equal(found, data / (1 + np.abs(data)))
        check_lowering(func, [[data]], [[found]], host=True)
    finally:
        reset_op("mine.softsign")


REFERENCE_LIBM = platform.libc_ver()[0] == "glibc" and (2, 28) <= tuple(map(int, platform.libc_ver()[1].split("."))) < (2, 41)
"""Whether the reference runs with the C library whose bits we give."""


def within_an_ulp(found: Sequence[Array], wanted: Sequence[Array], message: str) -> None:
    """With another C library the reference itself differs in the last bit."""
    for f, w in zip(found, wanted, strict=True):
        np.testing.assert_allclose(f, w, rtol=1e-5, atol=1e-6, err_msg=message)


@pytest.mark.parametrize("opcode", ELEMENTARY)
def test_elementary_functions(opcode: str) -> None:
    """Every bit of the reference's; for numbers from 1e-30 to 1e30, too."""
    small, large = np.linspace(-9, 9, 72, dtype=np.float32), np.geomspace(1e-30, 1e30, 36, dtype=np.float32)
    data = np.concatenate([small, large, -large]).reshape(6, 24)
    data = np.abs(data) + np.float32(1e-30) if opcode in ("LOG", "RSQRT") else data
    data = np.clip(data, -80, 80) if opcode in ("SOFTMAX", "L2_NORMALIZATION") else data
    for options in [{"approximate": True}, {"approximate": False}] if opcode == "GELU" else [{}]:
        options = {"beta": 1.0} if opcode == "SOFTMAX" else options
        model = one_op(opcode, [Spec(data.shape, "float32")], [Spec(data.shape, "float32")], **options)
        check(model, [data], host=opcode == "LOGISTIC", agree=None if REFERENCE_LIBM else within_an_ulp)
