"""A kind of target of one's own: models go to its code generator, options have types and defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aot
from aot.errors import UsageError
from aot.ir import op
from aot.ir.module import IRModule
from aot.runtime.functions import Module
from aot.target import Target, TargetOption, register_target_kind
from aot.target import target as targets
from aot.tir.function import PrimFunc
from aot.tir.interpreter import run_module
from aot.tir.intrin import BUILTINS
from tests.cli.helper import Cli

DENSE = Path(__file__).parents[2] / "models" / "dense.tflite"


class Listing(Module):
    """The text of functions."""

    type_key = "listing"

    def __init__(self, module: IRModule, target: Target) -> None:
        super().__init__(module.name)
        self.module, self.target = module, target

    def get_source(self, fmt: str = "c") -> str:
        return str(self.module)


@pytest.fixture(autouse=True)
def kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "_KINDS", dict(targets._KINDS))
    monkeypatch.setattr(op, "_FUNCTIONS", dict(op._FUNCTIONS))
    options = {"num-cores": TargetOption(int, 1, "cores"), "fast": TargetOption(bool, False), "note": "any text"}
    register_target_kind("listing", options=options, codegen=Listing)


def test_a_model_goes_to_its_code_generator() -> None:
    made: Any = aot.build(DENSE, target="listing -mcpu=cortex-m4 -num-cores=2", opt="size", name="d")
    assert isinstance(made, Listing)
    assert made.target.attrs["num-cores"] == 2
    assert "prim_func @d_run(" in made.get_source()
    assert set(made.module.functions) > {"d_run"}
    main = made.module["d_run"]
    assert isinstance(main, PrimFunc)
    assert {b.name for b in main.consts} <= set(made.module.constants["d_run"])


def test_what_the_module_means() -> None:
    """A generator that gets the module, its functions and its constants has all that computes the outputs."""
    made: Any = aot.build(DENSE, target="listing -mcpu=cortex-m4", name="d")
    main = made.module["d_run"]
    x = np.arange(19, dtype="int8").reshape(1, 19)
    y = np.zeros((1, 5), "int8")
    constants = {b.name: made.module.constants["d_run"][b.name] for b in main.consts}
    run_module(main, {**made.module.functions, **BUILTINS}, {main.inputs[0].name: x, main.outputs[0].name: y, **constants})
    assert np.array_equal(y, aot.load(DENSE)(x))


def test_a_generator_that_returns_something_else() -> None:
    register_target_kind("nothing", codegen=lambda _module, _target: 3)
    with pytest.raises(UsageError, match=r"E5074 target.build.nothing returned int, not a runtime.Module or an aot.Artifact"):
        aot.build(DENSE, target="nothing")


def test_what_needs_c_refuses_other_kinds(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    calls: list[Any] = [lambda: aot.load(DENSE, target="listing"), lambda: aot.check(DENSE, target="listing")]
    for call in calls:
        with pytest.raises(UsageError, match=r"E50(81|74)"):
            call()
    done = Cli(capsys)("compile", DENSE, "--target", "listing -mcpu=cortex-m4", "-o", tmp_path / "out")
    assert done.code == 2
    assert "E5081" in done.err


def test_options_have_types_and_defaults() -> None:
    assert Target("listing").attrs == {"keys": "cpu", "mcpu": "host", "num-cores": 1, "fast": False}
    given = Target("listing -num-cores=4 -fast=1 -note=hello")
    assert given.attrs == {"keys": "cpu", "mcpu": "host", "num-cores": 4, "fast": True, "note": "hello"}
    assert (
        Target(str(given)) == given == Target(given) == Target({"kind": "listing", "num-cores": 4, "fast": True, "note": "hello"})
    )
    assert str(given) == "listing -keys=cpu -mcpu=host -fast=1 -note=hello -num-cores=4"
    assert Target("listing -num-cores=1") == Target("listing")
    for wrong in ("-num-cores=abc", "-num-cores=", "-num-cores=1.5", "-fast=perhaps"):
        with pytest.raises(UsageError, match=r"E5010.*the value must be"):
            Target(f"listing {wrong}")


@pytest.mark.parametrize("option", [TargetOption(list), TargetOption(int, "1"), TargetOption(int, True), 3])
def test_wrong_options(option: Any) -> None:
    with pytest.raises(UsageError, match="E5080"):
        register_target_kind("wrong", options={"x": option})
    with pytest.raises(UsageError, match=r"E5080.*of every kind"):
        register_target_kind("wrong", options={"mcpu": "x"})
