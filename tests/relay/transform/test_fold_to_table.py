"""fold_to_table: functions of one byte, as converters write them, become one table with the same results for every code."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from aot import op as operators
from aot.ir.module import IRModule
from aot.ir.type import TensorType, per_tensor
from aot.op.math.arithmetic import BinaryAttrs
from aot.op.math.unary import UnaryAttrs
from aot.op.qnn.arithmetic import MultiplyAttrs
from aot.op.qnn.lut import LutAttrs
from aot.op.qnn.quantize import DequantizeAttrs, QuantizeAttrs
from aot.relay.expr import Call, Expr, Function, Var, call, const, make_tuple, post_order
from aot.relay.interpreter import evaluate
from aot.relay.transform import fold_to_table

operators.load_all()

QUANT = per_tensor(0.05, 3)
SHAPE = (1, 16, 16)
TABLE = tuple((7 * i) % 256 - 128 for i in range(256))


def multiply(a: Expr, b: Expr) -> Expr:
    return call("qnn.multiply", [a, b], MultiplyAttrs((3, -5), 1518500250, -6, 1, -128, 127, QUANT))


def silu(x: Expr) -> Expr:
    return multiply(x, call("qnn.lut", [x], LutAttrs(TABLE, per_tensor(1 / 256, -128))))


def through_float(x: Expr) -> Expr:
    real = call("qnn.dequantize", [x], DequantizeAttrs(0.05, 3))
    gate = call("sigmoid", [real], UnaryAttrs())
    half = call("add", [call("multiply", [real, gate], BinaryAttrs()), const(np.full((1, 1, 1), 0.5, np.float32))], BinaryAttrs())
    return call("qnn.quantize", [half], QuantizeAttrs(0.04, -20, -128, 127))


def twice(x: Expr) -> Expr:
    return multiply(x, x)


def with_constant_first(x: Expr) -> Expr:
    return silu(multiply(const(np.full((1,), 90, np.int8), quant=QUANT), x))


def calls(func: Function) -> list[str]:
    return [str(e.op) for e in post_order(func.body) if isinstance(e, Call)]


def folded(params: tuple[Var, ...], body: Expr) -> Function:
    main = fold_to_table(IRModule({"main": Function(params, body)}))["main"]
    assert isinstance(main, Function)
    return main


def variable(name: str = "x", shape: tuple[int, ...] = SHAPE) -> Var:
    return Var(name, TensorType(shape, "int8", QUANT))


@pytest.mark.parametrize("function", [silu, through_float, twice, with_constant_first, lambda x: silu(through_float(x))])
def test_a_function_of_one_byte_is_one_table(function: Callable[[Expr], Expr]) -> None:
    x = variable()
    body = function(x)
    new = folded((x,), body)
    assert calls(new) == ["qnn.lut"]
    codes = np.arange(-128, 128).astype(np.int8).reshape(SHAPE)
    (expected,), (found,) = evaluate(Function((x,), body), [codes]), evaluate(new, [codes])
    np.testing.assert_array_equal(found, expected)
    assert new.body.type == body.type


def test_two_tensors_are_no_function_of_one() -> None:
    x, y = variable(), variable("y")
    assert calls(folded((x, y), multiply(silu(x), y))) == ["qnn.lut", "qnn.multiply"]


def test_broadcast_operands_and_constants_of_many_values_stay() -> None:
    x, column = variable(), variable("y", (1, 16, 1))
    assert calls(folded((x, column), multiply(x, silu(column)))) == ["qnn.lut", "qnn.multiply"]
    many = const(np.arange(16).astype(np.int8), quant=QUANT)
    assert calls(folded((x,), multiply(x, many))) == ["qnn.multiply"]


def test_a_single_call_stays() -> None:
    x = variable()
    dequantized = call("qnn.dequantize", [x], DequantizeAttrs(0.05, 3))
    assert calls(folded((x,), dequantized)) == ["qnn.dequantize"]
    assert calls(folded((x,), call("qnn.lut", [x], LutAttrs(TABLE, QUANT)))) == ["qnn.lut"]


def gate(x: Expr) -> Expr:
    real = call("qnn.dequantize", [x], DequantizeAttrs(0.05, 3))
    return call("multiply", [real, call("sigmoid", [real], UnaryAttrs())], BinaryAttrs())


def test_a_float_that_a_sum_reads_is_a_table_of_floats() -> None:
    x, y = variable(shape=(1, 1024)), Var("y", TensorType((1, 1024), "float32"))
    real = gate(x)
    quantized = call("qnn.quantize", [real], QuantizeAttrs(0.04, -20, -128, 127))
    new = folded((x, y), make_tuple([quantized, call("add", [real, y], BinaryAttrs())]))
    assert sorted(calls(new)) == ["add", "qnn.lut", "qnn.lut_float"]
    codes, other = np.resize(np.arange(-128, 128), (1, 1024)).astype(np.int8), np.ones((1, 1024), np.float32)
    old = Function((x, y), make_tuple([quantized, call("add", [real, y], BinaryAttrs())]))
    for a, b in zip(evaluate(old, [codes, other]), evaluate(new, [codes, other]), strict=True):
        np.testing.assert_array_equal(a, b)


def test_few_floats_are_computed() -> None:
    x = variable(shape=(1, 1000))
    assert calls(folded((x,), gate(x))) == ["qnn.dequantize", "sigmoid", "multiply"]
    wide = variable(shape=(1, 1024))
    assert calls(folded((wide,), gate(wide))) == ["qnn.lut_float"]
