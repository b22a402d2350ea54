"""Rows of a state that are copied to where layers write theirs beside them."""

from __future__ import annotations

from aot.driver.build import compile_model
from aot.driver.options import Options
from aot.executor.copy_elision import rows_of, with_gathered_rows
from aot.ir.module import IRModule
from aot.ir.type import TensorType
from tests.relay.slide_nets import slide_net


def test_rows_of_some_bytes() -> None:
    type_ = TensorType((1, 5, 3), "int16")
    assert rows_of(type_, 12) == (1, 2, 3)
    assert rows_of(type_, 8) == (4,)


def test_layers_write_beside_the_rows_that_were_kept() -> None:
    net = slide_net(2)
    options = Options(slide=(("x", net.hop),), slide_axis=net.axis)
    lowered = compile_model(IRModule({"main": net.main}), options=options).lowered
    olds = {lowered.root(s.old) for s in lowered.states}
    writers: dict[object, set[bool]] = {}
    for call in lowered.calls:
        for t in call.outputs:
            writers.setdefault(lowered.root(t), set()).add(call.func.startswith("keep_"))
    assert any(kinds == {True, False} for root, kinds in writers.items() if root not in olds)
    assert with_gathered_rows(lowered, 0) is lowered, "no result is that short"


def test_without_a_state_nothing_is_copied() -> None:
    lowered = compile_model(IRModule({"main": slide_net(12).main})).lowered
    assert with_gathered_rows(lowered, 1 << 20) is lowered
