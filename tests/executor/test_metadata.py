"""What metadata.json says of the workspace."""

from __future__ import annotations

from pathlib import Path

import pytest

from aot.driver.build import build
from aot.driver.options import Options
from aot.executor.lower_te import _solved
from aot.report.figures.size import plan_of

MODELS = Path(__file__).resolve().parents[1] / "models"


@pytest.mark.parametrize("name", ["graph_residual", "add_relu", "graph_branches_concat"])
def test_only_the_plans_own_bound_is_a_limit(name: str) -> None:
    """Overlap goes below whole tensors and below rows, so neither is called a lower bound."""
    options = Options(kernels="generic")  # without scratch memory, which would hide it
    workspace = build(MODELS / f"{name}.tflite", options=options).metadata["workspace"]
    assert workspace["plan_lower_bound"] <= workspace["size"] < min(workspace["liveness_bound"], workspace["streaming_bound"])
    assert [key for key in workspace if "lower_bound" in key] == ["plan_lower_bound"]


def test_the_choice_of_kernels_says_how_good_it_is() -> None:
    metadata = build(MODELS / "graph_residual.tflite").metadata
    found = metadata["selection"]
    assert found["optimal"]
    assert found["lower_bound"] == found["total"] > 0
    least = sum(min(c["instructions"] for c in layer["candidates"]) for layer in metadata["layers"])
    assert found["total"] >= least


def test_an_order_that_is_not_proven_best_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aot.memory.order.STATES", 0)
    _solved.cache_clear()
    metadata = build(MODELS / "graph_shared_weights.tflite").metadata
    order = metadata["workspace"]["order"]
    assert 0 < order["lower_bound"] < order["peak"] == metadata["workspace"]["liveness_bound"]
    assert not order["optimal"]
    told = f"order of execution: the search stopped at its limit with {order['peak']} B of tensors, at most "
    assert told in plan_of(metadata)
    monkeypatch.undo()
    _solved.cache_clear()
    assert "order" not in build(MODELS / "graph_shared_weights.tflite").metadata["workspace"]


def test_a_bound_of_rows_that_is_not_proven_least_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    proven = build(MODELS / "net_kws_dscnn.tflite").metadata["workspace"]
    assert "rows" not in proven
    monkeypatch.setattr("aot.memory.streaming.WORK", 0)
    metadata = build(MODELS / "net_kws_dscnn.tflite").metadata
    workspace = metadata["workspace"]
    assert workspace["streaming_bound"] == workspace["liveness_bound"]
    assert workspace["rows"]["streaming_lower_bound"] <= proven["streaming_bound"]
    assert workspace["rows"]["fed_lower_bound"] <= proven["fed_bound"]
    assert f"rows: the search stopped at its limit, {workspace['streaming_bound']:,} B is at most" in plan_of(metadata)
    assert workspace["plan_lower_bound"] == proven["plan_lower_bound"]
