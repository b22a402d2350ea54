"""A fault in a kernel is found, and the first wrong layer named."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from aot.cli.options import CompileOptions, words_of
from aot.cli.verbs.run import reproducer_text
from aot.driver.build import build
from aot.errors import AotError
from aot.executor.artifact import Artifact
from aot.micro.board import load_board
from aot.micro.build.project import prepare
from aot.report.figures.schema import load_schema
from aot.report.figures.size import flash_of, macs_of, plan_of, slowest_of, time_of
from aot.report.measure import reference
from aot.report.measure.inputs import Sets, golden_sets, open_npz, rule_sets
from aot.report.measure.reference import RefusedError
from aot.report.measure.verify import expected_outputs, verify
from aot.testing import HAVE_LITERT, HAVE_TFLM, ModelBuilder
from tests.op._one_op import Spec, one_op

MODEL = Path(__file__).resolve().parent.parent.parent.parent / "examples" / "digits" / "digits.tflite"
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    return build(MODEL, target="host")


def broken(artifact: Artifact, layer: int) -> Artifact:
    """The same model with 16 bytes of that layer's constants changed: numbers of its first channels, however they are packed."""
    source = f"{artifact.name}_params.c"
    text = artifact.files[source]
    array = re.search(rf"\b{artifact.name}_params_{layer}\[\d+\] = {{\s*((?:-?\d+,\s*){{16}})", text)
    assert array
    changed = ", ".join(str(int(number) ^ 16) for number in array.group(1).split(",")[:16]) + ", "
    return replace(artifact, files={**artifact.files, source: text[: array.start(1)] + changed + text[array.end(1) :]})


def validate(found: dict[str, Any]) -> None:
    """Against the published schema, as it comes back from a file."""
    jsonschema.Draft202012Validator(load_schema("aot-verify-1")).validate(json.loads(json.dumps(found, allow_nan=False)))


@pytest.mark.skipif(not HAVE_LITERT, reason="ai-edge-litert is not installed")
def test_inputs_that_the_reference_refuses() -> None:
    model = one_op("DIV", [Spec((3,), "int32"), Spec((3,), "int32")], [Spec((3,), "int32")])
    sets = Sets(((np.ones(3, np.int32), np.zeros(3, np.int32)),), origin="zeros")
    with pytest.raises(AotError, match=r"E4010 .*\(zeros\)"):
        expected_outputs(model, sets, oracle="litert", outputs=1)


def faulty_build(*args: Any, **options: Any) -> Artifact:
    """A compiler that gets the first bias of every fully connected layer wrong."""
    artifact = build(*args, **options)
    wrong = [layer["index"] for layer in artifact.metadata["layers"] if layer["op"] == "FULLY_CONNECTED"]
    for layer in wrong:
        artifact = broken(artifact, layer)
    return artifact


@pytest.mark.slow
@needs_gcc
@pytest.mark.parametrize("planted", ["in the compiler", "in this artifact"])
def test_the_wrong_layer_becomes_a_model_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: str) -> None:
    if planted == "in the compiler":
        monkeypatch.setattr("aot.report.measure.divergence.build", faulty_build)
    bad = faulty_build(MODEL, target="host")
    project = prepare(bad, load_board("host"))
    found = verify(MODEL.read_bytes(), bad, project, rule_sets(bad.metadata["inputs"], 3), folder=tmp_path)
    validate(found.to_json())
    assert found.divergence is not None
    alone = found.divergence["one_layer"]
    assert alone == {
        "layer": 4, "model": "digits@host.layer4.tflite", "inputs": "digits@host.layer4.npz", "why_not": None,
        "reproduces": planted == "in the compiler",
    }  # fmt: skip
    # The commands that the user is told do what is claimed: the whole model, and the layer alone.
    whole = golden(tmp_path / found.divergence["reproducer"], bad)
    assert verify(MODEL.read_bytes(), bad, project, whole, profile=False).sets_exact == 0
    path = tmp_path / alone["model"]
    for make, exact in ((build, True), (faulty_build, False)):
        layer = make(path, target="host", name="layer")
        sets = golden(tmp_path / alone["inputs"], layer)
        again = verify(path.read_bytes(), layer, prepare(layer, load_board("host")), sets, profile=False)
        assert again.exact == exact
    assert [x["op"] for x in layer.metadata["layers"]] == ["FULLY_CONNECTED"]


def test_the_commands_that_show_it_again_have_the_options() -> None:
    found = {"reproducer": "n.npz", "one_layer": {"model": "n.tflite", "inputs": "l.npz"}}
    options = CompileOptions(opt="size", ram_budget="9 KiB", shape=["x=1", "y=3"], feed_rows=True)
    assert reproducer_text(found, Path("out"), model=Path("m.tflite"), board="host", options=options) == [
        "aot verify m.tflite --board host --opt size --ram-budget '9 KiB' --shape x=1 --shape y=3 --feed-rows --inputs out/n.npz",
        "aot verify out/n.tflite --board host --opt size --ram-budget '9 KiB' --inputs out/l.npz",
    ]
    assert words_of(CompileOptions(), always=()) == ()
    nothing = {"reproducer": None, "one_layer": None}
    assert reproducer_text(nothing, Path("out"), model=Path("m"), board="host", options=options) == []


def golden(path: Path, artifact: Artifact) -> Sets:
    meta = artifact.metadata
    return golden_sets(open_npz(path), path, inputs=meta["inputs"], outputs=meta["outputs"], oracle="litert")


@pytest.mark.slow
@needs_gcc
@pytest.mark.parametrize("layer", [0, 1, 4])
def test_the_layer_with_a_wrong_constant_is_named(artifact: Artifact, layer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = MODEL.read_bytes()
    bad = broken(artifact, layer)
    project = prepare(bad, load_board("host"))
    steps: list[str] = []
    found = verify(data, bad, project, rule_sets(bad.metadata["inputs"], 3), progress=lambda step, _: steps.append(step))
    assert not found.exact
    assert found.first_divergence is not None
    assert found.first_divergence["layer"] == layer
    assert found.first_divergence["op"] == bad.metadata["layers"][layer]["op"]
    assert steps == ["expect", "build", "run", "search"]
    monkeypatch.setattr("aot.report.measure.reference.installed", lambda package: None)
    own = verify(data, bad, project, rule_sets(bad.metadata["inputs"], 3))
    assert own.first_divergence is not None
    assert own.first_divergence["layer"] == layer
    assert own.first_divergence["reference"] == "the graph interpreter"
    validate(found.to_json())
    validate(own.to_json())


@needs_gcc
def test_an_exact_model(artifact: Artifact) -> None:
    project = prepare(artifact, load_board("host"))
    found = verify(MODEL.read_bytes(), artifact, project, rule_sets(artifact.metadata["inputs"], 4))
    assert (found.exact, found.sets_exact, found.max_abs_diff) == (True, 4, 0.0)
    assert found.instructions is None
    validate(found.to_json())


@needs_gcc
def test_steps_within_an_operator_are_not_taken_for_its_result() -> None:
    """SOFTMAX of floats becomes four layers, the last of them together with NEG; only that has a tensor of the file."""
    b = ModelBuilder()
    x, y, z = (b.tensor(name, (3, 8), "float32") for name in "xyz")
    b.op("SOFTMAX", [x], [y], version=1, beta=1.0)
    b.op("NEG", [y], [z], version=1)
    model = b.build([x], [z])
    artifact = build(model, target="host", name="two")
    assert [layer["output"]["tensor"] for layer in artifact.metadata["layers"]] == [-1, -1, -1, z]
    sets = rule_sets(artifact.metadata["inputs"], 1)
    (right,) = expected_outputs(model, sets, oracle="litert", outputs=1)[0]
    wrong = Sets(sets.inputs, origin="a wrong golden file", expected=((right[0] + np.float32(1),),), expected_by="nobody")
    found = verify(model, artifact, prepare(artifact, load_board("host")), wrong)
    assert found.first_divergence is not None
    assert found.divergence is not None
    assert "layer" not in found.first_divergence
    assert found.divergence["layers"] == []


@pytest.mark.skipif(not HAVE_LITERT, reason="ai-edge-litert is not installed")
def test_the_engines_agree_on_the_digits() -> None:
    data = MODEL.read_bytes()
    engine = reference.litert(data)
    own = reference.graph(data, "litert")
    sets = rule_sets([{"shape": [1, 8, 8, 1], "dtype": "int8"}], 3).inputs
    for theirs, ours in zip(engine.outputs(sets), own.outputs(sets), strict=True):
        assert np.array_equal(theirs[0], ours[0])
    their_tensors = engine.tensors(sets[1])
    shared = {i: t for i, t in own.tensors(sets[1]).items() if i in their_tensors and t.size == their_tensors[i].size}
    assert len(shared) >= 6
    assert all(np.array_equal(t.ravel(), their_tensors[i].ravel()) for i, t in shared.items())


@pytest.mark.skipif(not HAVE_TFLM, reason="tflite-micro is not installed")
def test_tflm_is_asked_for_its_own_rounding() -> None:
    data = MODEL.read_bytes()
    engine = reference.tflm(data, 1)
    own = reference.graph(data, "tflm")
    sets = rule_sets([{"shape": [1, 8, 8, 1], "dtype": "int8"}], 3).inputs
    assert all(np.array_equal(t[0], o[0]) for t, o in zip(engine.outputs(sets), own.outputs(sets), strict=True))
    assert reference.find_reference(data, "tflm", outputs=1).name.startswith("tflite-micro ")


@pytest.mark.skipif(not HAVE_LITERT, reason="ai-edge-litert is not installed")
def test_a_model_that_an_engine_refuses() -> None:
    with pytest.raises(RefusedError, match="cannot be read"):
        reference.litert(b"no model")


def test_summary_texts() -> None:
    assert time_of(11_402_118, 2_656_768) == "11,402,118 instructions (2,656,768 MAC, 4.29 instr/MAC)"
    assert time_of(7, 0) == "7 instructions (0 MAC)"
    assert time_of(50, 10, 20) == "50 instructions (10 MAC, 5.00 instr/MAC, 20 MAC in the file, 2.50 instr/MAC of the file)"
    assert time_of(50, 10, 10) == time_of(50, 10, None) == "50 instructions (10 MAC, 5.00 instr/MAC)"
    assert [macs_of(10, n) for n in (None, 10, 20)] == ["10 MAC", "10 MAC", "10 MAC (20 in the file)"]
    plan = {"size": 1100, "liveness_bound": 2000, "streaming_bound": None, "plan_lower_bound": 1000, "optimal": False}
    assert plan_of({"workspace": plan}) == "workspace 1,100 B (at most 10.0 % above the optimum) · whole tensors 2,000 B"
    plan |= {"streaming_bound": 700, "optimal": True}
    assert plan_of({"workspace": plan}) == "workspace 1,100 B (optimal) · whole tensors 2,000 B · rows 700 B"
    assert "budget" not in plan_of({"workspace": plan, "options": {"ram_budget": 1100}})
    missed = plan_of({"workspace": plan, "options": {"ram_budget": 1099}})
    assert missed.endswith("rows 700 B · over --ram-budget 1,099 B; no smaller plan was found")
    constants = {"constants": {"size": 700}, "options": {"flash_budget": 1000}}
    assert flash_of(constants) == "constants 700 B"
    assert flash_of(constants, code_bytes=1100, constant_bytes=701).endswith("constants 701 B · over --flash-budget 1,000 B")
    layers = [{"index": i, "op": "ADD", "instructions": n} for i, n in enumerate((10, 60, 30))]
    assert slowest_of(layers, count=2) == "L1 ADD 60 % · L2 ADD 30 %"
    assert slowest_of([{"index": 0, "op": "ADD", "instructions": None}]) == ""
