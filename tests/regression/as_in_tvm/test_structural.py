"""Structural equality and hash: by position, for both IRs, of deep and of diamond-shaped graphs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aot import relay, structural_equal, structural_hash
from aot.driver.build import compile_model
from aot.errors import UsageError
from aot.frontend.tflite import from_tflite
from aot.ir import IRModule
from aot.ir.instrument import PassInstrument
from aot.ir.transform import Pass, PassContext
from aot.tir.builder import IRBuilder
from aot.tir.expr import BinOp, Expr, Var
from aot.tir.function import PrimFunc

MODELS = Path(__file__).parents[2] / "models"


def var(name: str = "x", shape: tuple[int, ...] = (4,)) -> relay.Var:
    return relay.var(name, shape=shape, dtype="int32")


def alike(a: Any, b: Any) -> bool:
    """Whether two are equal, from either side; the hash has to agree."""
    same = structural_equal(a, b)
    assert structural_equal(b, a) == same
    assert (structural_hash(a) == structural_hash(b)) == same
    return same


def function(*, first: bool = False, names: tuple[str, str] = ("x", "x"), shape: tuple[int, ...] = (4,)) -> relay.Function:
    x1, x2 = (var(n, shape) for n in names)
    return relay.Function((x1, x2), relay.add(x1, x1 if first else x2))


def test_variables_count_by_position() -> None:
    assert alike(function(), function())
    assert alike(function(), function(names=("a", "b")))
    assert not alike(function(), function(first=True))
    assert not alike(function(), function(shape=(5,)))


def test_free_variables_are_equal_to_themselves() -> None:
    x, y, z = var("x"), var("x"), var("z")
    assert alike(relay.add(x, y), relay.add(x, y))
    assert not alike(relay.add(x, y), relay.add(x, z))
    assert structural_equal(relay.add(x, y), relay.add(z, x), map_free_vars=True)
    assert structural_hash(relay.add(x, y), map_free_vars=True) == structural_hash(relay.add(z, x), map_free_vars=True)
    assert not structural_equal(relay.add(x, y), relay.add(z, z), map_free_vars=True)
    assert structural_hash(relay.add(x, y), map_free_vars=True) != structural_hash(relay.add(z, z), map_free_vars=True)


def chain(depth: int, *, diamonds: bool, last: int = 1) -> relay.Function:
    x = var()
    y: relay.Expr = x
    for i in range(depth):
        y = relay.add(y, y if diamonds else np.full(4, last if i == 0 else 1, "int32"))
    return relay.Function((x,), y)


@pytest.mark.slow
@pytest.mark.parametrize("diamonds", [True, False])
def test_deep_graphs(diamonds: bool) -> None:
    assert alike(chain(3000, diamonds=diamonds), chain(3000, diamonds=diamonds))
    assert not alike(chain(3000, diamonds=diamonds), chain(2999, diamonds=diamonds))
    assert diamonds or not alike(chain(3000, diamonds=False), chain(3000, diamonds=False, last=2))


def test_a_shared_node_is_not_two_nodes() -> None:
    def squares(*, shared: bool) -> relay.Function:
        x = var()
        a = relay.multiply(x, x)
        return relay.Function((x,), relay.add(a, a if shared else relay.multiply(x, x)))

    assert alike(squares(shared=True), squares(shared=True))
    assert not alike(squares(shared=True), squares(shared=False))


def loops(*, name: str = "i", number: int = 1, dtype: str = "int32", buffer: str = "x", depth: int = 1) -> PrimFunc:
    b = IRBuilder("f")
    x, y = b.input(buffer, (4,), dtype), b.output("y", (4,), dtype)
    with b.for_(name, 4) as i:
        value: Expr = x[i]
        for _ in range(depth):
            value = BinOp("+", value, value)
        b.store(y, i, value + number)
    return b.finish()


def test_loop_nests() -> None:
    assert alike(loops(), loops(name="k", buffer="z"))
    assert not alike(loops(), loops(number=2))
    assert not alike(loops(), loops(dtype="int16"))
    assert alike(loops(depth=3000), loops(depth=3000))
    assert not alike(loops(depth=3000), loops(depth=3001))


def test_variables_of_loop_nests_count_by_position() -> None:
    def swapped(*, swap: bool) -> PrimFunc:
        b = IRBuilder("f")
        x, y = b.input("x", (4, 4), "int32"), b.output("y", (4, 4), "int32")
        with b.for_("i", 4) as i, b.for_("i", 4) as j:
            b.store(y, (i, j), x[(j, i) if swap else (i, j)])
        return b.finish()

    assert alike(swapped(swap=True), swapped(swap=True))
    assert not alike(swapped(swap=True), swapped(swap=False))


def test_modules_of_both_irs() -> None:
    data = {"f": {"x": np.arange(4, dtype="int32")}}
    for a, b, other in (
        (IRModule({"main": function()}), IRModule({"main": function()}), IRModule({"main": function(first=True)})),
        (IRModule({"f": loops()}), IRModule({"f": loops(name="k")}), IRModule({"f": loops()}, constants=data)),
    ):
        assert alike(a, b)
        assert not alike(a, other)
    assert not alike(IRModule({"f": function()}), IRModule({"f": loops()}))
    both = {"f": loops(), "g": loops(number=2)}
    assert alike(IRModule(both), IRModule(dict(reversed(both.items()))))


def last_module(file: Path) -> IRModule:
    """A model as it is printed."""

    class Keep(PassInstrument):
        def run_after_pass(self, module: IRModule, info: Pass) -> None:
            kept.append(module)

    kept: list[IRModule] = []
    with PassContext(instruments=[Keep()]):
        compile_model(file, name="m")
    return kept[-1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["net_kws_dscnn", "softmax"])
def test_compiled_twice(name: str) -> None:
    file = MODELS / f"{name}.tflite"
    assert alike(*(from_tflite(file.read_bytes(), oracle="litert", name="m") for _ in range(2)))
    assert alike(last_module(file), last_module(file))


def test_the_hash_is_the_same_in_every_process() -> None:
    text = (
        "from aot import relay, structural_hash\nx = relay.var('x', shape=(4,), dtype='int8')\n"
        "print(structural_hash(relay.Function((x,), relay.clip(x, -3, 7))))"
    )
    runs = [
        subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True, timeout=120) for _ in range(2)
    ]
    assert runs[0].stdout == runs[1].stdout


def test_what_belongs_to_no_ir_is_refused() -> None:
    for wrong in (3, "x", None, relay.Var):
        with pytest.raises(UsageError, match="E5104"):
            structural_hash(wrong)
        with pytest.raises(UsageError, match="E5104"):
            structural_equal(function(), wrong)
    assert not structural_equal(Var("i"), function())
