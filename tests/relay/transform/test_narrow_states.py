"""narrow_states: states of quantised networks as integers; outputs over time are those of the model as the file has it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from aot.driver.build import compile_model
from aot.driver.options import Options
from aot.frontend.tflite import from_tflite
from aot.relay.expr import Function, is_call, post_order
from aot.relay.interpreter import StatefulFunction
from aot.relay.state import STATE, state_of, state_vars
from aot.relay.transform.narrow_states import with_narrow_states
from aot.relay.verify import verify
from aot.testing.text_model import text_model
from tests.op.state.test_variable import check, same

STREAM = """
    in x {dtype}[1,1,4] scale={scale} zero_point={zero}
    tensor v resource[]
    CALL_ONCE -> init_subgraph_index=1
    VAR_HANDLE -> v shared_name=v
    tensor old float32[1,5,4]
    READ_VARIABLE v -> old
    tensor new float32[1,1,4]
    DEQUANTIZE x -> new
    tensor join float32[1,6,4]
    CONCATENATION old new -> join axis=1
    tensor window {dtype}[1,6,4] scale={scale} zero_point={zero}
    QUANTIZE join -> window
    const axis int32[1] data=1
    out y {dtype}[1,4] scale={scale} zero_point={zero}
    REDUCE_MAX window axis -> y keep_dims=0
    const begin int32[3] data=0,1,0
    const size int32[3] data=1,5,4
    tensor tail {dtype}[1,5,4] scale={scale} zero_point={zero}
    SLICE window begin size -> tail
    tensor kept float32[1,5,4]
    DEQUANTIZE tail -> kept
    ASSIGN_VARIABLE v kept ->
    {extra}
    graph initialize
    tensor v resource[]
    const first float32[1,5,4] data={first}
    VAR_HANDLE -> v shared_name=v
    ASSIGN_VARIABLE v first ->
"""


ZERO = {"int8": -3, "uint8": 7, "int16": 0}


def stream(dtype: str = "int8", *, scale: float = 0.5, first: float = 0.0, extra: str = "") -> bytes:
    return text_model(STREAM.format(dtype=dtype, zero=ZERO[dtype], scale=scale, first=first, extra=extra))


def steps(dtype: str, count: int = 12) -> list[list[np.ndarray[Any, Any]]]:
    rng = np.random.default_rng(7)
    return [[rng.integers(-100, 100, (1, 1, 4)).astype(dtype)] for _ in range(count)]


def main_of(model: bytes) -> Function:
    main = from_tflite(model)["main"]
    assert isinstance(main, Function)
    return main


@pytest.mark.parametrize(
    ("dtype", "scale", "first"),
    [("int8", 0.5, 0.0), ("int8", 0.0131, 0.0), ("uint8", 0.3, 1.5), ("int16", 0.0131, 0.0), ("int8", 0.0131, 0.21)],
)
def test_integers_stay_integers(dtype: str, scale: float, first: float) -> None:
    """The last: a first value that no integer stands for, which is only read quantised."""
    model = stream(dtype, scale=scale, first=first)
    given = [[np.abs(s[0]).astype(dtype)] for s in steps(dtype)]
    main = main_of(model)
    narrow = with_narrow_states(main)
    verify(narrow)
    assert [v.type.dtype for v in state_vars(narrow)] == [dtype] == [s.initial.dtype.name for s in state_of(narrow)]
    assert not any(is_call(e, "qnn.quantize") or is_call(e, "qnn.dequantize") for e in post_order(narrow.body))
    one, other = StatefulFunction(main), StatefulFunction(narrow)
    assert same([other.run(s) for s in given], [one.run(s) for s in given])


def test_the_window_slides() -> None:
    model = stream(scale=0.0131)
    check(model, steps("int8"))
    check(model, steps("int8"), io="user", opt="ram")
    told = compile_model(model).artifact.metadata["state"]
    assert told["bytes_new"] == 4
    assert told["bytes_moved"] <= 1.2 * told["bytes_new"]
    copied = compile_model(model, options=Options(rings="copy")).artifact.metadata["state"]
    assert (copied["bytes_written"], copied["bytes_moved"]) == (20, 20)


NEGATED = "out z float32[1,5,4]\nNEG old -> z"


def test_a_first_value_that_no_integer_stands_for() -> None:
    model = stream(scale=0.0131, first=0.21, extra=NEGATED)
    main = main_of(model)
    assert with_narrow_states(main) is main, "it is seen as it is"
    check(model, steps("int8"))
    model = stream(scale=0.5, first=1.5, extra=NEGATED)
    assert not state_of(with_narrow_states(main_of(model)))[0].initial.any(), "3 steps above the zero point, -3"
    check(model, steps("int8"))


def test_a_state_that_other_signatures_share() -> None:
    main = main_of(stream())
    shared = tuple(replace(s, shared=True) for s in state_of(main))
    main = Function(main.params, main.body, {**main.attrs, STATE: shared})
    assert with_narrow_states(main, with_shared=False) is main
    assert state_of(with_narrow_states(main))[0].initial.dtype == np.int8


@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_what_quantize_does_not_undo_is_left() -> None:
    """Large integers become infinite, which are no longer told apart: quantize stays, over a state of integers."""
    main = main_of(stream("int16", scale=1e36))
    narrow = with_narrow_states(main)
    assert any(is_call(e, "qnn.quantize") for e in post_order(narrow.body))
    one, other = StatefulFunction(main), StatefulFunction(narrow)
    assert same([other.run(s) for s in steps("int16")], [one.run(s) for s in steps("int16")])
