"""Functions one after the other as one: runs, rows and state, against running them by hand."""

from __future__ import annotations

import numpy as np

from aot import relay
from aot.relay.construct import constructor
from aot.relay.expr import Function, make_tuple
from aot.relay.interpreter import StatefulFunction
from aot.relay.state import STATE, StateTensor, state_of
from aot.relay.transform.stateful import Link, composed, split


def counter(size: int) -> Function:
    """x + what the last run left, which is x + 1 of that run."""
    x, old = relay.var("x", shape=(1, size), dtype="int32"), relay.var("old", shape=(1, size), dtype="int32")
    add, one = constructor("add"), relay.const(np.ones((1, size), np.int32))
    states = (StateTensor("old", np.full((1, size), 10, np.int32)),)
    return Function((x, old), make_tuple([add(x, old), x, add(x, one)]), {STATE: states})


def doubled(rows: int, width: int) -> Function:
    x = relay.var("x", shape=(1, rows, width), dtype="int32")
    return Function((x,), constructor("add")(x, x))


def test_a_link_runs_several_times_and_hands_its_state_on() -> None:
    main = composed([Link("ears", counter(4), runs=3), Link("net", doubled(6, 2))])
    assert main.params[0].type.shape == (1, 12)
    assert [s.name for s in state_of(main)] == ["ears_old"]
    whole, ears = StatefulFunction(main), StatefulFunction(counter(4))
    for push in range(3):
        x = np.arange(12, dtype=np.int32).reshape(1, 12) * (push + 1)
        wanted = [ears.run([part])[0] for part in np.split(x, 3, axis=1)]
        (got,) = whole.run([x])
        np.testing.assert_array_equal(got, 2 * np.concatenate(wanted, axis=1).reshape(1, 6, 2))


def test_another_result_may_go_on() -> None:
    main = composed([Link("ears", counter(4), output=1), Link("net", doubled(2, 2))])
    x = np.arange(4, dtype=np.int32).reshape(1, 4)
    np.testing.assert_array_equal(StatefulFunction(main).run([x])[0], 2 * x.reshape(1, 2, 2))


def test_one_part_is_the_whole() -> None:
    x = relay.var("x", shape=(1, 6), dtype="int32")
    assert split(x, 1, 1) == [x]
    assert [p.type.shape for p in split(x, 1, 3)] == [(1, 2)] * 3  # type: ignore[union-attr]
