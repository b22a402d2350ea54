"""Mutated models: always a coded refusal or a valid parse, with an end and within memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frontend.tflite.mutate import LIMIT_BYTES, run_limited

MODELS = Path(__file__).parents[2] / "models"
THREE = [MODELS / f"{name}.tflite" for name in ("net_kws_dscnn", "graph_two_inputs_two_outputs", "graph_residual")]


def expect_clean(*, count: int, seed: int) -> None:
    result = run_limited(THREE, count=count, seed=seed)
    assert result["faults"] == []
    assert result["peak_bytes"] < LIMIT_BYTES
    assert 0 < result["valid"] < count, "some mutations are harmless, most are not"
    assert len(result["codes"]) >= 10, "the mutations reach many kinds of problem"


def test_mutations() -> None:
    expect_clean(count=200, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
def test_ten_thousand_mutations(seed: int) -> None:
    expect_clean(count=5000, seed=seed)
