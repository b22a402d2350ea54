"""Drawn LSTM layers, and how they are compared."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st

from tests.op._differential import SEEDS
from tests.op._lstm_models import Lstm, lstm_model
from tests.op._steps import check_steps, random_steps

RUNS = 2
KINDS = ["float32", "hybrid"]
TANH_POWERS = range(-15, -8)
"""Of the cell's scale: those for which the reference has tanh."""
SEQUENCE, STEP = "UNIDIRECTIONAL_SEQUENCE_LSTM", "LSTM"


@st.composite
def lstms(draw: st.DrawFn, op: str) -> Lstm:
    cells, projection, cifg = draw(st.integers(1, 12)), draw(st.booleans()), draw(st.booleans())
    return Lstm(
        op,
        steps=draw(st.integers(1, 4)),
        batch=draw(st.integers(1, 3)),
        depth=draw(st.integers(1, 12)),
        cells=cells,
        outputs=draw(st.integers(1, cells)),
        time_major=draw(st.booleans()),
        cifg=cifg,
        peephole=draw(st.booleans()),
        norm=draw(st.booleans()),
        projection=projection,
        projection_bias=draw(st.booleans()),
        cell_power=draw(
            st.sampled_from([*TANH_POWERS, *(() if cifg else (-17, -16)), *(() if cifg or op == STEP else (-8, -7))])
        ),
        cell_clip=draw(st.sampled_from([0.0, 0.7])),
        projection_clip=draw(st.sampled_from([0.0, 0.3])),
        seed=draw(SEEDS),
    )


@st.composite
def floats(draw: st.DrawFn, op: str, dtype: str = "") -> Lstm:
    """Of `dtype`, or of one of both; with the time first, or as single steps, of one batch."""
    lstm = draw(lstms(op))
    one = op == STEP or lstm.time_major
    activation = draw(st.sampled_from(["TANH", "TANH", "RELU", "RELU6", "RELU_N1_TO_1"]))
    depth = draw(st.integers(1, 40))
    dtype = dtype or draw(st.sampled_from(KINDS))
    lstm = replace(lstm, dtype=dtype, depth=depth, batch=1 if one else lstm.batch, activation=activation)
    return replace(lstm, asymmetric=draw(st.booleans()))


def check(lstm: Lstm, *, oracle: str = "litert", host: bool = False) -> None:
    model = lstm_model(lstm)
    check_steps(model, random_steps(model, seed=lstm.seed, number=RUNS), oracle=oracle, host=host)
