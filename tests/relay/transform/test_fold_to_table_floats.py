"""fold_to_steps: chains of floats that end in QUANTIZE become one operator where that is worth a table."""

from __future__ import annotations

import numpy as np

from aot.ir.type import TensorType
from aot.op import load_all
from aot.op.qnn.quantize import QuantizeAttrs
from aot.relay.construct import constructor
from aot.relay.expr import Expr, Function, Var, call, const, make_tuple
from aot.relay.transform.fold_to_table import fold_to_steps
from tests.relay.check import ops, run

load_all()


def var(size: int = 1024) -> Var:
    return Var("x", TensorType((1, size), "float32"))


def op(name: str, *args: Expr) -> Expr:
    return constructor(name)(*args)


def quantized(x: Expr) -> Expr:
    return call("qnn.quantize", [x], QuantizeAttrs(0.02, -100, -128, 127))


def silu(x: Expr) -> Expr:
    return op("multiply", x, op("sigmoid", x))


def test_behind_a_sum_of_two_tensors() -> None:
    x, y = var(), Var("y", TensorType((1, 1024), "float32"))
    body = quantized(silu(op("add", x, y)))
    assert ops(run(fold_to_steps, Function((x, y), body))) == ["add", "qnn.steps"]


def test_one_behind_the_other() -> None:
    x = var()
    first = quantized(silu(x))
    real = constructor("qnn.dequantize")(first, scale=0.02, zero_point=-100)
    per_element = op("multiply", real, const(np.linspace(-1, 1, 1024, dtype=np.float32)))
    found = run(fold_to_steps, Function((x,), quantized(silu(per_element))))
    assert ops(found) == ["qnn.steps", "qnn.dequantize", "multiply", "qnn.steps"]


def test_a_result_that_is_read_elsewhere_is_computed_once() -> None:
    x = var()
    gate = silu(x)
    body = make_tuple([quantized(gate), op("add", gate, const(np.float32(1)))])
    assert "qnn.steps" not in ops(run(fold_to_steps, Function((x,), body)))


def test_the_function_result_between_is_read_too() -> None:
    x = var()
    gate = silu(x)
    assert "qnn.steps" not in ops(run(fold_to_steps, Function((x,), make_tuple([quantized(gate), gate]))))


def test_few_elements_and_cheap_chains_stay() -> None:
    for x, body in ((s := var(1000), quantized(silu(s))), (m := var(), quantized(op("multiply", m, m)))):
        assert "qnn.steps" not in ops(run(fold_to_steps, Function((x,), body)))
