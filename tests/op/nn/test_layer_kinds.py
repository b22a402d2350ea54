"""CONV_2D, DEPTHWISE_CONV_2D and FULLY_CONNECTED on int16 data, with 4-bit weights, and on legacy uint8."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from aot.errors import AotError
from aot.ir.module import IRModule
from aot.relay.expr import Call, Function, post_order
from aot.relay.transform import pipeline
from aot.testing import ModelBuilder
from tests.op._differential import FAST, SLOW, check, main_of
from tests.op._layer_models import INT4, INT16, INT16_BIAS32, INT16_INT4, UINT8, Kind, LayerModel, extremes, rows, windows

CONV, DEPTHWISE, DENSE = "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"
INT16_NO_BIAS = Kind("int16", "int8", "")
WINDOWS = [
    pytest.param(CONV, INT16, id="conv-int16"),
    pytest.param(CONV, INT16_BIAS32, id="conv-int16-bias32"),
    pytest.param(CONV, INT4, id="conv-int4"),
    pytest.param(CONV, UINT8, id="conv-uint8"),
    pytest.param(CONV, INT16_INT4, id="conv-int16-int4", marks=pytest.mark.slow),
    pytest.param(DEPTHWISE, INT16, id="depthwise-int16"),
    pytest.param(DEPTHWISE, INT16_NO_BIAS, id="depthwise-int16-no-bias"),
    pytest.param(DEPTHWISE, INT4, id="depthwise-int4"),
    pytest.param(DEPTHWISE, UINT8, id="depthwise-uint8"),
]
ROWS = [INT16, INT16_BIAS32, INT16_NO_BIAS, INT4, pytest.param(INT16_INT4, marks=pytest.mark.slow), UINT8]


def run_windows(op: str, kind: Kind, examples: object) -> None:
    @given(windows(op, kind))
    @examples  # type: ignore[operator, misc, untyped-decorator]
    def test(model: LayerModel) -> None:
        check(model.build())

    test()


def run_rows(kind: Kind, examples: object) -> None:
    @given(rows(kind))
    @examples  # type: ignore[operator, misc, untyped-decorator]
    def test(model: LayerModel) -> None:
        check(model.build())

    test()


@pytest.mark.parametrize(("op", "kind"), WINDOWS)
def test_windows(op: str, kind: Kind) -> None:
    run_windows(op, kind, FAST)


@pytest.mark.parametrize("kind", ROWS)
def test_rows(kind: Kind) -> None:
    run_rows(kind, FAST)


@pytest.mark.slow
@pytest.mark.parametrize(("op", "kind"), WINDOWS)
def test_windows_often(op: str, kind: Kind) -> None:
    run_windows(op, kind, SLOW)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ROWS)
def test_rows_often(kind: Kind) -> None:
    run_rows(kind, SLOW)


@pytest.mark.parametrize("op", [CONV, DENSE])
def test_sums_of_64_bits(op: str) -> None:
    """700 products of nearly 2^22: more than 32 bits hold."""
    shape = (1, 700) if op == DENSE else (1, 1, 2, 700)
    model = LayerModel(op, INT16, shape, 5, heavy=True, seed=3)
    check(model.build(), extremes(model), [-32767 * np.ones(shape, np.int16)], host=True)


@pytest.mark.parametrize("kind", [INT16, INT4, UINT8])
def test_on_host(kind: Kind) -> None:
    check(LayerModel(CONV, kind, (1, 5, 6, 3), 6, (3, 3), activation="RELU").build(), host=True)
    check(LayerModel(DEPTHWISE, kind, (1, 5, 6, 3), 2, (3, 3)).build(), host=True)
    check(LayerModel(DENSE, kind, (2, 19), 7).build(), host=True)


def test_int16_data_with_4_bit_weights() -> None:
    check(LayerModel(CONV, INT16_INT4, (1, 3, 4, 3), 4, (2, 2)).build())
    check(LayerModel(DENSE, INT16_INT4, (2, 19), 7).build())
    with pytest.raises(AotError, match="E1203"):  # the reference takes packed weights for bytes there
        main_of(LayerModel(DEPTHWISE, INT16_INT4, (1, 3, 4, 3), 1, (2, 2)).build())


def test_shifts_between_legacy_operators_vanish() -> None:
    """ADD, RESHAPE, ADD on uint8: one shift to int8 at the input, one back at the output."""
    b = ModelBuilder()
    q = {"scale": 0.05, "zero_point": 130}
    x, first = (b.tensor(n, (2, 6), "uint8", **q) for n in ("x", "first"))
    shape = b.tensor("shape", (2,), "int32", data=np.array([3, 4], np.int32))
    reshaped, last = (b.tensor(n, (3, 4), "uint8", **q) for n in ("reshaped", "last"))
    b.op("ADD", [x, x], [first])
    b.op("RESHAPE", [first, shape], [reshaped], new_shape=np.array([3, 4], np.int32))
    b.op("ADD", [reshaped, reshaped], [last])
    model = b.build([x], [last])
    check(model)
    func = pipeline()(IRModule({"main": main_of(model)}))["main"]
    assert isinstance(func, Function)
    calls = [str(e.op) for f in groups_of(func) for e in post_order(f.body) if isinstance(e, Call)]
    assert calls.count("qnn.requantize8") == 2


def groups_of(func: Function) -> list[Function]:
    """The primitive functions of a fused graph."""
    return [e.op for e in post_order(func.body) if isinstance(e, Call) and isinstance(e.op, Function)]
