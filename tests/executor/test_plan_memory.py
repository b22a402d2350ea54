"""Windows of a state that lie in the workspace, and rows that move on in their place: memory, order, and the same outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aot.driver.build import compile_model
from aot.driver.options import Options
from aot.executor.emit import LoweredOutput
from aot.executor.plan_memory import shifted_by_copy
from aot.ir.module import IRModule
from aot.ir.type import TensorType, per_tensor
from aot.op.nn.conv import Conv2DAttrs
from aot.op.qnn.quantize import RequantizeAttrs
from aot.relay.expr import Expr, Function, Var, call, const, make_tuple
from aot.relay.interpreter import evaluate
from tests.relay.slide_nets import SlideNet, slide_net, windows

ROWS, WIDTH = 40, 16


def chain(padding: int, *, layers: int = 2, hop: int = 4) -> SlideNet:
    """Convolutions over five rows, `padding` of them before and after the window; of all rows one sum at the end."""
    rng = np.random.default_rng(1)
    x = Var("x", TensorType((1, ROWS, 1, WIDTH), "int8", per_tensor(0.5, 0)))
    y: Expr = x
    for _ in range(layers):
        weights = const(rng.integers(-20, 21, (WIDTH, 5, 1, WIDTH)).astype(np.int8))
        y = call("nn.conv2d", [y, weights], Conv2DAttrs((1, 1), (padding, 0, padding, 0)))
        y = call("qnn.requantize", [y], RequantizeAttrs((1 << 30,) * WIDTH, (-7,) * WIDTH, 0, -128, 127, "double"))
    return SlideNet(Function((x,), make_tuple([y])), 1, hop)


def compiled(net: SlideNet, **options: Any) -> LoweredOutput:
    given = Options(slide=(("x", net.hop),), slide_axis=net.axis, **options)
    return compile_model(IRModule({"main": net.main}), target="host", options=given)


def check(net: SlideNet, made: LoweredOutput) -> None:
    from aot.runtime.graph import GraphModule

    graph = GraphModule(made.artifact)
    for rows, window in windows(net, 14, seed=3):
        graph.set_input(0, rows)
        graph.run()
        np.testing.assert_array_equal(graph.get_output(0), evaluate(net.main, [window])[0])


def test_rows_that_no_window_needs_move_on_where_they_lie() -> None:
    """With padding behind the new rows the state is as long as what is kept, but for the new rows of the input."""
    net = chain(2)
    made = compiled(net, rings="copy")
    info = made.artifact.metadata
    assert info["state"]["size"] == info["slide"]["rows_bytes"] + net.hop * WIDTH
    moved = [s for s in made.lowered.states if shifted_by_copy(made.lowered, s) is not None]
    assert moved
    for state in moved:
        calls = [i for i, c in enumerate(made.lowered.calls) if state.old in map(made.lowered.root, c.inputs)]
        assert made.lowered.calls[calls[-1]].outputs == (state.new,), "nothing reads the old rows after that"
    check(net, made)


def test_they_are_windows_where_there_is_room_to_move_on() -> None:
    net = chain(2)
    made = compiled(net, rings="slide")
    rings = made.layout.rings
    assert rings is not None
    assert len(rings.windows) == len(made.lowered.states)
    assert made.artifact.metadata["state"]["bytes_moved"] < compiled(net, rings="copy").artifact.metadata["state"]["bytes_moved"]
    check(net, made)


@pytest.mark.parametrize("kind", ["auto", "copy", "slide"])
def test_a_window_lies_in_the_workspace_where_all_memory_gets_less_by_it(kind: Any) -> None:
    """The state is hardly more than what is kept then, and never at the cost of the workspace."""
    net = slide_net(4)
    made, slid = compiled(net, rings=kind), compiled(net, rings="slide")
    state, kept = made.artifact.metadata["state"], made.artifact.metadata["slide"]["rows_bytes"]
    visiting = [s for s in made.lowered.states if s.fresh is not None]
    assert bool(visiting) == (kind != "slide")
    if visiting:
        assert state["size"] + made.layout.plan.size < slid.artifact.metadata["state"]["size"] + slid.layout.plan.size
        assert state["bytes_moved"] >= sum(2 * s.old.type.nbytes - (s.fresh or 0) for s in visiting), "there and back"
    assert kept == slid.artifact.metadata["slide"]["rows_bytes"]
    check(net, made)
