"""PassContext: what an instrument that fails leaves behind, who is entered how often, who says that a pass runs."""

from __future__ import annotations

from pathlib import Path

import pytest

import aot
from aot.errors import UsageError
from aot.ir.instrument import PassInstrument, PassTimingInstrument, pass_instrument
from aot.ir.module import IRModule
from aot.ir.transform import Pass, PassContext

DENSE = Path(__file__).parents[2] / "models" / "dense.tflite"


class Log(PassInstrument):
    def __init__(self, log: list[str], name: str = "", *, fails: str = "") -> None:
        self.log, self.name, self.fails = log, name, fails

    def enter_pass_ctx(self) -> None:
        self._note("enter")

    def exit_pass_ctx(self) -> None:
        self._note("exit")

    def _note(self, what: str) -> None:
        self.log.append(f"{self.name}{what}")
        if what == self.fails:
            raise ValueError(what)


def test_a_failing_enter_leaves_no_context() -> None:
    log: list[str] = []
    failing = PassContext(opt_level=0, instruments=[Log(log, "a "), Log(log, "b ", fails="enter"), Log(log, "c ")])
    with pytest.raises(ValueError, match="enter"), failing:
        pass
    assert PassContext.current() == PassContext()
    assert log == ["a enter", "b enter", "a exit"]


def test_a_failing_exit_ends_the_others_and_leaves_no_context() -> None:
    log: list[str] = []
    with pytest.raises(ValueError, match="exit"), PassContext(instruments=[Log(log, "a "), Log(log, "b ", fails="exit")]):
        pass
    assert PassContext.current() == PassContext()
    assert log == ["a enter", "b enter", "b exit", "a exit"]


def test_a_build_enters_an_instrument_once() -> None:
    log: list[str] = []
    with PassContext(instruments=[Log(log)]):
        aot.build(DENSE, opt="ram", ram_budget=4000)
    assert log == ["enter", "exit"]


@pytest.mark.parametrize("budget", [None, 4000])
def test_should_run_decides_in_every_attempt(budget: int | None) -> None:
    class NoSimplify(PassInstrument):
        def should_run(self, module: IRModule, info: Pass) -> bool:
            asked.add(info.name)
            return info.name != "simplify"

    asked: set[str] = set()
    with PassContext(disabled_pass=["Simplify"]):
        expected = aot.build(DENSE, ram_budget=budget)
    with PassContext(instruments=[NoSimplify()]):
        assert aot.build(DENSE, ram_budget=budget).files == expected.files
    assert "simplify" in asked
    assert "infer_type" not in asked  # required


def test_pass_instrument_makes_one_of_a_plain_class() -> None:
    @pass_instrument
    class Names:
        """Collects names."""

        def __init__(self, first: str) -> None:
            self.names = [first]

        def run_after_pass(self, module: IRModule, info: Pass) -> None:
            self.names.append(info.name)

    names = Names("first")
    assert isinstance(names, PassInstrument)
    assert Names.__doc__ == "Collects names."
    with PassContext(instruments=[names]):
        Pass("p", lambda module, _: module)(IRModule({}))
    assert names.names == ["first", "p"]


def test_a_method_by_its_former_name_is_refused() -> None:
    with pytest.raises(UsageError, match=r"E5037.*name it run_after_pass"):
        pass_instrument(type("Late", (), {"after": lambda *_: None}))
    with pytest.raises(UsageError, match=r"E5037.*decorates a class"):
        pass_instrument(3)  # type: ignore[type-var]


def test_timing_renders_a_table() -> None:
    timing = PassTimingInstrument()
    with PassContext(instruments=[timing]):
        aot.build(DENSE)
    assert [line.split()[-2:] for line in timing.render().splitlines() if "simplify" in line][-1] == ["2x", "simplify"]
