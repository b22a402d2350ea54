"""Models of operators with a state, in relay, C and TFLM over several steps."""

from __future__ import annotations

from aot.driver.build import compile_model
from aot.driver.options import Options
from aot.relay.interpreter import StatefulFunction
from aot.runtime.module import load
from aot.testing import HAVE_TFLM
from aot.testing.reference import tflm_sets
from tests.op._differential import main_of, same
from tests.op._drawn_count import count
from tests.op._one_op import draw_array
from tests.op.signal._models import Array, draw_bits

Steps = tuple[bytes, tuple[int, ...], str, int]
"""Model, shape and type of its input, seed."""


def meant(found: list[Array], wanted: list[Array]) -> tuple[list[Array], list[Array]]:
    """Results to compare: without a frame that is not valid, which TFLM leaves as memory was."""
    if len(wanted) == 2 and wanted[1].dtype == bool and not wanted[1]:
        return found[1:], wanted[1:]
    return found, wanted


def check_steps(model: bytes, shape: tuple[int, ...], dtype: str, seed: int, *, compiled: bool = False) -> None:
    """Eight steps in relay and TFLM, and in C and the TIR interpreter if `compiled`."""
    draw = draw_array if dtype == "float32" else draw_bits
    steps = [[draw(seed + i, shape, dtype)] for i in range(8)]
    relay = StatefulFunction(main_of(model, oracle="tflm"))
    found = [relay.run(s) for s in steps]
    if HAVE_TFLM:
        for f, w in zip(found, tflm_sets(model, steps), strict=True):
            a, b = meant(f, w)
            same([x.reshape(y.shape) for x, y in zip(a, b, strict=True)], b, "differs from TFLM")
        count(model, steps)
    if compiled:
        output = compile_model(model, options=Options(oracle="tflm"))
        state, host = output.initial_state(), load(output.artifact)
        host.reset()
        for s, f in zip(steps, found, strict=True):
            same(output.interpret(s, state=state), f, "the interpreted model differs")
            same(host.run(s), f, "the compiled model differs")
