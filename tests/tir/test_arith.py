"""Interval arithmetic is sound: no value outside, checked by enumeration; and exact where it is easy."""

from __future__ import annotations

from itertools import product

import pytest

from aot.support.dtype import int_range
from aot.tir.arith import INT_MEANING, exact_interval, fitted, interval
from aot.tir.expr import ARITHMETIC, COMPARISONS, LOGICAL, BinOp, Cast, Imm, Var, imm, select

RANGES = [(lo, hi) for lo in (-5, -3, -1, 0, 1, 2) for hi in (-3, -1, 0, 1, 3, 4) if lo <= hi]


@pytest.mark.parametrize("op", sorted(ARITHMETIC | COMPARISONS | LOGICAL))
def test_no_value_is_outside(op: str) -> None:
    for a, b in product(RANGES, RANGES):
        if op in LOGICAL and (a[0] < 0 or a[1] > 1 or b[0] < 0 or b[1] > 1):
            continue
        low, high = exact_interval(op, a, b, dtype="int8")
        values = [
            INT_MEANING[op](x, y)
            for x in range(a[0], a[1] + 1)
            for y in range(b[0], b[1] + 1)
            if not (op in ("/", "%") and y == 0) and not (op in ("<<", ">>") and not 0 <= y < 8)
        ]
        assert all(low <= v <= high for v in values), (a, b)
        if values and op in ("+", "-", "*", "min", "max", "<", "<=", ">", ">=", "==", "!="):
            assert (low, high) == (min(values), max(values)), (a, b)


def test_results_are_fitted_into_their_type() -> None:
    assert fitted((-1, 300), "int8") == (-1, 127)
    assert fitted((-1, 3), "uint8") == (0, 255)
    assert fitted((400, 500), "int8") == (-128, 127)
    assert fitted((2, 3), "uint8") == (2, 3)


def test_expressions() -> None:
    v, w = Var("v"), Var("w", "uint8")
    ranges = {v: (2, 5)}
    assert interval(v * 3 - 1, ranges) == (5, 14)
    assert interval(w, ranges) == (0, 255)
    assert interval(Cast("int8", v), ranges) == (2, 5)
    assert interval(Cast("int8", v * 100), ranges) == int_range("int8")
    assert interval(select(v > 3, imm(7), v), ranges) == (2, 7)
    assert interval(select(v > 9, imm(7), v), ranges) == (2, 5)
    assert interval(select(v >= 2, imm(7), v), ranges) == (7, 7)
    assert interval(BinOp("&", Cast("int32", w), imm(15)), {}) == (0, 15)
    assert interval(Cast("int32", Imm(1.5, "float32")), {}) == int_range("int32")
