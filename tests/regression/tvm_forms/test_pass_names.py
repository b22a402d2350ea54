"""One spelling rule wherever a pass is named, arguments of passes are checked, and so is what a pass over functions returns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import aot
from aot.errors import UsageError
from aot.ir import IRModule, transform
from aot.ir.instrument import StopAfter, Stopped
from aot.ir.transform import (
    Pass,
    PassContext,
    PassInstrument,
    function_pass,
    get_pass,
    is_pass,
    module_pass,
    pass_name,
    prim_func_pass,
    register_pass,
    reset_pass,
)
from aot.testing import add_model
from tests.cli.helper import Cli

MODEL = Path(__file__).resolve().parents[3] / "tests" / "models" / "logistic.tflite"
SPELLINGS = {
    "FuseOps": "fuse_ops",
    "relay.FuseOps": "fuse_ops",
    "tvm.relay.transform.FuseOps": "fuse_ops",
    "DeadCodeElimination": "dead_code",
    "EliminateCommonSubexpr": "eliminate_common_subexpr",
    "LowerTE": "lower_te",
    "AOTLowerMain": "aot_lower_main",
    "tir.UnrollLoop": "unroll_loop",
    "tir.StorageFlatten": "flatten_buffer",
    "tir.transform.Simplify": "simplify",
}


class Ran(PassInstrument):
    """The names of the passes that run."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def run_after_pass(self, module: IRModule, info: Pass) -> None:
        self.names.append(info.name)


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    is_pass("")  # all of the compiler's own
    monkeypatch.setattr(transform, "_PASSES", dict(transform._PASSES))
    monkeypatch.setattr(transform, "_AFTER", dict(transform._AFTER))


@pytest.mark.parametrize(("spelling", "name"), SPELLINGS.items())
def test_every_spelling_is_one_pass(spelling: str, name: str) -> None:
    assert (pass_name(spelling), get_pass(spelling).name) == (name, name)
    with PassContext(required_pass=[spelling], add_pass=[(spelling, lambda module: module)]) as context:
        assert name in context.required_pass
        assert len(context.added_after(name)) == 1


def test_contexts_and_instruments_understand_it() -> None:
    ran = Ran()
    with (
        PassContext(disabled_pass=["relay.EliminateCommonSubexpr"], instruments=[ran, StopAfter("relay.FuseOps")]),
        pytest.raises(Stopped),
    ):
        aot.build(add_model())
    assert ran.names[-1] == "fuse_ops"
    assert "eliminate_common_subexpr" not in ran.names
    made = register_pass(1, "relay.MyPass", after="relay.FuseOps")(lambda module, context: module)
    assert made.name == "my_pass"
    reset_pass("MyPass")


def test_an_instrument_that_waits_for_no_pass_is_refused() -> None:
    with pytest.raises(UsageError, match="E5030"):
        StopAfter("NoSuchPass")


@pytest.mark.parametrize("after", ["FuseOps", "relay.FuseOps", "fuse_ops"])
def test_dump(capsys: pytest.CaptureFixture[str], after: str) -> None:
    cli = Cli(capsys)
    assert cli("dump", MODEL, "--after", after, "--json").json["after"] == "fuse_ops"
    assert cli("dump", MODEL, "--stop-after", after, "--json").json["after"] == "fuse_ops"


@pytest.mark.parametrize(
    "make", [module_pass, function_pass, prim_func_pass, lambda **kw: register_pass(kw.pop("opt_level", 0), **kw)]
)
@pytest.mark.parametrize("wrong", [{"required": ["infer_type"]}, {"required": 1}, {"opt_level": "2"}, {"opt_level": -1}])
def test_arguments_of_a_pass(make: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="E5036") as caught:
        make(**wrong)
    if wrong.get("required"):
        assert "after= names a pass" in str(caught.value)


@pytest.mark.parametrize("on", ["relay", "tir"])
def test_a_pass_over_functions_that_returns_nothing(on: str) -> None:
    register_pass(1, "forgets", on=on, after="infer_type" if on == "relay" else "unroll_loop")(lambda func, context: None)
    with pytest.raises(UsageError, match=r'E5035.*"forgets" returned a NoneType for @\w+, not a (Prim)?Func'):
        aot.build(add_model())
