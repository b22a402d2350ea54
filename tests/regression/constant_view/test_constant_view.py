"""A layer that reads a constant by way of a view, which takes no memory for the search for cascades."""

from __future__ import annotations

import numpy as np
import pytest

from aot.driver.build import compile_model
from aot.driver.options import Options
from aot.testing.text_model import text_model

MODEL = """
in x int16[1,6,2,4] scale=0.001
const swap int32[4] data=0,2,1,3
const c int16[4] data=100,-200,300,400 scale=0.002
const w int8[4,1,1,4] data=1 scale=0.05
const b int64[4] data=1 scale=0.00005
tensor there int16[1,2,6,4] scale=0.001
tensor made int16[1,2,6,4] scale=0.001
tensor back int16[1,6,2,4] scale=0.001
tensor sum int16[1,6,2,4] scale=0.003
tensor gate int16[1,6,2,4] scale=0.000030517578125
tensor z int16[1,6,2,4] scale=0.003
out y int16[1,2,6,4] scale=0.003
TRANSPOSE x swap -> there
CONV_2D there w b -> made padding=VALID stride_w=1 stride_h=1
TRANSPOSE made swap -> back
ADD back c -> sum
LOGISTIC sum -> gate
MUL gate back -> z
TRANSPOSE z swap -> y
"""
"""The transposes meet, and leave a reshape of the constant that is added."""

BALANCED = compile_model(text_model(MODEL), name="m")


@pytest.mark.parametrize("options", [Options(opt="ram"), Options(ram_budget=136), Options(opt="speed", ram_budget=140)])
def test_a_view_of_a_constant_takes_no_memory(options: Options) -> None:
    found = compile_model(text_model(MODEL), name="m", options=options)
    assert found.artifact.metadata["workspace"]["size"] <= BALANCED.artifact.metadata["workspace"]["size"]
    x = np.arange(48, dtype=np.int16).reshape(1, 6, 2, 4) * 600 - 14000
    np.testing.assert_array_equal(found.interpret([x])[0], BALANCED.interpret([x])[0])
