"""LSTM over several runs: on integers in LiteRT's and in TFLM's arithmetic, on float32."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from aot.errors import AotError
from aot.numerics.fixed16 import sigmoid16, tanh16
from aot.testing import ModelBuilder
from tests.op._differential import FAST, SEEDS, SLOW, main_of
from tests.op._lstm_models import Lstm, bidirectional_model, lstm_model
from tests.op._steps import check_steps, random_steps

RUNS = 2
SEQUENCE, STEP = "UNIDIRECTIONAL_SEQUENCE_LSTM", "LSTM"


@st.composite
def lstms(draw: st.DrawFn, op: str) -> Lstm:
    cells, projection = draw(st.integers(1, 12)), draw(st.booleans())
    return Lstm(
        op,
        steps=draw(st.integers(1, 4)),
        batch=draw(st.integers(1, 3)),
        depth=draw(st.integers(1, 12)),
        cells=cells,
        outputs=draw(st.integers(1, cells)),
        time_major=draw(st.booleans()),
        cifg=draw(st.booleans()),
        peephole=draw(st.booleans()),
        norm=draw(st.booleans()),
        projection=projection,
        projection_bias=draw(st.booleans()),
        cell_power=draw(st.integers(-15, -9)),
        cell_clip=draw(st.sampled_from([0.0, 0.7])),
        projection_clip=draw(st.sampled_from([0.0, 0.3])),
        seed=draw(SEEDS),
    )


@st.composite
def floats(draw: st.DrawFn, op: str) -> Lstm:
    """With the time first, or as single steps, of one batch."""
    lstm = draw(lstms(op))
    one = op == STEP or lstm.time_major
    activation = draw(st.sampled_from(["TANH", "TANH", "RELU", "RELU6", "RELU_N1_TO_1"]))
    depth = draw(st.integers(1, 40))
    dtype = draw(st.sampled_from(["float32", "hybrid"]))
    lstm = replace(lstm, dtype=dtype, depth=depth, batch=1 if one else lstm.batch, activation=activation)
    return replace(lstm, asymmetric=draw(st.booleans()))


@st.composite
def bidirectional(draw: st.DrawFn) -> tuple[bytes, int]:
    """A model of both directions, with auxiliary data for both or for one, and its seed."""
    lstm = replace(draw(floats(SEQUENCE)), norm=False)
    merged, kind = draw(st.booleans()), draw(st.sampled_from(["none", "weighted", "data"]))
    lstm = replace(lstm, batch=1) if merged else lstm
    extra = {"none": 0, "weighted": draw(st.integers(1, 9)), "data": lstm.depth}[kind]
    return bidirectional_model(lstm, merged=merged, auxiliary=extra, weighted=kind == "weighted"), lstm.seed


@st.composite
def plain(draw: st.DrawFn) -> Lstm:
    """What TFLM has too, and int16."""
    lstm = draw(lstms(SEQUENCE))
    features = {"cifg": False, "peephole": False, "norm": False, "projection": False}
    return replace(lstm, dtype=draw(st.sampled_from(["int8", "int16"])), **features)


def check(lstm: Lstm, *, oracle: str = "litert", host: bool = False) -> None:
    model = lstm_model(lstm)
    check_steps(model, random_steps(model, seed=lstm.seed, number=RUNS), oracle=oracle, host=host)


def run(op: str, examples: Any) -> None:
    @given(lstms(op))
    @examples
    def test(lstm: Lstm) -> None:
        check(lstm)

    test()


def run_float(op: str, examples: Any) -> None:
    @given(floats(op))
    @examples
    def test(lstm: Lstm) -> None:
        check(lstm)

    test()


def run_bidirectional(examples: Any) -> None:
    @given(bidirectional())
    @examples
    def test(drawn: tuple[bytes, int]) -> None:
        check_steps(drawn[0], random_steps(drawn[0], seed=drawn[1], number=RUNS))

    test()


def test_random_bidirectional() -> None:
    run_bidirectional(FAST)


@pytest.mark.slow
def test_random_bidirectional_often() -> None:
    run_bidirectional(SLOW)


def run_tflm(examples: Any) -> None:
    @given(plain())
    @examples
    def test(lstm: Lstm) -> None:
        check(lstm, oracle="tflm")

    test()


@pytest.mark.parametrize("op", [SEQUENCE, STEP])
def test_random(op: str) -> None:
    run(op, FAST)


@pytest.mark.parametrize("op", [SEQUENCE, STEP])
def test_random_float(op: str) -> None:
    run_float(op, FAST)


@pytest.mark.slow
@pytest.mark.parametrize("op", [SEQUENCE, STEP])
def test_random_float_often(op: str) -> None:
    run_float(op, SLOW)


def test_random_tflm() -> None:
    run_tflm(FAST)


@pytest.mark.slow
@pytest.mark.parametrize("op", [SEQUENCE, STEP])
def test_random_often(op: str) -> None:
    run(op, SLOW)


@pytest.mark.slow
def test_random_tflm_often() -> None:
    run_tflm(SLOW)


@pytest.mark.slow
@pytest.mark.parametrize("time_major", [True, False])
def test_on_host(time_major: bool) -> None:
    lstm = Lstm(steps=3, batch=2, depth=9, cells=17, time_major=time_major, seed=3)
    check(lstm, host=True)
    check(replace(lstm, cifg=True, peephole=True, norm=True, projection=True, outputs=5, cell_clip=0.5), host=True)
    check(lstm, oracle="tflm", host=True)
    check(replace(lstm, dtype="int16"), oracle="tflm", host=True)
    real = replace(lstm, dtype="float32", batch=1 if time_major else 2)
    check(real, host=True)
    check(replace(real, cifg=True, peephole=True, norm=True, projection=True, outputs=5, cell_clip=0.5), host=True)
    for asymmetric in (False, True):
        hybrid = replace(real, dtype="hybrid", asymmetric=asymmetric)
        check(hybrid, host=True)
        check(replace(hybrid, peephole=True, norm=True, projection=True, outputs=5), host=True)


def test_functions_are_near_the_real_ones() -> None:
    x = np.arange(-32768, 32768).astype(np.int16)
    real = x.astype(np.float64)
    assert np.abs(sigmoid16(x) / 32768 - 1 / (1 + np.exp(-real / 4096))).max() < 4e-4
    for bits in range(7):
        assert np.abs(tanh16(x, bits) / 32768 - np.tanh(real / 2 ** (15 - bits))).max() < 4e-4


def test_basic_kernel_is_refused() -> None:
    b = ModelBuilder()
    x, h = b.tensor("x", (1, 3), "float32"), b.tensor("h", (1, 2), "float32", is_variable=True)
    w, bias = (b.tensor(n, s, "float32", data=np.ones(s, np.float32)) for n, s in (("w", (8, 5)), ("b", (8,))))
    c = b.tensor("c", (1, 2), "float32", is_variable=True)
    shapes = ((1, 2), (1, 2), (1, 5), (1, 8))
    results = [b.tensor(f"y{i}", s, "float32") for i, s in enumerate(shapes)]
    b.op("LSTM", [x, h, w, bias, c], results, version=2, kernel_type=1, fused_activation_function="TANH")
    with pytest.raises(AotError, match=r"E1203.*basic kernel"):
        main_of(b.build([x], results))


@pytest.mark.parametrize(
    ("change", "oracle", "code"),
    [
        ({"cifg": True}, "tflm", "E1203"),
        ({"activation": "RELU"}, "tflm", "E1203"),
        ({"cell_power": -20}, "litert", "E1226"),
        ({"dtype": "int16", "peephole": True}, "litert", "E1203"),
        ({"op": "LSTM", "dtype": "int16"}, "litert", "E1202"),
        ({"dtype": "float32", "batch": 2}, "litert", "E1203"),
        ({"dtype": "float32", "activation": "SIGN_BIT"}, "litert", "E1203"),
    ],
)
def test_refused(change: dict[str, Any], oracle: str, code: str) -> None:
    with pytest.raises(AotError, match=code):
        main_of(lstm_model(replace(Lstm(), **change)), oracle=oracle)
