"""Sizes in the words of the terminal."""

from __future__ import annotations

from typing import Any

from aot.report.figures.size import plan_of, selection_of

WORKSPACE = {"size": 100, "plan_lower_bound": 80, "optimal": False, "liveness_bound": 120, "streaming_bound": None}


def test_a_plan_that_is_not_proven_optimal() -> None:
    assert plan_of({"workspace": WORKSPACE}) == "workspace 100 B (at most 25.0 % above the optimum) · whole tensors 120 B"


def test_what_a_run_moves_is_rounded_to_bytes() -> None:
    state = {"size": 37936, "bytes_moved": 10520.4, "bytes_new": 1620}
    metadata: dict[str, Any] = {"workspace": WORKSPACE | {"optimal": True, "streaming_bound": 90}, "state": state}
    assert plan_of(metadata).endswith("rows 90 B · state 37,936 B, copies 10,520 B per run to take in 1,620 B")


def test_a_choice_of_kernels_that_is_not_proven_optimal() -> None:
    proven = {"minimised": "instructions", "total": 1010, "lower_bound": 1010, "optimal": True}
    assert selection_of({"selection": proven}) == "1,010 instructions estimated (the fewest within the budgets)"
    stopped = selection_of({"selection": proven | {"lower_bound": 1000, "optimal": False}})
    assert stopped.endswith("(the search stopped at its limit: at most 1.0 % above the fewest within the budgets)")
    flash = selection_of({"selection": proven | {"minimised": "flash"}})
    assert flash == "1,010 B of flash; nothing fits the budgets (the minimum)"


def test_a_choice_of_pools_that_is_not_proven_optimal() -> None:
    stopped = {"pool_choice": {"total": 1012.0, "lower_bound": 1000.0, "optimal": False}}
    text = plan_of({"workspace": WORKSPACE | stopped, "constants": stopped})
    told = "the search stopped at its limit, at most 1.2 % above the minimum access time"
    assert text.endswith(f"whole tensors 120 B · pools: {told} · const pools: {told}")
    assert plan_of({"workspace": WORKSPACE, "constants": {"pools": []}}).endswith("whole tensors 120 B")
    proven = {"pool_choice": {"total": 1000.0, "lower_bound": 1000.0, "optimal": True}}
    assert plan_of({"workspace": WORKSPACE | proven, "constants": proven}).endswith("whole tensors 120 B")


def test_an_order_that_is_not_proven_best() -> None:
    stopped = {"order": {"peak": 1500, "lower_bound": 1000, "optimal": False}}
    told = "order of execution: the search stopped at its limit with 1,500 B of tensors, at most 50.0 % above the best order"
    assert plan_of({"workspace": WORKSPACE | stopped}).endswith(f"whole tensors 120 B · {told}")


def test_a_bound_of_rows_that_is_not_proven_least() -> None:
    rows = {"streaming_lower_bound": 80, "fed_lower_bound": 40, "optimal": False}
    text = plan_of({"workspace": WORKSPACE | {"streaming_bound": 90, "fed_bound": 40, "rows": rows}})
    assert text.endswith("rows 90 B · rows: the search stopped at its limit, 90 B is at most 12.5 % above the minimum")


def test_cascades_that_were_not_all_tried() -> None:
    runs = {"cascades": {"tried": 1200, "possible": 1300, "optimal": False}}
    told = "cascades: the search skipped long runs, 1,200 of 1,300 runs of layers were tried"
    assert plan_of({"workspace": WORKSPACE | runs}).endswith(f"whole tensors 120 B · {told}")
