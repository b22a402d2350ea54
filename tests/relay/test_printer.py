"""Relay text: stable, one line a call."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aot.ir.module import IRModule
from aot.ir.span import Span
from aot.ir.type import QuantParams, TensorType, per_tensor
from aot.relay.expr import Constant, Function, Var, const, get_item, make_tuple
from aot.relay.printer import print_func, print_module
from tests.relay.toy import Net, Note, ScaleAttrs


@dataclass(frozen=True, slots=True)
class _Attrs(Note):
    pair: tuple[int, int] = (1, 2)
    many: tuple[int, ...] = ()
    quant: QuantParams | None = None
    table: object = None
    real: float = 0.5
    inner: ScaleAttrs | None = None


def test_golden(golden) -> None:  # type: ignore[no-untyped-def]
    net = Net()
    x = net.var(2, 4, name="conv 1/in put:0\n")
    y = net.var(2, 4, name="7")
    weights = Constant(np.arange(4, dtype=np.int8), TensorType((4,), "int8"), Span(name="w/0"))
    again = Constant(np.arange(4, dtype=np.int8) + 1, TensorType((4,), "int8"), Span(name="w/0"))
    a = net.op("add", net.op("scale", x, attrs=ScaleAttrs(3, 4)), weights)
    many = tuple(range(40))
    table = np.arange(6, dtype=np.int16).reshape(2, 3)
    b = net.op(
        "noted", net.op("add", y, again), attrs=_Attrs(None, (3, 4), many, per_tensor(0.1, -3), table, 0.25, ScaleAttrs(1, 2))
    )
    halves = net.op("split", b)
    empty = net.op("noted", a, attrs=_Attrs())
    golden("printer.relay", print_func(net.func(make_tuple([empty, get_item(halves, 0), get_item(halves, 1), x])), "net"))


def test_text_does_not_depend_on_byte_order_or_layout() -> None:
    net = Net()
    x = net.var(2, 4)
    values = np.arange(8, dtype=np.int16).reshape(2, 4)
    same = [values, values.astype(">i2"), np.asfortranarray(values)]
    texts = {print_func(Function((x,), const(v, dtype="int16"))) for v in same}
    assert len(texts) == 1


def test_variables_of_one_name_differ() -> None:
    a, b = (Var("x", TensorType((1,), "int8")) for _ in range(2))
    text = print_func(Function((a, b), make_tuple([b, a])))
    assert text == "def @main(%x: int8[1], %x_1: int8[1]) -> (int8[1], int8[1]) {\n  (%x_1, %x)\n}\n"


def test_module() -> None:
    net = Net()
    func = net.func(net.op("neg", net.var(2)))
    text = print_module(IRModule({"main": func, "other": func, "foreign": object()}))
    assert text.count("def @") == 2
    assert "def @other(" in text
