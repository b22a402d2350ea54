"""relay.If and relay.While: constructors, verifier, interpreter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aot import relay
from aot.errors import InternalError, UsageError
from aot.relay.interpreter import EndlessLoopError, evaluate
from aot.relay.verify import verify
from tests.relay.control_graphs import below, number, twice


def test_loop() -> None:
    x = number("x")
    main = relay.Function((x,), relay.while_loop([x], below(100), twice()))
    verify(main)
    assert evaluate(main, [np.array([3], np.float32)])[0] == 192
    with pytest.raises(EndlessLoopError, match="after 9 iterations"):
        evaluate(main, [np.array([0], np.float32)], limit=9)


def test_branch() -> None:
    x, v = number("x"), number("v")
    branch = relay.if_then_else(relay.less(x, relay.const([0.0])), [x], relay.Function((v,), v), twice())
    main = relay.Function((x,), branch)
    verify(main)
    assert [float(evaluate(main, [np.array([n], np.float32)])[0][0]) for n in (-3, 3)] == [-3, 6]


def test_types_are_checked() -> None:
    x, pair = number("x"), relay.var("p", shape=(2,), dtype="float32")
    with pytest.raises(UsageError, match="E1160"):
        relay.if_then_else(x, [x], twice(), twice())
    with pytest.raises(UsageError, match="E1160"):
        relay.while_loop([pair], below(1), twice())
    with pytest.raises(UsageError, match="E1160"):
        relay.while_loop([], below(1), twice())
    good = relay.while_loop([x], below(1), twice())
    with pytest.raises(InternalError, match="a loop's body yields"):
        verify(relay.Function((pair,), replace(good, args=(pair,))))
