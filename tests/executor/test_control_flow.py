"""Branches and loops: drawn networks and small ones, as the reference, relay, TIR and C compute them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from aot.driver.build import build, compile_model
from aot.driver.options import Options
from aot.errors import ModelError, UnsupportedError
from aot.executor.emit import LoweredOutput
from aot.frontend.tflite import from_tflite
from aot.ir.module import parse
from aot.relay.expr import Function, If, While, all_functions, post_order
from aot.relay.interpreter import evaluate
from aot.relay.transform import pipeline
from aot.runtime import GraphModule
from aot.testing import HAVE_LITERT, HAVE_TFLM, ModelBuilder, reference_sets, tflm_reference
from aot.tir.interpreter import InterpreterError
from tests.executor.control_nets import control_inputs, control_net
from tests.executor.poisoned import build_together, run_poisoned
from tests.scale import cases

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
TRAP = ("-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")
OPTS = ("balanced", "ram", "speed", "size")
Sets = Sequence[Sequence[np.ndarray]]


def same(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray], what: str) -> None:
    assert [f.tobytes() for f in found] == [np.ascontiguousarray(w).tobytes() for w in wanted], what


def compiled(model: bytes, seed: int) -> LoweredOutput:
    options = Options(opt=OPTS[seed % 4], io="user" if seed % 3 == 2 else "arena")
    return compile_model(model, target="host", name=f"n{seed}", options=options)


def check_networks(seeds: Sequence[int], folder: Path) -> None:
    """LiteRT = evaluate = the interpreted main = C whose dead bytes are overwritten, over four sets each."""
    nets = [control_net(seed) for seed in seeds]
    made = [compiled(net, seed) for seed, net in zip(seeds, nets, strict=True)]
    loaded = build_together([m.artifact for m in made], folder, *TRAP)
    for seed, net, out, module in zip(seeds, nets, made, loaded, strict=True):
        sets = control_inputs(seed)
        func = from_tflite(net)["main"]
        assert isinstance(func, Function)
        wanted = [evaluate(func, s) for s in sets]
        for found, want in zip(reference_sets(net, sets) if HAVE_LITERT else wanted, wanted, strict=True):
            same(want, found, f"evaluate, seed {seed}")
        for inputs, want in zip(sets, wanted, strict=True):
            same(out.interpret(inputs), want, f"interpreted main, seed {seed}")
            same(run_poisoned(module, inputs, 0x3C), want, f"C, seed {seed}")


@pytest.mark.skipif(not HAVE_TFLM, reason="tflite-micro is not installed")
@pytest.mark.parametrize("seed", [1, 3, 7, *(pytest.param(s, marks=pytest.mark.slow) for s in range(100, 100 + cases(300)))])
def test_networks_as_tflm_runs_them(seed: int) -> None:
    """Which keeps variables apart that a loop's body exchanges."""
    net = control_net(seed)
    func = from_tflite(net, oracle="tflm")["main"]
    assert isinstance(func, Function)
    for inputs in control_inputs(seed):
        same(evaluate(func, inputs), tflm_reference(net, inputs), f"seed {seed}")


@needs_gcc
def test_networks(tmp_path: Path) -> None:
    check_networks((1, 3, 7), tmp_path)


@needs_gcc
@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_many_networks(block: int, tmp_path: Path) -> None:
    count = cases(300) // 10
    check_networks(range(100 + block * count, 100 + (block + 1) * count), tmp_path)


def doubling(limit: float = 100.0, *, start: int | None = None) -> bytes:
    """x is doubled while it is below a limit; with `start`, while a counter from there on is below 5."""
    b = ModelBuilder()
    x, y = b.tensor("x", (1,), "float32"), b.tensor("y", (1,), "float32")
    cond, body = b.subgraph("cond"), b.subgraph("body")
    given, inside = cond.tensor("v", (1,), "float32"), body.tensor("v", (1,), "float32")
    held, twice = cond.tensor("held", (1,), "bool"), body.tensor("twice", (1,), "float32")
    body.op("ADD", [inside, inside], [twice], fused_activation_function="NONE")
    if start is None:
        cond.op("LESS", [given, cond.tensor("limit", (1,), "float32", data=np.array([limit], np.float32))], [held])
        cond.inputs, cond.outputs, body.inputs, body.outputs = (given,), (held,), (inside,), (twice,)
        b.op("WHILE", [x], [y], cond_subgraph_index=1, body_subgraph_index=2)
        return b.build([x], [y])
    counters = [g.tensor("i", (1,), "int32") for g in (cond, body)]
    cond.op("LESS", [counters[0], cond.tensor("five", (1,), "int32", data=np.array([5], np.int32))], [held])
    after = body.tensor("next", (1,), "int32")
    body.op("ADD", [counters[1], body.tensor("one", (1,), "int32", data=np.array([1], np.int32))], [after])
    cond.inputs, cond.outputs = (counters[0], given), (held,)
    body.inputs, body.outputs = (counters[1], inside), (after, twice)
    first, last = b.tensor("first", (1,), "int32", data=np.array([start], np.int32)), b.tensor("last", (1,), "int32")
    b.op("WHILE", [first, x], [last, y], cond_subgraph_index=1, body_subgraph_index=2)
    return b.build([x], [y])


def loops(model: bytes) -> list[If | While]:
    main = pipeline()(from_tflite(model))["main"]
    assert isinstance(main, Function)
    return [e for f in all_functions(main) for e in post_order(f.body) if isinstance(e, If | While)]


@pytest.mark.parametrize(("start", "trips", "value"), [(0, 5, 96.0), (3, 2, 12.0)])
def test_counters_are_recognised(start: int, trips: int, value: float) -> None:
    out = compile_model(doubling(start=start), target="host", name="m")
    (row,) = out.artifact.metadata["control"]
    assert (row["kind"], row["iterations"], "max_iterations" in row) == ("while", trips, False)
    assert "AOT_ERROR_ITERATIONS" not in out.artifact.files["m.c"]
    (found,) = out.interpret([np.array([3], np.float32)])
    assert found == value


@pytest.mark.parametrize(("start", "value"), [(4, 6.0), (5, 3.0), (9, 3.0)])
def test_short_loops_are_written_out(start: int, value: float) -> None:
    assert not loops(doubling(start=start))
    out = compile_model(doubling(start=start), target="host", name="m")
    (found,) = out.interpret([np.array([3], np.float32)])
    assert found == value
    assert "control" not in out.artifact.metadata


def test_watchdog() -> None:
    """A loop whose end depends on data gives up; 0 stays 0 for ever."""
    out = compile_model(doubling(), target="host", name="m", options=Options(max_iterations=7))
    assert out.artifact.metadata["control"][0]["max_iterations"] == 7
    assert "return AOT_ERROR_ITERATIONS;" in out.artifact.files["m.c"]
    assert "may run 7 times" in out.artifact.files["m.h"]
    (found,) = out.interpret([np.array([1], np.float32)])
    assert found == 128, "seven iterations are within the limit"
    with pytest.raises(InterpreterError, match="has not ended after 7 iterations"):
        out.interpret([np.array([0], np.float32)])
    free = compile_model(doubling(), target="host", name="m", options=Options(max_iterations=0))
    assert "AOT_ERROR_ITERATIONS" not in free.artifact.files["m.c"]


def test_text_is_parsed_back() -> None:
    for seed in (1, 3, 7):
        module = pipeline()(from_tflite(control_net(seed)))
        text = module.astext(show_meta_data=True)
        assert parse(text).astext(show_meta_data=True) == text


@needs_gcc
def test_graph_module() -> None:
    for seed in (3, 7):
        net = control_net(seed)
        out, graph = compiled(net, seed), GraphModule(build(net, target="host", name=f"g{seed}"))
        for inputs in control_inputs(seed):
            for i, array in enumerate(inputs):
                graph.set_input(i, array)
            graph.run()
            same([graph.get_output(i) for i in range(graph.get_num_outputs())], out.interpret(inputs), f"seed {seed}")


def changing_shape(then: tuple[int, ...], orelse: tuple[int, ...]) -> bytes:
    """Branches that yield slices of these sizes."""
    b = ModelBuilder()
    c, x, y = b.tensor("c", (), "bool"), b.tensor("x", (4,), "float32"), b.tensor("y", then, "float32")
    for shape in (then, orelse):
        g = b.subgraph("branch")
        given, part = g.tensor("v", (4,), "float32"), g.tensor("part", shape, "float32")
        sizes = [g.tensor(n, (1,), "int32", data=np.array([v], np.int32)) for n, v in (("begin", 0), ("size", shape[0]))]
        g.op("SLICE", [given, *sizes], [part])
        g.inputs, g.outputs = (given,), (part,)
    b.op("IF", [c, x], [y], then_subgraph_index=1, else_subgraph_index=2)
    return b.build([c, x], [y])


def list_in_a_loop() -> bytes:
    """Row t of a list is x + t, as the converter spells TensorListSetItem: two slices of sizes that only the run knows."""
    b = ModelBuilder()
    x, first = b.tensor("x", (1, 3), "float32"), b.tensor("first", (), "int32", data=np.array(0, np.int32))
    empty = b.tensor("empty", (4, 3), "float32", data=np.zeros((4, 3), np.float32))
    results = [b.tensor("n", (), "int32"), b.tensor("list", (4, 3), "float32"), b.tensor("same", (1, 3), "float32")]
    cond, body = b.subgraph("cond"), b.subgraph("body")
    for g in (cond, body):
        g.inputs = (g.tensor("t", (), "int32"), g.tensor("list", (4, 3), "float32"), g.tensor("x", (1, 3), "float32"))

    def ints(*values: int, scalar: bool = False) -> int:
        name = f"c{len(body.tensors)}"
        data = np.array(values[0] if scalar else values, np.int32)
        return body.tensor(name, data.shape, "int32", data=data)

    def made(name: str, operands: Sequence[int], shape: tuple[int, ...], dtype: str = "int32", **options: object) -> int:
        result = body.tensor(f"{name}_{len(body.tensors)}", shape, dtype)
        body.op(name, list(operands), [result], **options)
        return result

    def part(begin: int, size: int) -> int:
        result = body.tensor(f"part_{len(body.tensors)}", (1, 3), "float32", shape_signature=(-1, -1))
        body.op("SLICE", [body.inputs[1], begin, size], [result])
        return result

    t, _, row = body.inputs
    following = made("ADD", [t, ints(1, scalar=True)], (), fused_activation_function="NONE")
    number = made("CAST", [t], (), "float32", in_data_type="INT32", out_data_type="FLOAT32")
    row = made("ADD", [row, number], (1, 3), "float32", fused_activation_function="NONE")
    at, after = (made("RESHAPE", [v, ints(1)], (1,)) for v in (t, following))
    length = made("CONCATENATION", [at, ints(-1)], (2,), axis=0, fused_activation_function="NONE")
    begin = made("CONCATENATION", [after, ints(0)], (2,), axis=0, fused_activation_function="NONE")
    parts = [part(ints(0, 0), length), row, part(begin, ints(-1, -1))]
    whole = made("CONCATENATION", parts, (4, 3), "float32", axis=0, fused_activation_function="NONE")
    body.outputs = (following, whole, body.inputs[2])
    held = cond.tensor("held", (), "bool")
    cond.op("LESS", [cond.inputs[0], cond.tensor("four", (), "int32", data=np.array(4, np.int32))], [held])
    cond.outputs = (held,)
    b.op("WHILE", [first, empty, x], results, cond_subgraph_index=1, body_subgraph_index=2)
    return b.build([x], [results[1]])


def test_list_written_row_by_row() -> None:
    model, x = list_in_a_loop(), np.array([[1, -2, 3]], np.float32)
    out = compile_model(model, target="host", name="m")
    (found,) = out.interpret([x])
    np.testing.assert_array_equal(found, x + np.arange(4, dtype=np.float32)[:, None])
    if HAVE_LITERT:
        same([found], reference_sets(model, [[x]])[0], "the reference")
    assert out.artifact.metadata["control"][0]["iterations"] == 4


def test_shapes_that_depend_on_data_are_refused() -> None:
    assert from_tflite(changing_shape((2,), (2,)))
    with pytest.raises((ModelError, UnsupportedError), match="E1162"):
        from_tflite(changing_shape((2,), (3,)))
