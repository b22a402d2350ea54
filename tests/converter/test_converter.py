"""Networks as today's converter writes them, its default batch included: each compiles, and gives the reference's bits as C."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from platform import machine

import numpy as np
import pytest

from aot.driver.build import build
from aot.frontend.formats import Choice
from aot.frontend.problems import Problems
from aot.frontend.tflite import check_model, from_tflite
from aot.frontend.tflite.specialize import specialize
from aot.frontend.tflite.view import parse
from aot.relay.expr import Function
from aot.relay.interpreter import evaluate
from aot.runtime.module import load
from aot.testing import HAVE_LITERT, reference_sets
from aot.testing.reference import input_details, reference_tensors
from tests.cli.helper import Cli
from tests.converter.judge import steps_for, wrong_in_the_reference
from tests.converter.models import ARCHIVE, KINDS, names, read
from tests.scale import cases

Sets = list[list[np.ndarray]]
SIZE_LIMIT = 2_000_000

LOST_WEIGHTS = frozenset({"gru_stacked.int16x8.tflite", "gru_unrolled.int16x8.tflite", "images_in_time.int16x8.tflite"})
"""The converter gives weights a scale of infinity where the first step's state is a constant of zeros, and loses their
values (aot explain E1111).
"""


def sets_for(model: bytes, count: int = 3) -> Sets:
    return [step.inputs for step in steps_for(model, count)]


def main_of(model: bytes) -> Function:
    main = from_tflite(model)["main"]
    assert isinstance(main, Function)
    return main


def expected(model: bytes, sets: Sets) -> tuple[str, Sets]:
    """Who says so, and what must come out: the graph interpreter's results where the reference has no kernel or a wrong one."""
    if not wrong_in_the_reference(model):
        try:
            return "reference", reference_sets(model, sets)
        except (RuntimeError, ValueError):
            pass
    return "interpreter", [evaluate(main_of(model), s) for s in sets]


def assert_same(found: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
        assert a.dtype.kind == "f" or a.tobytes() == np.ascontiguousarray(b).tobytes()


def test_the_archive() -> None:
    """Sixty networks and more, most of them in all kinds."""
    kinds = Counter(name.split(".")[1] for name in names())
    assert set(kinds) == set(KINDS)
    assert min(kinds[k] for k in KINDS[:3]) >= 90
    assert kinds["int16x8"] >= 60
    assert ARCHIVE.stat().st_size <= SIZE_LIMIT
    view = parse(read("transformer.int8.tflite"), Problems())
    assert view is not None
    assert [view.subgraphs[0].tensors[i].shape_signature[0] for i in view.subgraphs[0].inputs] == [-1]


def recurrent_weights(name: str) -> Iterator[tuple[int, int, np.ndarray]]:
    """(operator, its result, weights) of each FULLY_CONNECTED whose weights have no finite scale in the 16x8 file."""
    view = parse(read(name), Problems())
    assert view is not None
    graph = view.subgraphs[0]
    for i, op in enumerate(graph.operators):
        weights = graph.tensors[op.inputs[1]] if op.opcode == "FULLY_CONNECTED" else None
        if weights is not None and weights.quant is not None and not np.isfinite(weights.quant.scales).all():
            assert weights.data is not None
            yield i, op.outputs[0], weights.data


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(LOST_WEIGHTS))
def test_weights_that_the_converter_lost(name: str) -> None:
    """Zeros in 16x8 which are none in float32; where the first steps' layers have the sum 0, x86 makes -32768 of it."""
    found = list(recurrent_weights(name))
    assert len(found) >= 3
    assert not any(weights.any() for *_, weights in found)
    view = parse(read(name.replace("int16x8", "float32")), Problems())
    assert view is not None
    same = [t.data for t in view.subgraphs[0].tensors if t.data is not None and t.shape == found[0][2].shape]
    assert same
    assert all(np.abs(data).max() > 0.5 for data in same)
    assert not check_model(read(name))
    if HAVE_LITERT and machine() == "x86_64":
        tensors = reference_tensors(read(name), [np.zeros(s, d) for s, d in input_details(read(name))])
        assert all((tensors[result] == -32768).all() for _, result, _ in found)
        sets = sets_for(read(name))
        for inputs, wanted in zip(sets, reference_sets(read(name), sets), strict=True):
            assert_same(evaluate(main_of(read(name)), inputs), wanted)


QUICK = ("dense_of_sequences.int8", "dilated_2d.int8_float_io", "tcn.int16x8", "convnext.float32", "batch_in_the_graph.float32")
"""What used to be refused for the shapes that a dynamic batch leaves open."""


@pytest.mark.skipif(not HAVE_LITERT, reason="ai-edge-litert is not installed")
@pytest.mark.parametrize("name", QUICK)
def test_graph(name: str) -> None:
    """The graph, interpreted, gives the reference's bits; so it does for a batch of two."""
    model = read(f"{name}.tflite")
    for data in (model, specialize(model, Choice(batch=2))):
        sets = sets_for(data, 1)
        by, wanted = expected(data, sets)
        assert by == "reference"
        assert_same(evaluate(main_of(data), sets[0]), wanted[0])


def sampled() -> tuple[str, ...]:
    """All models with AOT_FULL=1, else every ninth or so, of all kinds."""
    everything = names()
    return everything[:: len(everything) // cases(len(everything))]


@pytest.mark.slow
@pytest.mark.skipif(not HAVE_LITERT, reason="ai-edge-litert is not installed")
@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
@pytest.mark.parametrize("name", sorted({*sampled(), *LOST_WEIGHTS}))
def test_compiled(name: str) -> None:
    model = read(name)
    artifact = build(model, target="host", name="m")
    module = load(artifact)
    sets = sets_for(model)
    for inputs, wanted in zip(sets, expected(model, sets)[1], strict=True):
        assert_same(module.run(inputs), wanted)


@pytest.mark.qemu
@pytest.mark.skipif(
    shutil.which("arm-none-eabi-gcc") is None or shutil.which("qemu-system-arm") is None,
    reason="arm-none-eabi-gcc or qemu-system-arm is not installed",
)
@pytest.mark.skipif(not HAVE_LITERT, reason="ai-edge-litert is not installed")
@pytest.mark.parametrize("name", sorted(LOST_WEIGHTS))
def test_lost_weights_on_a_board(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An Arm core gives the bytes of the x86 reference."""
    path = tmp_path / name
    path.write_bytes(read(name))
    done = Cli(capsys)("verify", path, "--board", "mps2-an386", "--require-reference", "--json")
    assert done.code == 0, done.err
    assert done.json["exact"]
