"""Integer programming with HiGHS."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from aot.support.dataclass import dataclass

Row = tuple[Any, Any, Any]
"""Coefficients (one row, several, or Entries), lower and upper bound."""


@dataclass(frozen=True, slots=True)
class Entries:
    """`count` sparse rows: row, column and value of each nonzero coefficient."""

    count: int
    rows: Any
    columns: Any
    values: Any


@dataclass(frozen=True, slots=True)
class Solution:
    """The best `values` found, or None; `bound` is a lower bound of the objective.

    `proven`: the search was complete, so the values are optimal (or no solution exists); otherwise it stopped at its limit.
    """

    values: Any | None
    bound: float
    proven: bool


NEAR = 1e-3
"""Columns with a reduced cost up to this share of the relaxation's optimum are tried first, to get a bound."""

NEAR_NODES = 100
"""Node limit of that first search: any solution is a bound."""


def minimise(objective: Any, rows: Sequence[Row], *, upper: Any, node_limit: int, narrow: bool = False) -> Solution:
    """Integers from 0 to `upper` that satisfy all rows and minimise `objective`.

    The limit is a number of nodes (`node_limit`), so that the result does not depend on the machine.  `narrow` drops dominated
    columns; this pays off if most are dominated.
    """
    with _silent():
        solver = _solver()
        program = _program(np.asarray(objective, float), rows, upper)
        if narrow:
            program.col_upper_ = _narrowed(solver, program, node_limit)
        return _solve(solver, program, node_limit)


def _solve(solver: Any, program: Any, node_limit: int) -> Solution:
    import highspy

    solver.setOptionValue("mip_max_nodes", node_limit)
    solver.passModel(program)
    solver.run()
    solution, info = solver.getSolution(), solver.getInfo()
    feasible = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    proven = solver.getModelStatus() in (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kInfeasible)
    return Solution(np.asarray(solution.col_value) if feasible else None, info.mip_dual_bound, proven)


def relaxed(objective: Any, rows: Sequence[Row], *, upper: Any) -> Any | None:
    """Like `minimise`, but for real numbers: their values, or None if no values satisfy all rows."""
    with _silent():
        solver = _solver()
        relaxation = _relaxation(solver, _program(np.asarray(objective, float), rows, upper))
        return None if relaxation is None else np.array(relaxation.col_value)


def _solver() -> Any:
    import highspy

    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("mip_rel_gap", 0.0)
    solver.setOptionValue("threads", 1)  # the same search on every machine
    for heuristic in ("feasibility_jump", "root_reduced_cost", "rins", "rens"):  # these cost more than they save
        solver.setOptionValue(f"mip_heuristic_run_{heuristic}", False)
    return solver


def _relaxation(solver: Any, program: Any) -> Any | None:
    """The solution of the relaxation (real instead of integer values), or None."""
    import highspy

    solver.setOptionValue("solve_relaxation", True)
    solver.passModel(program)
    solver.run()
    solver.setOptionValue("solve_relaxation", False)
    return solver.getSolution() if solver.getModelStatus() == highspy.HighsModelStatus.kOptimal else None


def _narrowed(solver: Any, program: Any, node_limit: int) -> Any:
    """The upper bound of each column, 0 for columns that are 0 in every optimum (reduced-cost fixing).

    If a column is 0 in the relaxation's optimum, raising it to 1 or more adds at least its reduced cost to the objective.  So a
    column whose reduced cost exceeds the gap between any known solution and the relaxation is 0 in every optimum.  Good solutions
    nearly always use columns with small reduced cost only, and a search among these is fast.
    """
    upper = np.array(program.col_upper_)
    relaxation = _relaxation(solver, program)
    if relaxation is None:
        return upper
    least, reduced = solver.getInfo().objective_function_value, np.array(relaxation.col_dual)
    program.col_upper_ = np.where(reduced > NEAR * abs(least), 0.0, upper)
    solution = _solve(solver, program, min(NEAR_NODES, node_limit))
    if solution.values is None:
        return upper
    most = float(np.rint(solution.values) @ np.array(program.col_cost_))
    return np.where(reduced > most - least + 1e-6 * (1.0 + abs(most)), 0.0, upper)


def _program(objective: Any, rows: Sequence[Row], upper: Any) -> Any:
    """The program in HiGHS's form: a sparse matrix by columns."""
    import highspy

    blocks = [(a if isinstance(a, Entries) else _entries(a), low, high) for a, low, high in rows]
    starts = np.cumsum([0, *(a.count for a, _, _ in blocks)])
    row = np.concatenate([np.zeros(0, int), *(a.rows + start for (a, _, _), start in zip(blocks, starts, strict=False))])
    column = np.concatenate([np.zeros(0, int), *(a.columns for a, _, _ in blocks)])
    value = np.concatenate([np.zeros(0), *(a.values for a, _, _ in blocks)])
    order = np.lexsort((row, column))
    row, column, value = row[order], column[order], value[order]
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = len(objective), int(starts[-1])
    program.col_cost_ = objective
    program.col_lower_ = np.zeros(len(objective))
    program.col_upper_ = np.broadcast_to(np.asarray(upper, float), len(objective)).copy()
    program.row_lower_ = _bounds(blocks, 1)
    program.row_upper_ = _bounds(blocks, 2)
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_ = np.searchsorted(column, np.arange(len(objective) + 1)).astype(np.int32)
    program.a_matrix_.index_ = row.astype(np.int32)
    program.a_matrix_.value_ = value
    program.integrality_ = [highspy.HighsVarType.kInteger] * len(objective)
    return program


def _entries(rows: Any) -> Entries:
    matrix = np.atleast_2d(np.asarray(rows, float))
    row, column = np.nonzero(matrix)
    return Entries(len(matrix), row, column, matrix[row, column])


def _bounds(blocks: Sequence[tuple[Entries, Any, Any]], side: int) -> Any:
    """The lower (`side` 1) or upper (2) bounds of all rows."""
    parts = [np.broadcast_to(np.asarray(block[side], float), block[0].count) for block in blocks]
    return np.concatenate(parts) if parts else np.zeros(0)


@contextmanager
def _silent() -> Iterator[None]:
    """Discard standard output: HiGHS sometimes prints a line despite its options, which would corrupt JSON output."""
    try:
        saved = os.dup(1)
    except OSError:  # there is no standard output
        yield
        return
    flush = ctypes.CDLL(None).fflush if os.name == "posix" else lambda _stream: None
    flush(None)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        flush(None)  # discard C's buffer as well
        os.dup2(saved, 1)
        os.close(nowhere)
        os.close(saved)
