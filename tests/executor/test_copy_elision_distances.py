"""Operands that may overlap: as conflicts between the storages in which they lie."""

from __future__ import annotations

from dataclasses import replace

from aot.executor.copy_elision import Operand, call_distances
from aot.memory.plan import Conflict
from tests.executor.nets import add, dense


def test_an_element_wise_layer_works_in_place() -> None:
    found = call_distances(add(8), [Operand("x"), Operand("z"), Operand("y")])
    assert set(found) == {Conflict("y", "x", 0), Conflict("y", "z", 0)}


def test_operands_that_begin_within_a_storage() -> None:
    """The input is bytes 3 to 10 of x: y may start 3 bytes after x and not before."""
    found = call_distances(add(8), [Operand("x", 3, 16), Operand(""), Operand("y")])
    assert found == (Conflict("y", "x", -3),)


def test_one_storage_as_both_operands_keeps_to_both_distances() -> None:
    found = call_distances(add(8), [Operand("x", 3, 16), Operand("x", 5, 16), Operand("y")])
    assert found == (Conflict("y", "x", -3),)


def test_a_layer_that_copies_its_input_first() -> None:
    """From then on the result may lie over the input, but each result is made of the whole copy."""
    found = call_distances(dense(16, 16), [Operand("x"), Operand("y"), Operand("wide")])
    by_pair = {frozenset((c.a, c.b)): c for c in found}
    over_input = by_pair[frozenset("xy")]
    assert over_input.min_distance is not None
    assert over_input.min_distance <= 0
    over_copy = by_pair.get(frozenset(("y", "wide")))
    assert over_copy is None or abs(over_copy.min_distance or 0) >= 15, "the last result alone may lie there"


def test_distances_that_the_maker_of_a_function_knows() -> None:
    func = add(8)
    known = replace(func, attrs=replace(func.attrs, distances={("x", "y"): 4}))
    assert call_distances(known, [Operand("p", 2), Operand("q"), Operand("r", 1)]) == (Conflict("p", "r", 5),)
