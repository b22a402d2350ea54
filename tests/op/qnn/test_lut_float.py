"""qnn.lut_float: functions of a DEQUANTIZE whose result stays a float, for every code."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from aot.ir.op import TypeRuleError
from aot.ir.type import TensorType
from aot.op import load_all
from aot.op.qnn.lut import LutFloatAttrs
from aot.relay.expr import Var, call
from aot.testing import ModelBuilder
from tests.op._differential import FEW, SLOW, check
from tests.op.qnn._chains import CHAINS, SHAPE

load_all()

EVERY_CODE = np.resize(np.arange(-128, 128), SHAPE).astype(np.int8)


def dequantized(name: str, scale: float, zero_point: int) -> bytes:
    b = ModelBuilder()
    x = b.tensor("x", SHAPE, scale=scale, zero_point=zero_point)
    real = b.tensor("real", SHAPE, "float32")
    b.op("DEQUANTIZE", [x], [real])
    return b.build([x], [CHAINS[name](b, real)])


@given(st.sampled_from(list(CHAINS)), st.floats(2.0**-13, 0.5, width=32), st.integers(-128, 127))
@FEW
def test_every_code(name: str, scale: float, zero_point: int) -> None:
    check(dequantized(name, scale, zero_point), [EVERY_CODE])


@pytest.mark.slow
@given(st.sampled_from(list(CHAINS)), st.floats(2.0**-13, 0.5, width=32), st.integers(-128, 127))
@SLOW
def test_every_code_often(name: str, scale: float, zero_point: int) -> None:
    check(dequantized(name, scale, zero_point), [EVERY_CODE])


def test_on_host() -> None:
    check(dequantized("mish", 0.05, 3), [EVERY_CODE], host=True)


def test_attributes_are_checked() -> None:
    with pytest.raises(TypeRuleError, match="int8"):
        call("qnn.lut_float", [Var("x", TensorType((4,), "float32"))], LutFloatAttrs((0.0,) * 256))
    with pytest.raises(TypeRuleError, match="256"):
        call("qnn.lut_float", [Var("x", TensorType((4,), "int8"))], LutFloatAttrs((0.0,) * 255))
