"""Integer programs against all their values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aot.support import milp
from aot.support.milp import Row, minimise


def drawn(seed: int) -> tuple[Any, list[Row], Any]:
    """Layers that each take one of three columns, of which some need a column that is paid once; two limits, at times too low."""
    rng = np.random.default_rng(seed)
    layers, keys = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    count = 3 * layers
    upper = np.array([*np.repeat(rng.integers(1, 3, layers), 3), *[1] * keys], float)
    objective = np.concatenate([rng.integers(0, 1000, count), rng.integers(0, 50, keys)]).astype(float)
    rows: list[Row] = []
    for layer in range(layers):
        one = np.zeros(count + keys)
        one[3 * layer : 3 * layer + 3] = 1
        rows.append((one, upper[3 * layer], upper[3 * layer]))
    for column in range(0, count, 2):
        needs = np.zeros(count + keys)
        needs[column], needs[count + int(rng.integers(keys))] = 1, -upper[column]
        rows.append((needs, -np.inf, 0))
    for _ in range(2):
        sizes = rng.integers(0, 100, count + keys).astype(float)
        rows.append((sizes, -np.inf, float(rng.integers(20, 60)) * float(upper[:count:3].sum())))
    return objective, rows, upper


def least(objective: Any, rows: list[Row], upper: Any) -> float | None:
    """The optimum among all values; None where none satisfy the rows."""
    values = np.stack(np.meshgrid(*(np.arange(u + 1) for u in upper)), axis=-1).reshape(-1, len(upper))
    for row, low, high in rows:
        values = values[(values @ row >= low) & (values @ row <= high)]
    return float((values @ objective).min()) if len(values) else None


@pytest.mark.parametrize("near", [0.0, 1e-3, 0.3, 10.0])
@pytest.mark.parametrize("seed", range(12))
def test_a_narrowed_program_has_the_optimum_of_the_whole(seed: int, near: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the columns that are tried first are, and where there are none or nothing fits."""
    monkeypatch.setattr(milp, "NEAR", near)
    objective, rows, upper = drawn(seed)
    best = least(objective, rows, upper)
    for narrow in (False, True):
        found = minimise(objective, rows, upper=upper, node_limit=1000, narrow=narrow)
        assert found.proven
        if best is None:
            assert found.values is None
        else:
            assert found.values is not None
            assert np.rint(found.values) @ objective == pytest.approx(best)
            assert found.bound == pytest.approx(best)


def test_a_narrowed_program_leaves_columns_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A knapsack of 40 kinds, some of which no optimum takes."""
    rng = np.random.default_rng(3)
    weights = rng.integers(50, 100, 40).astype(float)
    gains = -rng.integers(1, 1000, 40).astype(float)
    solved: list[int] = []
    whole = milp._solve

    def solve(solver: Any, program: Any, node_limit: int) -> milp.Solution:
        solved.append(int(np.count_nonzero(np.array(program.col_upper_))))
        return whole(solver, program, node_limit)

    monkeypatch.setattr(milp, "_solve", solve)
    rows: list[Row] = [(weights, -np.inf, 500.0)]
    narrow = minimise(gains, rows, upper=1, node_limit=1000, narrow=True)
    assert solved[-1] < 40
    full = minimise(gains, rows, upper=1, node_limit=1000)
    assert solved[-1] == 40
    assert narrow.values is not None
    assert full.values is not None
    assert gains @ np.rint(narrow.values) == gains @ np.rint(full.values)
