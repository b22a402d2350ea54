"""QUANTIZE between integers of any width: how often, and which way, is rounded."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from aot.ir.module import IRModule
from aot.relay.expr import Call, Function, post_order
from aot.relay.transform import pipeline
from aot.testing import ModelBuilder, Quant, requantize_model
from tests.op._differential import EVERY_CODE, FAST, SLOW, check, check_tflm, main_of, quants
from tests.op._one_op import Spec, one_op
from tests.op.qnn._conversion import CODES, model

CONVERSIONS = [("int16", "int8"), ("int16", "int16"), ("int16", "int32"), ("int32", "int16"), ("int8", "int16")]


@pytest.mark.parametrize(("source", "target"), CONVERSIONS)
def test_types(source: str, target: str) -> None:
    x = Quant(0.003, 0 if source != "int8" else 5)
    y = Quant(0.011, 0 if target != "int8" else -7)
    data = np.random.default_rng(0).integers(-30000, 30000, (1, 300)).astype(np.int64)
    data = (data >> 8 if source == "int8" else data).astype(source)
    check(one_op("QUANTIZE", [Spec((1, 300), source, x)], [Spec((1, 300), target, y)], version=3), [data])
    if target == "int16":
        check(one_op("QUANTIZE", [Spec((1, 300), "float32")], [Spec((1, 300), target, y)], version=3))
        check(one_op("DEQUANTIZE", [Spec((1, 300), target, y)], [Spec((1, 300), "float32")], version=3))


def test_shifts_between_legacy_operators_vanish() -> None:
    """ADD, RESHAPE, ADD on uint8: one shift to int8 at the input, one back at the output."""
    b = ModelBuilder()
    q = {"scale": 0.05, "zero_point": 130}
    x, first = (b.tensor(n, (2, 6), "uint8", **q) for n in ("x", "first"))
    shape = b.tensor("shape", (2,), "int32", data=np.array([3, 4], np.int32))
    reshaped, last = (b.tensor(n, (3, 4), "uint8", **q) for n in ("reshaped", "last"))
    b.op("ADD", [x, x], [first])
    b.op("RESHAPE", [first, shape], [reshaped], new_shape=np.array([3, 4], np.int32))
    b.op("ADD", [reshaped, reshaped], [last])
    model = b.build([x], [last])
    check(model)
    func = pipeline()(IRModule({"main": main_of(model)}))["main"]
    assert isinstance(func, Function)
    calls = [str(e.op) for f in groups_of(func) for e in post_order(f.body) if isinstance(e, Call)]
    assert calls.count("qnn.requantize8") == 2


def groups_of(func: Function) -> list[Function]:
    """The primitive functions of a fused graph."""
    return [e.op for e in post_order(func.body) if isinstance(e, Call) and isinstance(e.op, Function)]


@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("scales", [(0.5, 0.5), (0.5, 0.25), (0.01, 0.5), (3.0, 0.002)])
@pytest.mark.parametrize("zero_point", [0, -7, 1 << 30])
def test_the_ends_of_int32(dtype: str, scales: tuple[float, float], zero_point: int) -> None:
    """Differences and left shifts wrap there, equal scales included, and no sum overflows."""
    end = (1 << 31) - 1
    x = np.array([-end - 1, -end, -end + 6, -(1 << 30), -1000, -1, 0, 1, 12, 1 << 30, end - 7, end - 1, end] * 20, np.int64)[:256]
    check(
        model("int32", dtype, Quant(scales[0], zero_point), Quant(scales[1], 7 if dtype == "int8" else 0)),
        [x.astype(np.int32).reshape(1, 256)],
    )


@given(quants(), quants())
@FAST
def test_between_codes(x: Quant, y: Quant) -> None:
    check(requantize_model(input_shape=(1, 256), x=x, y=y), [EVERY_CODE])
    check(requantize_model(input_shape=(1, 256), x=x, y=Quant(x.scale, y.zero_point)), [EVERY_CODE])


@pytest.mark.slow
@given(quants(), quants())
@SLOW
def test_between_codes_often(x: Quant, y: Quant) -> None:
    check(requantize_model(input_shape=(1, 256), x=x, y=y), [EVERY_CODE])


@pytest.mark.parametrize(("source", "result"), [("uint8", "int8"), ("int8", "uint8")])
@pytest.mark.parametrize("scale", [0.5, 0.3])
def test_between_signed_and_unsigned(source: str, result: str, scale: float) -> None:
    x, y = Quant(0.5, 7 if source == "int8" else 135), Quant(scale, 7 if result == "int8" else 135)
    check(model(source, result, x, y), [CODES[source]], host=True)


def test_to_int32() -> None:
    """TFLM alone has it."""
    check_tflm(model("int8", "int32", Quant(0.5, 7), Quant(0.003, 0)), [EVERY_CODE])


def test_on_host() -> None:
    check(requantize_model(), host=True)
