"""Writing a model's records back, operators as models of their own, and what a file asks for in multiply-accumulates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aot.frontend.problems import Problems
from aot.frontend.tflite import from_tflite
from aot.frontend.tflite.flatbuffer import Reader
from aot.frontend.tflite.records import decode_model, encode_model
from aot.frontend.tflite.specialize import NotAloneError, extract
from aot.frontend.tflite.view import nominal_macs, parse
from aot.relay.expr import Function
from aot.relay.interpreter import evaluate, evaluate_all
from aot.report.measure.inputs import rule_set
from tests.scale import cases

ROOT = Path(__file__).resolve().parents[3]
MODELS = sorted((ROOT / "tests" / "models").glob("*.tflite"))
SHARED = ROOT.parent / "shared" / "models"
FEW = MODELS[:: max(1, len(MODELS) // cases(len(MODELS)))]


def plain(value: Any) -> Any:
    """A record as values that compare."""
    match value:
        case dict():
            return {k: plain(v) for k, v in value.items()}
        case tuple() | list():
            return [plain(v) for v in value]
        case np.ndarray():
            return value.dtype.str, value.tolist()
        case memoryview():
            return bytes(value)
    return value


def round_trip(data: bytes) -> None:
    record = decode_model(Reader(data), Problems())
    assert record is not None
    written = encode_model(record)
    problems = Problems()
    again = decode_model(Reader(written), problems)
    assert not problems
    assert plain(again) == plain(record)
    assert encode_model(again) == written


@pytest.mark.parametrize("path", FEW, ids=lambda p: p.stem)
def test_a_model_survives_reading_and_writing(path: Path) -> None:
    round_trip(path.read_bytes())


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared models are not here")
def test_all_shared_models_survive_reading_and_writing() -> None:
    paths = [p for folder in ("nets", "derived", "ops") for p in sorted((SHARED / folder).glob("*.tflite"))]
    for path in paths:
        if path.stat().st_size < 1_000_000:
            round_trip(path.read_bytes())


def test_buffers_are_aligned_as_the_schema_asks() -> None:
    record = decode_model(Reader((ROOT / "tests" / "models" / "dense.tflite").read_bytes()), Problems())
    assert record is not None
    data = encode_model(record)
    for buffer in record["buffers"]:
        if buffer["data"]:
            assert data.find(bytes(buffer["data"])) % 16 == 0


def main_of(data: bytes) -> Function:
    main = from_tflite(data, oracle="litert")["main"]
    assert isinstance(main, Function)
    return main


@pytest.mark.parametrize("name", ["graph_residual", "graph_shared_weights", "graph_branches_concat", "conv2d_same"])
def test_each_operator_alone_computes_what_it_does_in_its_model(name: str) -> None:
    data = (ROOT / "tests" / "models" / f"{name}.tflite").read_bytes()
    view = parse(data, Problems())
    assert view is not None
    graph = view.subgraphs[0]
    infos = [{"shape": graph.tensors[t].shape, "dtype": graph.tensors[t].dtype} for t in graph.inputs]
    tensors = evaluate_all(main_of(data), rule_set(infos, 1))[1]
    for op in graph.operators:
        alone = extract(data, [op.index], op.outputs[0])
        (found,) = evaluate(main_of(alone.data), [tensors[t] for t in alone.inputs])
        assert np.array_equal(found, tensors[op.outputs[0]]), op.where


def test_what_lies_between_two_operators_comes_along() -> None:
    data = (ROOT / "examples" / "digits" / "digits.tflite").read_bytes()
    view = parse(data, Problems())
    assert view is not None
    operators = view.subgraphs[0].operators
    alone = parse(extract(data, [0, len(operators) - 1], operators[-1].outputs[0]).data, Problems())
    assert alone is not None
    assert [o.opcode for o in alone.subgraphs[0].operators] == [o.opcode for o in operators]
    last = parse(extract(data, [len(operators) - 1], operators[-1].outputs[0]).data, Problems())
    assert last is not None
    assert [o.opcode for o in last.subgraphs[0].operators] == [operators[-1].opcode]
    assert len(last.subgraphs[0].inputs) == 1


def test_what_means_nothing_alone_is_refused() -> None:
    data = (ROOT / "examples" / "digits" / "digits.tflite").read_bytes()
    with pytest.raises(NotAloneError, match="computes tensor 0"):
        extract(data, [0], 0)
    with pytest.raises(NotAloneError, match="cannot be read"):
        extract(b"no model", [0], 0)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared models are not here")
@pytest.mark.parametrize(
    ("model", "why"),
    [("derived/gen_gru_while_float", "WHILE runs another graph"), ("nets/keyword_scrambled_8bit", "SVDF has state")],
)
def test_state_and_loops_are_refused(model: str, why: str) -> None:
    data = (SHARED / f"{model}.tflite").read_bytes()
    view = parse(data, Problems())
    assert view is not None
    op = next(o for o in view.subgraphs[0].operators if o.opcode in why)
    with pytest.raises(NotAloneError, match=why):
        extract(data, [op.index], op.outputs[0])


def test_nominal_macs() -> None:
    data = (ROOT / "tests" / "models" / "net_kws_dscnn.tflite").read_bytes()
    assert nominal_macs(b"no model") == 0
    assert nominal_macs(data) > 1_000_000


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared models are not here")
def test_nominal_macs_are_those_of_the_manifest() -> None:
    """Which leaves matrix products of two tensors out, and counts the graphs that loops run."""
    entries = json.loads((SHARED / "MANIFEST.json").read_text(encoding="utf-8"))["models"]
    checked = 0
    for entry in entries:
        if "macs" in entry and entry["subgraphs"] == 1 and "BATCH_MATMUL" not in entry["operators"]:
            assert nominal_macs((SHARED / entry["file"]).read_bytes()) == entry["macs"], entry["file"]
            checked += 1
    assert checked > 150
