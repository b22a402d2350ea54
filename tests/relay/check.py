"""Running a pass in a test: verified before and after, and the same bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy

from aot.ir.instrument import random_inputs
from aot.ir.module import IRModule
from aot.ir.op import Op
from aot.ir.transform import Pass, PassContext, Sequential
from aot.relay.expr import Call, Function, post_order
from aot.relay.interpreter import evaluate
from aot.relay.verify import verify
from tests.scale import cases


def run(transform: Pass | Sequential, func: Function, **config: object) -> Function:
    """The function after the pass."""
    verify(func)
    with PassContext(config=config):
        new = transform(IRModule({"main": func}))["main"]
    assert isinstance(new, Function)
    verify(new)
    for seed in range(3):
        inputs = random_inputs([p.type for p in func.params], seed=seed)
        for a, b in zip(evaluate(func, inputs), evaluate(new, inputs), strict=True):
            np.testing.assert_array_equal(a, b)
    return new


def ops(func: Function) -> list[str]:
    """Names of the operators in order of execution."""
    return [e.op.name for e in post_order(func.body) if isinstance(e, Call) and isinstance(e.op, Op)]


Drawn = Callable[[], None]
"""A test as hypothesis makes it: pytest calls it without arguments."""


def drawn_tests(graphs: SearchStrategy[Function], check: Callable[[Function], None], *, few: int) -> tuple[Drawn, Drawn]:
    """A test of `few` drawn functions, the same each time, and a slow one of 3,000."""

    def drawn(func: Function) -> None:
        check(func)

    anything = settings(suppress_health_check=list(HealthCheck))
    quick = settings(anything, max_examples=few, derandomize=True)(given(graphs)(drawn))
    often = settings(anything, max_examples=cases(3000))(given(graphs)(drawn))
    return quick, pytest.mark.slow(often)
