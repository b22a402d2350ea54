"""SVDFs whose memory moves on instead of being shifted: bytes moved, and the same outputs over time in every way to run them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aot.driver.build import build, compile_model
from aot.driver.options import Options
from aot.micro.board import load_board
from aot.micro.build.project import prepare
from aot.micro.run.runner import run
from aot.runtime.graph import GraphModule
from aot.runtime.module import load
from aot.testing import HAVE_TFLM, ModelBuilder, reference_sets, tflm_sets
from tests.op._steps import random_steps
from tests.op._svdf_models import Svdf, svdf_layer, svdf_model
from tests.op.state.test_variable import same

STEPS = 200
DRAWN = 300 if os.environ.get("AOT_FULL") else 8
KINDS = ("int8", "int8-state", "float32", "hybrid")
Sets = list[list[np.ndarray[Any, Any]]]


def oracle_of(kind: str) -> str:
    return "tflm" if kind == "int8-state" else "litert"


def expected(kind: str, model: bytes, steps: Sets) -> Sets:
    if kind == "int8-state" and not HAVE_TFLM:
        pytest.skip("tflite-micro is not installed")
    return (tflm_sets if kind == "int8-state" else reference_sets)(model, steps)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_two_hundred_steps_a_reset_and_two_streams(kind: str) -> None:
    model = svdf_model(Svdf(kind, batch=2, depth=5, units=3, rank=2, memory=10))
    both = [random_steps(model, seed=s, number=STEPS, oracle=oracle_of(kind)) for s in (1, 2)]
    wanted = [expected(kind, model, steps) for steps in both]
    made = compile_model(model, target="host", options=Options(oracle=oracle_of(kind)))
    assert made.layout.rings is not None
    host, graph = load(made.artifact), GraphModule(made.artifact)
    for steps, want in zip(both, wanted, strict=True):
        assert same([host.run(s) for s in steps], want)
        for given, outputs in zip(steps[:20], want, strict=False):
            graph.set_input(0, given[0])
            graph.run()
            assert same([[graph.get_output(0)]], [outputs])
        host.reset()
        graph.reset()
    shared = load(build(model, target="host", options=Options(oracle=oracle_of(kind), io="user")))
    states = [shared.new_state(), shared.new_state()]
    for n in range(STEPS):
        for k in (0, 1):
            assert same([shared.run(both[k][n], state=states[k])], [wanted[k][n]]), f"step {n} of stream {k}"


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_moved(kind: str) -> None:
    model = svdf_model(Svdf(kind, units=5, rank=2, memory=12))
    size = {"int8": 2, "int8-state": 1}.get(kind, 4)
    found = {}
    for rings in ("copy", "slide"):
        found[rings] = compile_model(model, options=Options(rings=rings, oracle=oracle_of(kind))).artifact.metadata["state"]
    assert {k: v["bytes_new"] for k, v in found.items()} == {"copy": 10 * size, "slide": 10 * size}
    assert found["copy"]["bytes_moved"] == 110 * size, "every filter's eleven last values"
    assert found["slide"]["bytes_moved"] <= 1.2 * found["slide"]["bytes_new"]
    assert found["slide"]["rings"]["turns"] == 10
    assert found["slide"]["size"] == 4 + (120 + 1 + 9) * size, "the counter, one value more, and room for nine steps"


def many(seed: int, kind: str) -> bytes:
    """SVDFs of one kind and different sizes beside each other."""
    rng, b = np.random.default_rng(seed), ModelBuilder()
    ends = []
    for i in range(int(rng.integers(1, 5))):
        sizes = {k: int(rng.integers(1, n)) for k, n in (("batch", 3), ("depth", 6), ("units", 5), ("rank", 4), ("memory", 15))}
        ends.append(svdf_layer(b, Svdf(kind, seed=seed + i, **sizes)))
    return b.build([x for x, _ in ends], [y for _, y in ends])


def check_many(seed: int) -> None:
    kind = KINDS[seed % 4]
    model = many(seed, kind)
    steps = random_steps(model, seed=seed, number=40, oracle=oracle_of(kind))
    options = Options(oracle=oracle_of(kind), opt=("balanced", "speed")[seed % 2], io="user" if seed % 3 else "arena")
    made = compile_model(model, options=options)
    state = made.initial_state()
    wanted = expected(kind, model, steps)
    assert same([made.interpret(s, state=state) for s in steps[:16]], wanted[:16])
    host = load(made.artifact)
    assert same([host.run(s) for s in steps], wanted)
    told = made.artifact.metadata["state"]
    assert told["bytes_moved"] <= 1.2 * told["bytes_new"]


@pytest.mark.parametrize("seed", range(4))
def test_many_sizes(seed: int) -> None:
    check_many(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 4 + DRAWN))
def test_more_sizes(seed: int) -> None:
    check_many(seed)


def with_loop(*, limit: bool) -> bytes:
    """An SVDF whose result a loop doubles three times, or as long as its sum is small."""
    b = ModelBuilder()
    x, y = svdf_layer(b, Svdf("float32", units=2, rank=2, memory=8, activation="NONE"))
    cond, body = b.subgraph("cond"), b.subgraph("body")

    def number(g: Any, value: Any, dtype: str) -> int:
        return int(g.tensor(f"n{len(g.tensors)}", np.shape(value), dtype, data=np.array(value, dtype)))

    for g, result in ((cond, "held"), (body, "twice")):
        count, value = g.tensor("count", (), "int32"), g.tensor("value", (1, 2), "float32")
        if result == "held":
            held = g.tensor("held", (), "bool")
            if limit:
                g.op("LESS", [count, number(g, 3, "int32")], [held])
            else:
                total, size = g.tensor("total", (), "float32"), g.tensor("size", (1, 2), "float32")
                g.op("ABS", [value], [size])
                g.op("SUM", [size, number(g, [0, 1], "int32")], [total], keep_dims=False)
                g.op("LESS", [total, number(g, 10.0, "float32")], [held])
            g.inputs, g.outputs = [count, value], [held]
        else:
            after, twice = g.tensor("after", (), "int32"), g.tensor("twice", (1, 2), "float32")
            g.op("ADD", [count, number(g, 1, "int32")], [after], fused_activation_function="NONE")
            g.op("ADD", [value, value], [twice], fused_activation_function="NONE")
            g.inputs, g.outputs = [count, value], [after, twice]
    last, z = b.tensor("last", (), "int32"), b.tensor("z", (1, 2), "float32")
    b.op("WHILE", [number(b.subgraphs[0], 0, "int32"), y], [last, z], cond_subgraph_index=1, body_subgraph_index=2)
    return b.build([x], [z])


@pytest.mark.parametrize("limit", [True, False])
def test_beside_a_loop(*, limit: bool) -> None:
    model = with_loop(limit=limit)
    steps = random_steps(model, seed=3, number=40)
    made = compile_model(model)
    assert made.layout.rings is not None
    host = load(made.artifact)
    assert same([host.run(s) for s in steps], reference_sets(model, steps))
    told = made.artifact.metadata["state"]
    assert told["bytes_moved"] <= 1.2 * told["bytes_new"]


@pytest.mark.qemu
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cpu", ["mps2-an386", "microbit"])
def test_on_a_board(kind: str, cpu: str, tmp_path: Path) -> None:
    model, board = many(KINDS.index(kind) + 8, kind), load_board(cpu)
    steps = random_steps(model, seed=1, number=30, oracle=oracle_of(kind))
    made = compile_model(model, target=board.cpu, options=Options(oracle=oracle_of(kind)))
    assert made.layout.rings is not None
    project = prepare(made.artifact, board, folder=tmp_path)
    assert same(run(project, steps).outputs, expected(kind, model, steps))
