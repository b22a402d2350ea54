"""SVDF over several steps: int8 with a state of int16 or int8, float32, hybrid."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest

from aot.errors import AotError
from aot.frontend.tflite import check_model
from tests.op._differential import FEW, SEEDS, SLOW, check_drawn, main_of
from tests.op._steps import check_steps, random_steps
from tests.op._svdf_models import Svdf, svdf_model

KINDS = ["int8", "int8-state", "float32", "hybrid"]
STEPS = 6


@st.composite
def svdfs(draw: st.DrawFn, kind: str) -> Svdf:
    activations = ["RELU"] if kind.startswith("int8") else ["NONE", "RELU", "RELU6", "RELU_N1_TO_1"]
    return Svdf(
        kind,
        batch=draw(st.integers(1, 3)),
        depth=draw(st.integers(1, 20)),
        units=draw(st.integers(1, 6)),
        rank=draw(st.integers(1, 6)),
        memory=draw(st.integers(1, 12)),
        bias=kind == "int8-state" or draw(st.booleans()),  # TFLM crashes without one
        activation=draw(st.sampled_from(activations)),
        asymmetric=kind == "hybrid" and draw(st.booleans()),
        seed=draw(SEEDS),
    )


def check(svdf: Svdf, *, host: bool = False) -> None:
    oracle = "tflm" if svdf.kind == "int8-state" else "litert"
    model = svdf_model(svdf)
    check_steps(model, random_steps(model, seed=svdf.seed, number=STEPS), oracle=oracle, host=host)


@pytest.mark.parametrize("kind", KINDS)
def test_random(kind: str) -> None:
    check_drawn(svdfs(kind), FEW, check)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_random_often(kind: str) -> None:
    check_drawn(svdfs(kind), SLOW, check)


@pytest.mark.parametrize("kind", KINDS)
def test_on_host(kind: str) -> None:
    check(Svdf(kind, batch=2, depth=9, units=3, rank=5, memory=10), host=True)


def test_oracles_agree_on_int16_states() -> None:
    model = svdf_model(Svdf("int8", batch=2, depth=9, units=3, rank=2, memory=10))
    steps = random_steps(model, seed=1, number=STEPS)
    found = [check_steps(model, steps, oracle=oracle) for oracle in ("litert", "tflm")]
    assert all(np.array_equal(a, b) for first, second in zip(*found, strict=True) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(
    ("change", "code"),
    [({"activation": "NONE"}, "E1203"), ({"kind": "float32", "activation": "TANH"}, "E1203"), ({"rank": 0}, "E1121")],
)
def test_refused(change: dict[str, Any], code: str) -> None:
    with pytest.raises(AotError, match=code):
        main_of(svdf_model(replace(Svdf("int8"), **change)))


def test_state_is_kept() -> None:
    """The same input gives other outputs until the memory is full of it."""
    model = svdf_model(Svdf("float32", memory=3, activation="NONE"))
    assert not check_model(model)
    x = np.ones((1, 4), np.float32)
    outputs = [step[0].tobytes() for step in check_steps(model, [[x]] * 6)]
    assert len(set(outputs[:3])) == 3
    assert len(set(outputs[2:])) == 1
