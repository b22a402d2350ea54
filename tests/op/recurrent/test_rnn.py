"""RNN, UNIDIRECTIONAL_SEQUENCE_RNN and BIDIRECTIONAL_SEQUENCE_RNN over several runs, on float32 and hybrid."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import pytest

from aot.errors import AotError
from tests.op._differential import FEW, SEEDS, SLOW, check_drawn, main_of
from tests.op._rnn_models import Rnn, rnn_model
from tests.op._steps import check_steps, random_steps

OPS = ["RNN", "UNIDIRECTIONAL_SEQUENCE_RNN", "BIDIRECTIONAL_SEQUENCE_RNN"]
RUNS = 3


@st.composite
def rnns(draw: st.DrawFn, op: str, *, of: list[bool] | None = None) -> Rnn:
    """One of float32 or hybrid, or of those in `of`."""
    activation = draw(st.sampled_from(["NONE", "TANH", "RELU", "RELU6", "RELU_N1_TO_1"]))
    units, depth = draw(st.integers(1, 9)), draw(st.integers(1, 20))
    kind = draw(st.sampled_from(["none", "weighted", "data"]))
    hybrid, merged = draw(st.sampled_from(of or [False, True])), draw(st.booleans())
    return Rnn(
        op,
        hybrid=hybrid,
        steps=draw(st.integers(1, 4)),
        batch=1 if hybrid and merged else draw(st.integers(1, 3)),  # the reference crashes on some others
        depth=depth,
        units=units,
        time_major=draw(st.booleans()),
        activation=activation,
        asymmetric=draw(st.booleans()),
        merged=merged,
        auxiliary=0 if kind == "none" else depth,
        weighted=kind == "weighted",
        seed=draw(SEEDS),
    )


def check(rnn: Rnn, *, host: bool = False) -> None:
    model = rnn_model(rnn)
    check_steps(model, random_steps(model, seed=rnn.seed, number=RUNS), host=host)


@pytest.mark.parametrize("op", OPS)
def test_random(op: str) -> None:
    check_drawn(rnns(op), FEW, check)


@pytest.mark.slow
@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("op", OPS)
def test_random_often(op: str, *, hybrid: bool) -> None:
    check_drawn(rnns(op, of=[hybrid]), SLOW, check)


@pytest.mark.slow
@pytest.mark.parametrize("op", OPS)
def test_on_host(op: str) -> None:
    rnn = Rnn(op, steps=3, batch=2, depth=9, units=12, time_major=False)
    check(rnn, host=True)
    check(replace(rnn, activation="RELU6", auxiliary=9, weighted=True), host=True)
    check(replace(rnn, hybrid=True, asymmetric=True), host=True)


def test_refused() -> None:
    with pytest.raises(AotError, match="E1203"):
        main_of(rnn_model(Rnn(activation="SIGN_BIT")))
    with pytest.raises(AotError, match="E1203"):
        main_of(rnn_model(Rnn(OPS[2], depth=4, auxiliary=5, weighted=True)))
