"""A fault in a kernel is found, and the first wrong layer named."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aot.build import build
from aot.executor.artifact import Artifact
from aot.micro.board import load_board
from aot.micro.project import prepare
from aot.report import reference
from aot.report.sets import rule_sets
from aot.report.size import plan_of, slowest_of, time_of
from aot.report.verify import short_version, verify

MODEL = Path(__file__).resolve().parent.parent.parent / "examples" / "digits" / "digits.tflite"
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    return build(MODEL, target="host")


def broken(artifact: Artifact, layer: int) -> Artifact:
    """The same model with the third byte of that layer's constants changed, which adds or takes 2^20 from a bias."""
    text = artifact.files["digits_params.c"]
    array = re.search(rf"\bdigits_params_{layer}\[\d+\] = {{\s*(?:-?\d+,\s*){{2}}(-?\d+)", text)
    assert array
    changed = text[: array.start(1)] + str(int(array.group(1)) ^ 16) + text[array.end(1) :]
    return replace(artifact, files={**artifact.files, "digits_params.c": changed})


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
    monkeypatch.setattr("aot.report.reference.installed", lambda package: None)
    own = verify(data, bad, project, rule_sets(bad.metadata["inputs"], 3))
    assert own.first_divergence is not None
    assert own.first_divergence["layer"] == layer
    assert own.first_divergence["reference"] == "the graph interpreter"


@needs_gcc
def test_an_exact_model(artifact: Artifact) -> None:
    project = prepare(artifact, load_board("host"))
    found = verify(MODEL.read_bytes(), artifact, project, rule_sets(artifact.metadata["inputs"], 4))
    assert (found.exact, found.sets_exact, found.max_abs_diff) == (True, 4, 0.0)
    assert found.instructions is None
    assert list(found.to_json())[:4] == ["model", "board", "oracle", "opt"]


def test_the_engines_agree_on_the_digits() -> None:
    data = MODEL.read_bytes()
    engine = reference.litert(data)
    if engine is None:
        pytest.skip("ai-edge-litert is not installed")
    own = reference.graph(data, "litert")
    sets = rule_sets([{"shape": [1, 8, 8, 1], "dtype": "int8"}], 3).inputs
    for theirs, ours in zip(engine.outputs(sets), own.outputs(sets), strict=True):
        assert np.array_equal(theirs[0], ours[0])
    assert engine.tensors is not None
    assert own.tensors is not None
    their_tensors = engine.tensors(sets[1])
    shared = {i: t for i, t in own.tensors(sets[1]).items() if i in their_tensors and t.size == their_tensors[i].size}
    assert len(shared) >= 6
    assert all(np.array_equal(t.ravel(), their_tensors[i].ravel()) for i, t in shared.items())


def test_tflm_is_asked_for_its_own_rounding() -> None:
    data = MODEL.read_bytes()
    engine = reference.tflm(data, 1)
    if engine is None:
        pytest.skip("tflite-micro is not installed")
    own = reference.graph(data, "tflm")
    sets = rule_sets([{"shape": [1, 8, 8, 1], "dtype": "int8"}], 3).inputs
    assert all(np.array_equal(t[0], o[0]) for t, o in zip(engine.outputs(sets), own.outputs(sets), strict=True))
    assert reference.find_reference(data, "tflm", outputs=1).name.startswith("tflite-micro ")


def test_a_model_that_an_engine_refuses_goes_to_the_interpreter() -> None:
    assert reference.litert(b"no model") is None


def test_summary_texts() -> None:
    assert time_of(11_402_118, 2_656_768) == "11,402,118 instructions (2,656,768 MAC, 4.29 instr/MAC)"
    assert time_of(7, 0) == "7 instructions (0 MAC)"
    assert plan_of({"workspace": {"size": 1100, "lower_bound": 1000}}) == "workspace 1,100 B · lower bound 1,000 B (10.0 % above)"
    layers = [{"index": i, "op": "ADD", "instructions": n} for i, n in enumerate((10, 60, 30))]
    assert slowest_of(layers, count=2) == "L1 ADD 60 % · L2 ADD 30 %"
    assert slowest_of([{"index": 0, "op": "ADD", "instructions": None}]) == ""


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("arm-none-eabi-gcc (15:12.2.rel1-1) 12.2.1 20221205", "cc 12.2.1"),
        ("gcc (Debian 12.2.0-14+deb12u1) 12.2.0", "cc 12.2.0"),
        ("Debian clang version 14.0.6", "cc 14.0.6"),
    ],
)
def test_short_version(text: str, short: str) -> None:
    from aot.micro.toolchain import Tool

    assert short_version(Tool("cc", "cc", text)) == short
