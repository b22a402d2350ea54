"""Every model that a set of LiteRT's kernels runs is compared; what none runs is named, and is no fault of the outputs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from aot.cli.__main__ import run
from aot.errors import UsageError
from aot.ir.op import Array
from aot.micro.build.toolchain import have_tool
from aot.report.measure.inputs import Sets
from aot.report.measure.reference import FULL, REFERENCE, Litert, graph, interpreter_of, litert, tflm
from aot.report.measure.verify import expected_outputs
from aot.testing import HAVE_LITERT, HAVE_TFLM
from aot.testing.text_model import text_model

pytestmark = pytest.mark.skipif(not HAVE_LITERT, reason="ai-edge-litert is not installed")
needs_gcc = pytest.mark.skipif(not have_tool("gcc"), reason="gcc is not installed")

FLOATS = """
    in x float32[1,64]
    const w float32[32,64] data=0.1
    tensor a float32[1,32]
    tensor b float32[1,32]
    const v float32[8,32] data=-0.3
    tensor c float32[1,8]
    tensor d float32[1,8]
    out y float32[1,8]
    out b
    FULLY_CONNECTED x w - -> a
    ELU a -> b
    FULLY_CONNECTED b v - -> c
    CEIL c -> d
    ADD c d -> y
"""
"""Two operators of the full set between layers whose floats differ from one set to the other."""

BRANCH = """
    in which bool[1]
    in x float32[1,4]
    tensor a float32[1,4]
    out y float32[1,4]
    NEG x -> a
    IF which a -> y then_subgraph_index=1 else_subgraph_index=2
    graph rounded
    in x float32[1,4]
    out y float32[1,4]
    ROUND x -> y
    graph same
    in x float32[1,4]
    out y float32[1,4]
    ABS x -> y
"""
SQUARED = """
    in x int16[1,8] scale=0.01
    in y int16[1,8] scale=0.01
    out z int16[1,8] scale=0.02
    SQUARED_DIFFERENCE x y -> z
"""
UNKNOWN = "in x int8[1,8]\n out y int8[1,8]\n CUSTOM:Nobodys x -> y"
ZERO = "in x int32[4]\n in by int32[4]\n out y int32[4]\n FLOOR_DIV x by -> y"


def drawn(*shapes: Sequence[int]) -> list[list[Array]]:
    rng = np.random.default_rng(3)
    return [[rng.normal(0, 2, shape).astype(np.float32) for shape in shapes] for _ in range(3)]


def equal(found: Sequence[Sequence[Array]], wanted: Sequence[Sequence[Array]]) -> bool:
    return [[a.tobytes() for a in row] for row in found] == [[a.tobytes() for a in row] for row in wanted]


@pytest.mark.parametrize("opcode", ["CEIL", "ELU", "ROUND"])
def test_of_the_full_set(opcode: str) -> None:
    model = text_model(f"in x float32[1,64]\n out y float32[1,64]\n {opcode} x -> y")
    with pytest.raises(ValueError, match=f"Didn't find op for builtin opcode '{opcode}'"):
        interpreter_of(model, REFERENCE)
    engine = litert(model)
    assert engine.independent
    assert engine.name.endswith(f" reference kernels, {opcode} of its full set")
    assert equal(engine.outputs(drawn((1, 64))), graph(model, "litert").outputs(drawn((1, 64))))


def test_all_other_operators_keep_their_reference_kernels() -> None:
    model = text_model(FLOATS)
    engine = Litert(model)
    assert engine.full == ("ELU", "CEIL")
    sets = drawn((1, 64))
    found = engine.outputs(sets)
    assert equal(found, graph(model, "litert").outputs(sets))
    tensors = engine.tensors(sets[0])
    own = graph(model, "litert").tensors(sets[0])
    assert all(tensors[i].tobytes() == own[i].tobytes() for i in own)


def test_the_tensors_of_a_model_in_pieces_are_those_of_the_whole() -> None:
    """The pieces leave out nothing and mix up nothing: with the full set for all, they are the file in one interpreter."""
    sets = drawn((1, 64))
    whole = interpreter_of(text_model(FLOATS), FULL, preserve=True)
    whole.set_tensor(0, sets[0][0])
    whole.invoke()
    for index, value in Litert(text_model(FLOATS)).tensors(sets[0]).items():
        np.testing.assert_allclose(value, whole.get_tensor(index), rtol=1e-5)


def test_below_a_branch() -> None:
    model = text_model(BRANCH)
    assert Litert(model).full == ("IF",)
    sets = [[np.array([which]), *values] for which in (False, True) for values in drawn((1, 4))]
    assert equal(Litert(model).outputs(sets), graph(model, "litert").outputs(sets))


def test_an_operator_without_a_kernel_is_named() -> None:
    with pytest.raises(RuntimeError, match=r"^has no kernel for Nobodys$"):
        litert(text_model(UNKNOWN))


@pytest.mark.skipif(not HAVE_TFLM, reason="tflite-micro is not installed")
@pytest.mark.parametrize(
    ("text", "named"),
    [(UNKNOWN, "CUSTOM:Nobodys"), ("in x float32[1,4]\n out y float32[1,4]\n GELU x -> y", "GELU")],
    ids=["custom", "builtin"],
)
def test_tflm_names_it_too(text: str, named: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match=f"^has no kernel for {named}$"):
        tflm(text_model(text), 1)
    assert "Failed to get registration" not in capfd.readouterr().err


def test_a_kernel_that_stops_for_all_inputs_is_replaced() -> None:
    """Nothing was compared: that is no difference, and no fault of the inputs."""
    inputs = tuple(tuple(np.full((1, 8), i + k, np.int16) for k in range(2)) for i in range(2))
    found, by = expected_outputs(text_model(SQUARED), Sets(inputs, origin="ours"), oracle="litert", outputs=1)
    assert by.startswith(
        'the graph interpreter, as ai-edge-litert does not run op 0 SQUARED_DIFFERENCE "z": SquaredDifference only'
    )
    assert equal(found, graph(text_model(SQUARED), "litert").outputs(inputs))


def test_inputs_at_which_it_stops_are_an_error_of_usage() -> None:
    inputs = ((np.ones(4, np.int32), np.zeros(4, np.int32)),)
    with pytest.raises(UsageError, match=r"E4010 ai-edge-litert does not run op 0 FLOOR_DIV .*\(ours\)"):
        expected_outputs(text_model(ZERO), Sets(inputs, origin="ours"), oracle="litert", outputs=1)


@needs_gcc
def test_the_exit_is_that_of_require_reference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "squared.tflite"
    path.write_bytes(text_model(SQUARED))
    verify = ("verify", str(path), "--board", "host", "--random", "1", "-o", str(tmp_path / "out"))
    assert run([*verify, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["exact"], found["reference_independent"]) == (True, False)
    assert run([*verify, "--require-reference"]) == 6
    assert capsys.readouterr().err.startswith("E3032 ai-edge-litert does not run op 0 SQUARED_DIFFERENCE")
