"""LOGISTIC, TANH and the RELU family: every code of random quantisations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from aot.testing import ModelBuilder, Quant, logistic_model
from tests.op._differential import EVERY_CODE, FAST, SLOW, check, quants

RELUS = ["RELU", "RELU6", "RELU_N1_TO_1"]


def unary(name: str, x: Quant, y: Quant, *, version: int = 2) -> bytes:
    b = ModelBuilder()
    source = b.tensor("x", (1, 256), scale=x.scale, zero_point=x.zero_point)
    result = b.tensor("y", (1, 256), scale=y.scale, zero_point=y.zero_point)
    b.op(name, [source], [result], version=version)
    return b.build([source], [result])


def every_code(x: Quant, y: Quant) -> None:
    check(logistic_model(input_shape=(1, 256), x=x), [EVERY_CODE])
    check(unary("TANH", x, Quant(1 / 128, 0)), [EVERY_CODE])
    for name in RELUS:
        check(unary(name, x, y, version=1 if name == "RELU_N1_TO_1" else 2), [EVERY_CODE])


@given(quants(), quants())
@FAST
def test_every_code(x: Quant, y: Quant) -> None:
    every_code(x, y)
    every_code(x, x)


@pytest.mark.slow
@given(quants(), quants())
@SLOW
def test_every_code_often(x: Quant, y: Quant) -> None:
    every_code(x, y)


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 4.0, 1e4])
def test_logistic_of_extreme_scales(scale: float) -> None:
    check(logistic_model(input_shape=(1, 256), x=Quant(float(np.float32(scale)), -7)), [EVERY_CODE])


def test_on_host() -> None:
    check(logistic_model(), host=True)
    check(unary("RELU6", Quant(0.1, 0), Quant(0.05, -128)), [EVERY_CODE], host=True)
