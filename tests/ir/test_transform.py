"""Passes, contexts, sequences and the registries."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from aot.errors import UsageError
from aot.ir import transform
from aot.ir.module import IRModule
from aot.ir.transform import (
    Pass,
    PassContext,
    PassInstrument,
    Sequential,
    all_options,
    all_passes,
    function_pass,
    get_pass,
    module_pass,
    register_option,
    register_pass,
    reset_pass,
)
from aot.relay.expr import Function
from aot.relay.transform import fuse_ops, pipeline
from tests.relay.toy import Net


@pytest.fixture
def registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of the registries, so that a test may register passes."""
    monkeypatch.setattr(transform, "_PASSES", dict(transform._PASSES))
    monkeypatch.setattr(transform, "_OPTIONS", dict(transform._OPTIONS))
    monkeypatch.setattr(transform, "_AFTER", {})


def _named(name: str, log: list[str], *, opt_level: int = 0, required: bool = False) -> Pass:
    def step(module: IRModule, context: PassContext) -> IRModule:
        log.append(name)
        return module

    return Pass(name, step, opt_level=opt_level, required=required)


def test_contexts_nest() -> None:
    assert PassContext.current() == PassContext()
    with PassContext(opt_level=3) as outer:
        assert PassContext.current() is outer
        with PassContext(opt_level=1) as inner:
            assert PassContext.current() is inner
        assert PassContext.current() is outer
    assert PassContext.current().opt_level == 2


def test_context_is_left_after_an_error() -> None:
    with pytest.raises(RuntimeError, match="inside"), PassContext(opt_level=0):
        raise RuntimeError("inside")
    assert PassContext.current().opt_level == 2


def test_threads_do_not_share_contexts() -> None:
    seen: list[int] = []
    with PassContext(opt_level=0):
        thread = threading.Thread(target=lambda: seen.append(PassContext.current().opt_level))
        thread.start()
        thread.join()
    assert seen == [2]


@pytest.mark.parametrize(("level", "expected"), [(0, ["a", "r"]), (1, ["a", "b", "r"]), (3, ["a", "b", "c", "r"])])
def test_sequential_skips_by_level(level: int, expected: list[str]) -> None:
    log: list[str] = []
    steps = [_named(n, log, opt_level=i) for i, n in enumerate("abc")]
    with PassContext(opt_level=level):
        Sequential((*steps, _named("r", log, opt_level=9, required=True)))(IRModule({}))
    assert log == expected


def test_sequential_skips_disabled_passes() -> None:
    net = Net()
    module = IRModule({"main": net.func(net.op("neg", net.var(2)))})
    ran: list[str] = []

    class Log(PassInstrument):
        def run_after_pass(self, module: IRModule, info: Pass) -> None:
            ran.append(info.name)

    disabled = {"canonicalize", "dead_code"}
    with PassContext(disabled_pass=frozenset(disabled), instruments=(Log(),)):
        pipeline()(module)
    assert ran == [p.name for p in pipeline().passes if p.name not in disabled]


def test_sequences_nest() -> None:
    log: list[str] = []
    inner = Sequential([_named("b", log), _named("c", log, opt_level=3)], "inner")
    extra = Sequential([_named("d", log)], "extra")
    with PassContext(add_pass=[("infer_type", extra)]):
        Sequential([_named("a", log), inner, _named("infer_type", log)])(IRModule({}))
    assert log == ["a", "b", "infer_type", "d"]


def test_a_pass_with_arguments(registries: None) -> None:
    seen: list[int] = []

    @module_pass()
    def counts(module: IRModule, _context: PassContext, *, number: int = 1) -> IRModule:
        seen.append(number)
        return module

    counts.configured(number=5)(counts(IRModule({})))
    assert seen == [1, 5]
    assert counts.configured(number=5).name == "counts"


@pytest.mark.parametrize(
    ("context", "code"),
    [
        (PassContext(disabled_pass=frozenset({"fold_constants"})), "E5030"),
        (PassContext(disabled_pass=frozenset({"fuse_ops"})), "E5031"),
        (PassContext(config={"fuse.residuals": True}), "E5032"),
        (PassContext(config={"fuse.residual": 1}), "E5033"),
        (PassContext(config={"fuse.max_depth": True}), "E5033"),
    ],
)
def test_names_are_checked_on_entering(context: PassContext, code: str) -> None:
    with pytest.raises(UsageError) as caught:
        context.__enter__()
    assert [p.code for p in caught.value.problems] == [code]
    assert PassContext.current() == PassContext()


def test_all_wrong_names_at_once() -> None:
    with pytest.raises(UsageError) as caught, PassContext(disabled_pass=frozenset({"x", "y"}), config={"z": 1}):
        pass
    assert len(caught.value.problems) == 3


def test_options() -> None:
    assert PassContext().option("fuse.residual") is True
    assert PassContext(config={"fuse.residual": False}).option("fuse.residual") is False
    assert "fuse.max_depth" in [o.key for o in all_options()]
    assert all(o.doc for o in all_options())
    with pytest.raises(UsageError, match="twice"):
        register_option("fuse.residual", True, "again")


def test_registry() -> None:
    assert get_pass("fuse_ops") is fuse_ops
    names = [p.name for p in all_passes()]
    assert names == sorted(names)
    assert {"infer_type", "canonicalize", "fold_constant", "eliminate_common_subexpr", "dead_code", "fuse_ops"} <= set(names)
    assert all(p.doc for p in all_passes()), "every pass states its contract"
    with pytest.raises(UsageError, match="E5030"):
        get_pass("no_such")


@pytest.mark.usefixtures("registries")
def test_decorators() -> None:
    @function_pass(opt_level=3)
    def twice(func: Function, context: PassContext) -> Function:
        """A function pass."""
        return Function(func.params, func.body, {"level": context.opt_level})

    @module_pass(required=True)
    def rename(module: IRModule, context: PassContext) -> IRModule:
        """A module pass."""
        return IRModule(module.functions, "renamed")

    assert (twice.name, twice.opt_level, twice.required, twice.doc) == ("twice", 3, False, "A function pass.")
    assert (rename.name, rename.required) == ("rename", True)
    foreign = object()
    net = Net()
    module = IRModule({"main": net.func(net.op("neg", net.var(2))), "other": foreign})
    result = rename(twice(module))
    assert result.name == "renamed"
    assert result["main"].attrs == {"level": 2}  # type: ignore[attr-defined]
    assert result["other"] is foreign
    with pytest.raises(UsageError, match="twice"):

        @module_pass()
        def rename(module: IRModule, context: PassContext) -> IRModule:
            return module


def test_a_failing_pass_is_named() -> None:
    def fail(module: IRModule, context: PassContext) -> IRModule:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        Pass("halve", fail)(IRModule({}))
    assert caught.value.__notes__ == ["in pass halve"]


def test_order_of_instruments() -> None:
    log: list[str] = []

    class Log(PassInstrument):
        def __init__(self, name: str) -> None:
            self.name = name

        def enter_pass_ctx(self) -> None:
            log.append(f"{self.name} enter")

        def exit_pass_ctx(self) -> None:
            log.append(f"{self.name} exit")

        def run_before_pass(self, module: IRModule, info: Pass) -> None:
            log.append(f"{self.name} before {info.name}")

        def run_after_pass(self, module: IRModule, info: Pass) -> None:
            log.append(f"{self.name} after {info.name}")

    with PassContext(instruments=(Log("1"), Log("2"))):
        _named("p", log)(IRModule({}))
    assert log == ["1 enter", "2 enter", "1 before p", "2 before p", "p", "1 after p", "2 after p", "2 exit", "1 exit"]


def _log(log: list[str], name: str) -> Callable[[IRModule], IRModule]:
    def step(module: IRModule) -> IRModule:
        log.append(name)
        return module

    return step


def test_add_pass_runs_after_the_last_of_the_name() -> None:
    log: list[str] = []
    own = _named("own", log)
    net = Net()
    module = IRModule({"main": net.func(net.op("neg", net.var(2)))})

    class Log(PassInstrument):
        def run_after_pass(self, module: IRModule, info: Pass) -> None:
            seen.append(info.name)

    seen: list[str] = []
    with PassContext(
        add_pass=[("FuseOps", own), ("canonicalize", "dead_code"), ("InferType", _log(log, "plain"))], instruments=[Log()]
    ):
        pipeline()(module)
    assert log == ["plain", "own"]
    assert seen[-2:] == ["fuse_ops", "own"]
    assert seen[seen.index("canonicalize") + 1] == "dead_code"


def test_required_pass_runs_at_any_level() -> None:
    seen: list[str] = []

    class Log(PassInstrument):
        def run_after_pass(self, module: IRModule, info: Pass) -> None:
            seen.append(info.name)

    net = Net()
    module = IRModule({"main": net.func(net.op("neg", net.var(2)))})
    with PassContext(opt_level=0, required_pass=["FoldConstant"], instruments=[Log()]):
        pipeline(0)(module)
    assert seen == ["infer_type", "fold_constant", "fuse_ops"]


@pytest.mark.usefixtures("registries")
def test_a_registered_pass_runs_in_the_pipeline_and_can_be_disabled() -> None:
    log: list[str] = []

    @register_pass(opt_level=1, name="Count", after="Canonicalize", on="relay")
    def count(func: Function, context: PassContext) -> Function:
        """Counts."""
        log.append("count")
        return func

    net = Net()
    module = IRModule({"main": net.func(net.op("neg", net.var(2)))})
    assert count.name == "count"
    pipeline()(module)
    with PassContext(disabled_pass=["count"]):
        pipeline()(module)
    assert log == ["count"]
    reset_pass("count")
    pipeline()(module)
    assert log == ["count"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"opt_level": "2"},
        {"opt_level": -1},
        {"required_pass": "fuse_ops"},
        {"disabled_pass": [1]},
        {"config": [1]},
        {"config": {1: 2}},
        {"instruments": [print]},
        {"add_pass": ["fuse_ops"]},
        {"add_pass": [("fuse_ops", 3)]},
    ],
)
def test_what_a_context_cannot_be_made_of(arguments: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"E5034 test_transform\.py:\d+"):
        PassContext(**arguments)


@pytest.mark.parametrize("arguments", [{"opt_level": "a"}, {"opt_level": 1, "after": "nope"}, {"opt_level": 1, "on": "c"}])
def test_what_register_pass_refuses(arguments: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"E5036 test_transform\.py:\d+"):
        register_pass(**arguments)


def test_add_pass_after_no_pass() -> None:
    with pytest.raises(UsageError, match="E5030"), PassContext(add_pass=[("NoSuch", lambda module: module)]):
        pass


def test_a_pass_that_returns_no_module() -> None:
    with pytest.raises(UsageError, match="E5035"):
        Pass("lost", lambda module, context: None)(IRModule({}))  # type: ignore[arg-type, return-value]
