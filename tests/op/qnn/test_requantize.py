"""QUANTIZE between integers of any width: how often, and which way, is rounded."""

from __future__ import annotations

import numpy as np
import pytest

from aot.ir.module import IRModule
from aot.relay.expr import Call, Function, post_order
from aot.relay.transform import pipeline
from aot.testing import ModelBuilder, Quant
from tests.op._differential import check, main_of
from tests.op._one_op import Spec, one_op

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
