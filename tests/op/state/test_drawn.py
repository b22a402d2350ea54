"""Drawn networks of variables, branches and loops: the reference, relay and the interpreted main agree over time.

`tests/executor/test_control_flow.py` and `tests/executor/test_stateful_nets.py` build such networks as C too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aot.driver.build import compile_model
from aot.driver.options import Options
from aot.frontend.tflite.convert import SUPPORT, load_all
from aot.relay.interpreter import StatefulFunction
from aot.testing import HAVE_LITERT, ModelBuilder, reference_sets
from aot.testing.builder import assign, handle, initialize, read
from tests.executor.control_nets import control_inputs, control_net
from tests.op._differential import FAST, OFTEN, main_of, random_array, same
from tests.op._drawn_count import count
from tests.stateful import draw_network

load_all()

Array = np.ndarray[Any, Any]
Steps = Sequence[Sequence[Array]]
TYPES = SUPPORT["WHILE"].types
OPTS = ("balanced", "ram", "speed", "size")
SEEDS = st.integers(0, 1_000_000)


def check(model: bytes, steps: Steps, seed: int) -> None:
    """The steps one after the other, in each way."""
    relay = StatefulFunction(main_of(model))
    output = compile_model(model, target="host", options=Options(opt=OPTS[seed % 4], io="user" if seed % 3 == 2 else "arena"))
    state = output.initial_state()
    found = [relay.run(inputs) for inputs in steps]
    for inputs, wanted in zip(steps, found, strict=True):
        same(output.interpret(inputs, state=state), wanted, "the interpreted main differs from evaluate")
    if HAVE_LITERT:
        for outputs, wanted in zip(found, reference_sets(model, steps), strict=True):
            same(outputs, [np.ascontiguousarray(w) for w in wanted], "evaluate differs from the reference")
        count(model, steps)


@given(SEEDS)
@FAST
def test_some_networks_with_control_flow(seed: int) -> None:
    check(control_net(seed), control_inputs(seed), seed)


@pytest.mark.slow
@given(SEEDS)
@OFTEN
def test_networks_with_control_flow(seed: int) -> None:
    check(control_net(seed), control_inputs(seed), seed)


@pytest.mark.slow
@given(SEEDS)
@OFTEN
def test_networks_with_variables(seed: int) -> None:
    model, steps = draw_network(seed)
    check(model, steps, seed)


def rotation(seed: int, dtype: str) -> tuple[bytes, Steps]:
    """A loop of `n` steps rotates variables of a type, a branch chooses two of them, and one is kept for the next run."""
    rng = np.random.default_rng(seed)
    b, shape = ModelBuilder(), (int(rng.integers(1, 5)),)
    main, number = b.subgraphs[0], int(rng.integers(2, 5))
    initialize(b, {"kept": random_array(rng, shape, dtype, extreme=True)})
    n, x, last = b.tensor("n", (), "int32"), b.tensor("x", shape, dtype), b.tensor("last", (), "int32")
    first = b.tensor("first", (), "int32", data=np.array(int(rng.integers(-1, 2)), np.int32))
    kept = handle(main, "kept")
    values = [x, read(main, kept, shape, dtype)]
    values += [int(rng.choice(values)) for _ in range(number - 2)]
    cond, body = b.subgraph("cond"), b.subgraph("body")
    for g in (cond, body):
        g.inputs = tuple(g.tensor(v, (), "int32") for v in "in") + tuple(g.tensor(f"v{k}", shape, dtype) for k in range(number))
    held, after = cond.tensor("held", (), "bool"), body.tensor("after", (), "int32")
    cond.op("LESS", list(cond.inputs[:2]), [held])
    cond.outputs = (held,)
    one = body.tensor("one", (), "int32", data=np.array(1, np.int32))
    body.op("ADD", [body.inputs[0], one], [after], fused_activation_function="NONE")
    body.outputs = (after, body.inputs[1], *(body.inputs[2 + int(k)] for k in rng.permutation(number)))
    turned = [b.tensor(f"turned{k}", shape, dtype) for k in range(number)]
    b.op(
        "WHILE", [first, n, *values], [last, b.tensor("same", (), "int32"), *turned], cond_subgraph_index=2, body_subgraph_index=3
    )
    for name in ("then", "else"):
        g = b.subgraph(name)
        g.inputs = tuple(g.tensor(f"v{k}", shape, dtype) for k in range(number))
        g.outputs = tuple(g.inputs[int(k)] for k in rng.permutation(number)[:2])
    odd, chosen = b.tensor("odd", (), "bool"), [b.tensor(f"chosen{k}", shape, dtype) for k in range(2)]
    b.op("LESS", [last, b.tensor("two", (), "int32", data=np.array(2, np.int32))], [odd])
    b.op("IF", [odd, *turned], chosen, then_subgraph_index=4, else_subgraph_index=5)
    assign(main, kept, chosen[0])
    numbers = rng.integers(-1, 5, 6)
    return b.build([n, x], chosen), [[np.array(k, np.int32), random_array(rng, shape, dtype, extreme=False)] for k in numbers]


@pytest.mark.parametrize("dtype", ["int8", "bool"])
def test_some_types(dtype: str) -> None:
    for seed in range(3):
        check(*rotation(seed, dtype), seed)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES)
@given(SEEDS)
@OFTEN
def test_types(dtype: str, seed: int) -> None:
    check(*rotation(seed, dtype), seed)
