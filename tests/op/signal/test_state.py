"""TFLM's audio front end, operators with a state: exact to TFLM over time."""

from __future__ import annotations

from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis import given

from aot.driver.build import compile_model
from aot.driver.options import Options
from aot.errors import AotError
from aot.relay.stateful import StatefulFunction
from aot.runtime.module import load
from aot.testing import HAVE_TFLM
from aot.testing.reference import tflm_sets
from tests.op._differential import FAST, OFTEN, SEEDS, main_of, same
from tests.op._drawn_count import count
from tests.op._one_op import draw_array
from tests.op.signal import _models as models
from tests.op.signal._models import Array, draw_bits

Case = tuple[bytes, tuple[int, ...], str, int]
"""Model, shape and type of its input, seed."""
ROWS = st.sampled_from([(), (1,), (3,), (2, 2)])


@st.composite
def delays(draw: st.DrawFn) -> Case:
    shape = (*draw(ROWS), draw(st.integers(1, 7)))
    return models.delay(shape, draw(st.integers(0, 12))), shape, "int16", draw(SEEDS)


@st.composite
def framers(draw: st.DrawFn) -> Case:
    step, prefill = draw(st.integers(1, 4)), draw(st.booleans())
    shape = (*draw(ROWS), step * draw(st.integers(1, 4)))
    size = draw(st.integers(step if prefill else 1, 12))
    return models.framer(shape, size, step, prefill=prefill), shape, "int16", draw(SEEDS)


@st.composite
def overlaps(draw: st.DrawFn) -> Case:
    size, dtype = draw(st.integers(1, 9)), draw(st.sampled_from(["int16", "float32"]))
    shape = (*draw(ROWS), draw(st.integers(1, 3)), size)
    return models.overlap_add(dtype, shape, draw(st.integers(1, size))), shape, dtype, draw(SEEDS)


@st.composite
def stackers(draw: st.DrawFn) -> Case:
    channels, left, right = (draw(st.integers(low, 4)) for low in (1, 0, 0))
    step = draw(st.integers(1, left + right + 1))
    return models.stacker(channels, left, right, step), (channels,), "int16", draw(SEEDS)


@st.composite
def subtractions(draw: st.DrawFn) -> Case:
    n = draw(st.integers(1, 9))
    factors = {"smoothing": draw(st.integers(0, 1 << 14)), "min_signal_remaining": draw(st.integers(0, 1 << 15))}
    model = models.subtraction(n, clamping=draw(st.booleans()), smoothing_bits=draw(st.integers(0, 31)), **factors)
    return model, (n,), "uint32", draw(SEEDS)


DRAWN: list[Callable[[], st.SearchStrategy[Case]]] = [delays, framers, overlaps, stackers, subtractions]


def meant(found: list[Array], wanted: list[Array]) -> tuple[list[Array], list[Array]]:
    """Results to compare: without a frame that is not valid, which TFLM leaves as memory was."""
    if len(wanted) == 2 and wanted[1].dtype == bool and not wanted[1]:
        return found[1:], wanted[1:]
    return found, wanted


def check(case: Case, *, compiled: bool = False) -> None:
    """Eight steps in relay and TFLM, and in C and the TIR interpreter if `compiled`."""
    model, shape, dtype, seed = case
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


@pytest.mark.parametrize("strategy", DRAWN)
def test_random(strategy: Callable[[], st.SearchStrategy[Case]]) -> None:
    @given(strategy())
    @FAST
    def test(case: Case) -> None:
        check(case)

    test()


@pytest.mark.slow
@pytest.mark.parametrize("strategy", DRAWN)
def test_random_often(strategy: Callable[[], st.SearchStrategy[Case]]) -> None:
    @given(strategy())
    @OFTEN
    def test(case: Case) -> None:
        check(case)

    test()


COMPILED: list[Case] = [
    (models.delay((2, 4), 6), (2, 4), "int16", 1),
    (models.framer((8,), 6, 2, prefill=False), (8,), "int16", 2),
    (models.framer((2, 4), 6, 4, prefill=True), (2, 4), "int16", 3),
    (models.overlap_add("int16", (2, 3, 6), 4), (2, 3, 6), "int16", 4),
    (models.overlap_add("float32", (2, 6), 3), (2, 6), "float32", 5),
    (models.stacker(3, 2, 1, 2), (3,), "int16", 6),
    (models.subtraction(5, clamping=True), (5,), "uint32", 7),
    (models.subtraction(4, clamping=False, alternate_smoothing=409), (4,), "uint32", 8),
]


@pytest.mark.slow
@pytest.mark.parametrize("case", COMPILED)
def test_compiled(case: Case) -> None:
    check(case, compiled=True)


def test_one_compiled() -> None:
    check(COMPILED[5], compiled=True)


def test_refused() -> None:
    for model, code in (
        (models.framer((6,), 6, 4, prefill=False), "E1122"),
        (models.framer((6,), 2, 3, prefill=True), "E1122"),
        (models.stacker(3, 1, 0, 3), "E1122"),
        (models.subtraction(3, clamping=True, spectral_subtraction_bits=64), "E1122"),
        (models.overlap_add("int16", (2, 4), 5), "E1122"),
    ):
        with pytest.raises(AotError, match=code):
            main_of(model, oracle="tflm")
