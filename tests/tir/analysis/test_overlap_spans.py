"""Intervals at many instants at once, against the interpreter: no value lies outside, and what is known is known exactly."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from aot.tir.analysis import Span, evaluate, exact, narrowed, point
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import BinOp, Cast, Expr, Load, Var, imm, logical_and, maximum, minimum, select
from aot.tir.interpreter import run

Rule = Callable[[Expr, Expr], Expr]
ROW, COLUMN = Var("i"), Var("j")
RULES: dict[str, Rule] = {
    "affine": lambda i, j: i * 4 + j - 3,
    "least and most": lambda i, j: minimum(i, j) * maximum(i, imm(2)),
    "quotient": lambda i, j: (i + 7) / 3 - j % 4,
    "select": lambda i, j: select(i > j, i, j * 2),
    "bits": lambda i, j: BinOp("&", i, imm(6)) + (j >> 1),
    "narrow": lambda i, j: Cast("int32", Cast("int8", i * 50)),
}
LOW, HIGH = np.array([0, 2, 5]), np.array([3, 2, 9])
COLUMNS = np.array([1, 4, 0])
"""Rows from LOW to HIGH and the one column at each of three instants."""


def value(rule: Rule, row: int, column: int) -> int:
    b = IRBuilder("f")
    place, y = b.input("place", (2,), "int32"), b.output("y", (1,), "int32")
    b.store(y, 0, rule(place[0], place[1]))
    found = np.zeros(1, np.int32)
    run(b.finish(), {"place": np.array([row, column], np.int32), "y": found})
    return int(found[0])


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_no_value_is_outside(rule: Rule) -> None:
    low, high = (np.broadcast_to(end, 3) for end in evaluate(rule(ROW, COLUMN), {ROW: (LOW, HIGH), COLUMN: point(COLUMNS)}))
    for n in range(3):
        values = [value(rule, i, int(COLUMNS[n])) for i in range(LOW[n], HIGH[n] + 1)]
        assert low[n] <= min(values)
        assert max(values) <= high[n]


@pytest.mark.parametrize("rule", [r for n, r in RULES.items() if n != "narrow"], ids=[n for n in RULES if n != "narrow"])
def test_known_operands_give_known_results(rule: Rule) -> None:
    found = evaluate(rule(ROW, COLUMN), {ROW: point(HIGH), COLUMN: point(COLUMNS)})
    assert exact(found)
    assert np.asarray(found[0]).tolist() == [value(rule, int(i), int(j)) for i, j in zip(HIGH, COLUMNS, strict=True)]


def test_loads_are_known_where_they_were_stored() -> None:
    cell = Buffer("cell", (2,), "int32")
    load = Load(cell, (imm(1),), "int32")
    assert evaluate(load, {(cell, 1): point(COLUMNS)})[0] is COLUMNS
    assert evaluate(load, {(cell, 0): point(COLUMNS)}) == (-(1 << 31), (1 << 31) - 1)


def test_conditions_narrow_variables() -> None:
    env: dict[Var | tuple[Buffer, int], Span] = {ROW: (LOW, HIGH), COLUMN: point(COLUMNS)}
    low, high = narrowed(logical_and(ROW >= 1, ROW < COLUMN), env)[ROW]
    assert np.asarray(low).tolist() == [1, 2, 5]
    assert np.asarray(high).tolist() == [0, 2, -1], "an empty interval where the condition cannot hold"
