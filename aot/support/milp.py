"""Integer programs, solved by HiGHS."""

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
    """`count` rows that are mostly zeros: row, column and value of each coefficient that is not."""

    count: int
    rows: Any
    columns: Any
    values: Any


@dataclass(frozen=True, slots=True)
class Solution:
    """The best `values` found, None if none are; `bound`: the objective that no values go below.

    `proven`: the search ended by itself, so these values are the optimum, or there are none; else it stopped at its limit.
    """

    values: Any | None
    bound: float
    proven: bool


NEAR = 1e-3
"""Columns of at most this reduced cost, a share of the relaxation's optimum, are tried first for a bound."""

NEAR_NODES = 100
"""Branches of that first search: any values it finds are a bound."""


def minimise(objective: Any, rows: Sequence[Row], *, upper: Any, node_limit: int, narrow: bool = False) -> Solution:
    """Integers from 0 to `upper` that satisfy all rows with the least sum of `objective`.

    `node_limit` bounds the branches: a count, so that the result does not depend on the machine.  `narrow` drops dominated
    columns; that pays off when most are dominated.
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
    found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    proven = solver.getModelStatus() in (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kInfeasible)
    return Solution(np.asarray(solution.col_value) if found else None, info.mip_dual_bound, proven)


def relaxed(objective: Any, rows: Sequence[Row], *, upper: Any) -> Any | None:
    """As `minimise`, but for any numbers: their values, or None where none satisfy all rows."""
    with _silent():
        solver = _solver()
        found = _relaxation(solver, _program(np.asarray(objective, float), rows, upper))
        return None if found is None else np.array(found.col_value)


def _solver() -> Any:
    import highspy

    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("mip_rel_gap", 0.0)
    solver.setOptionValue("threads", 1)  # the same search on every machine
    for heuristic in ("feasibility_jump", "root_reduced_cost", "rins", "rens"):  # cost more than they save
        solver.setOptionValue(f"mip_heuristic_run_{heuristic}", False)
    return solver


def _relaxation(solver: Any, program: Any) -> Any | None:
    """The optimum where values need not be integers."""
    import highspy

    solver.setOptionValue("solve_relaxation", True)
    solver.passModel(program)
    solver.run()
    solver.setOptionValue("solve_relaxation", False)
    return solver.getSolution() if solver.getModelStatus() == highspy.HighsModelStatus.kOptimal else None


def _narrowed(solver: Any, program: Any, node_limit: int) -> Any:
    """The upper bound of each column, 0 where it is 0 in every optimum (reduced-cost fixing).

    A column that is 0 in the optimum of the relaxation, where values need not be integers, adds at least its reduced cost to
    that optimum once it is 1 or more.  So no optimum has a column whose reduced cost is more than what any values in hand add;
    good ones are nearly always among the columns of small reduced cost, and found there fast.
    """
    upper = np.array(program.col_upper_)
    relaxation = _relaxation(solver, program)
    if relaxation is None:
        return upper
    least, reduced = solver.getInfo().objective_function_value, np.array(relaxation.col_dual)
    program.col_upper_ = np.where(reduced > NEAR * abs(least), 0.0, upper)
    found = _solve(solver, program, min(NEAR_NODES, node_limit))
    if found.values is None:
        return upper
    most = float(np.rint(found.values) @ np.array(program.col_cost_))
    return np.where(reduced > most - least + 1e-6 * (1.0 + abs(most)), 0.0, upper)


def _program(objective: Any, rows: Sequence[Row], upper: Any) -> Any:
    """The program as HiGHS takes it: the matrix by columns, without its zeros."""
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
    """The lower (`side` 1) or upper (2) bounds of all rows, one number a row."""
    parts = [np.broadcast_to(np.asarray(block[side], float), block[0].count) for block in blocks]
    return np.concatenate(parts) if parts else np.zeros(0)


@contextmanager
def _silent() -> Iterator[None]:
    """Nothing reaches standard output: HiGHS sometimes prints a line whatever its options say, and JSON may go there."""
    try:
        kept = os.dup(1)
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
        flush(None)  # what waits in the buffer of C must not come out later
        os.dup2(kept, 1)
        os.close(nowhere)
        os.close(kept)
