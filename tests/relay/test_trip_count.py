"""trip_count: loops whose number of iterations follows from constants."""

from __future__ import annotations

from aot import relay
from aot.relay.analysis import trip_count
from tests.relay.control_graphs import below, number, twice


def test_trip_count() -> None:
    one = relay.const([1.0])
    assert trip_count(relay.while_loop([one], below(100), twice())) == 7
    assert trip_count(relay.while_loop([number("x")], below(100), twice())) is None
    assert trip_count(relay.while_loop([relay.const([0.0])], below(100), twice())) is None, "never ends"
