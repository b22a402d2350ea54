"""Values that inputs may take, found by trying; on models as files: tests/frontend/test_input_values.py."""

from __future__ import annotations

import numpy as np
import pytest

from aot import op as operators
from aot import relay
from aot.relay.analysis import input_ranges
from aot.relay.expr import Expr, Function

operators.load_all()

TABLE = relay.const(np.arange(40, dtype=np.float32).reshape(20, 2))


def index() -> relay.Var:
    return relay.var("i", shape=(3,), dtype="int32")


def rows(place: Expr) -> Expr:
    return relay.take(TABLE, place, axis=0)


def number(value: int) -> Expr:
    return relay.const(np.array([value], np.int32))


def test_a_place_in_a_table() -> None:
    i = index()
    assert input_ranges(Function((i,), rows(i))) == {0: (0, 19)}


@pytest.mark.parametrize("shift", [-7, 4])
def test_a_place_that_is_shifted(shift: int) -> None:
    i = index()
    assert input_ranges(Function((i,), rows(relay.add(i, number(shift))))) == {0: (-shift, 19 - shift)}


def test_the_narrower_of_two_tables_decides() -> None:
    i = index()
    short = relay.take(relay.const(np.zeros((5, 2), np.float32)), i, axis=0)
    assert input_ranges(Function((i,), relay.add(rows(i), short))) == {0: (0, 4)}


def test_only_inputs_that_lead_to_a_place_are_limited() -> None:
    i, x = index(), relay.var("x", shape=(3, 2), dtype="float32")
    assert input_ranges(Function((x, i), relay.add(rows(i), x))) == {1: (0, 19)}
    assert input_ranges(Function((x,), relay.add(x, x))) == {}
