"""Faults of the reference that are known, and places that it leaves unwritten."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aot.driver.build import build
from aot.frontend.problems import Problems
from aot.frontend.tflite.flatbuffer import Reader
from aot.frontend.tflite.records import decode_model, encode_model
from aot.micro.board import load_board
from aot.micro.build.project import prepare
from aot.report.measure import divergence
from aot.report.measure.divergence import KNOWN_FAULTS, with_zeros
from aot.report.measure.inputs import Sets, rule_sets
from aot.report.measure.reference import Reference, RefusedError
from aot.report.measure.verify import verify
from aot.testing import HAVE_LITERT, HAVE_TFLM, ModelBuilder, Quant, reference_sets, tflm_reference
from tests.cli.helper import Cli
from tests.op._one_op import Spec, const, one_op
from tests.op.vision.test_detection import case
from tests.report.measure.test_verify import broken, needs_gcc, validate

needs_litert = pytest.mark.skipif(not HAVE_LITERT, reason="ai-edge-litert is not installed")


def sum_model(dtype: str = "int8") -> bytes:
    quant = Quant(1.0, 0)
    return one_op("SUM", [Spec((2, 8), dtype, quant), const([1])], [Spec((2,), dtype, quant)], keep_dims=False)


@needs_litert
@pytest.mark.skipif(not HAVE_TFLM, reason="tflite-micro is not installed")
@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_the_table_s_example(dtype: str) -> None:
    """Eight times -128 in either engine; the day that this fails the fault is mended, and its versions are to be noted."""
    fault = KNOWN_FAULTS[0]
    assert dtype in fault.dtypes
    data = np.full((2, 8), -128, dtype)
    (wrong,), right = reference_sets(sum_model(dtype), [[data]])[0], tflm_reference(sum_model(dtype), [data])[0]
    assert right.ravel().tolist() == [-128 if dtype == "int8" else -1024] * 2
    assert wrong.ravel().tolist() != right.ravel().tolist()
    if dtype == "int8":
        assert wrong[0] == -1
        assert fault.example == f"eight times -128 of scale 1 are {wrong[0]}, not {right[0]}"


@pytest.mark.slow
@needs_gcc
@needs_litert
def test_a_known_fault_is_told_and_accepted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, cli = tmp_path / "sum.tflite", Cli(capsys)
    path.write_bytes(sum_model())
    command = ["verify", path, "--board", "host", "-o", tmp_path / "out"]
    done = cli(*command, "--json")
    assert done.code == 0, done.err
    validate(done.json)
    assert not done.json["exact"]
    assert done.json["known_fault"]["operator"] == "SUM"
    assert not HAVE_TFLM or done.json["known_fault"]["compared_with"].startswith("tflite-micro")
    assert cli(*command, "--no-accept-known-faults").code == 5
    assert "differs from the reference, which is wrong here" in " ".join(cli(*command).out.split())


@needs_gcc
@needs_litert
@pytest.mark.parametrize("at_run", [False, True])
def test_an_engine_that_cannot_run_the_operator_is_not_asked(monkeypatch: pytest.MonkeyPatch, *, at_run: bool) -> None:
    """TFLM has no kernel for some operators of the table, such as weights with a scale per block (an internal error before)."""

    def refusing(model: bytes, outputs: int) -> Reference:
        def run(sets: Any) -> Any:
            raise RefusedError("does not run the model")

        return Reference("tflite-micro", run) if at_run else run([])

    monkeypatch.setattr(divergence, "tflm", refusing)
    model = sum_model()
    artifact = build(model, target="host", name="sums")
    outcome = verify(model, artifact, prepare(artifact, load_board("host")), Sets(((np.full((2, 8), -128, np.int8),),)))
    assert outcome.known_fault is not None
    assert outcome.known_fault["compared_with"] is None


@pytest.mark.slow
@needs_gcc
@needs_litert
def test_a_known_fault_within_a_layer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A SUM and the MINIMUM behind it are one layer, whose first operator is the wrong one."""
    b = ModelBuilder()
    x = b.tensor("x", (2, 8), "int8", scale=1.0, zero_point=0)
    axis = b.tensor("axis", (1,), "int32", data=np.array([1], np.int32))
    most = b.tensor("most", (1,), "int8", scale=1.0, zero_point=0, data=np.array([100], np.int8))
    total, y = (b.tensor(name, (2,), "int8", scale=1.0, zero_point=0) for name in ("total", "y"))
    b.op("SUM", [x, axis], [total], keep_dims=False)
    b.op("MINIMUM", [total, most], [y])
    path = tmp_path / "sum.tflite"
    path.write_bytes(b.build([x], [y]))
    done = Cli(capsys)("verify", path, "--board", "host", "-o", tmp_path / "out", "--json")
    assert done.code == 0, done.err
    assert done.json["known_fault"]["operator"] == "SUM"
    assert not HAVE_TFLM or done.json["known_fault"]["compared_with"].startswith("tflite-micro")


@pytest.mark.slow
@needs_gcc
@needs_litert
def test_reports_know_the_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    cli = Cli(capsys)
    monkeypatch.chdir(tmp_path)
    Path("sum.tflite").write_bytes(sum_model())
    command = ["report", "sum.tflite", "--board", "host"]
    done = cli(*command, "--json")
    assert done.code == 0, done.err
    (report,) = done.json["reports"]
    assert (report["verdict"]["exact"], report["verdict"]["accepted"]) == (False, True)
    assert report["verdict"]["known_fault"]["operator"] == "SUM"
    assert "which is wrong here" in Path("out/report/report.html").read_text()
    refused = cli(*command, "--no-accept-known-faults")
    assert (refused.code, refused.err.startswith("E4001 sum@host: ")) == (5, True)


@needs_gcc
@needs_litert
@pytest.mark.parametrize("faults", [1, 2])
def test_another_fault_is_not_accepted(faults: int) -> None:
    """With a wrong FULLY_CONNECTED before the SUM the known fault is not all of the difference."""
    b, rng = ModelBuilder(), np.random.default_rng(0)
    x = b.tensor("x", (2, 8), "int8", scale=0.1, zero_point=0)
    tensors = [b.tensor(f"t{i}", (2, 4), "int8", scale=0.1, zero_point=0) for i in range(2)]
    weights = b.tensor("w", (4, 8), "int8", scale=0.05, zero_point=0, data=rng.integers(-128, 128, (4, 8)).astype(np.int8))
    axis = b.tensor("axis", (1,), "int32", data=np.array([1], np.int32))
    total = b.tensor("total", (2,), "int8", scale=0.2, zero_point=0)
    b.op("FULLY_CONNECTED", [x, weights, -1], [tensors[0]], version=4)
    b.op("SUM", [tensors[0], axis], [total], version=1, keep_dims=False)
    model = b.build([x], [total])
    artifact = build(model, target="host", name="sums")
    if faults == 1:
        project = prepare(artifact, load_board("host"))
        found = verify(model, artifact, project, rule_sets(artifact.metadata["inputs"], 2))
        assert found.known_fault is not None
        return
    (layer,) = (x["index"] for x in artifact.metadata["layers"] if x["op"] == "FULLY_CONNECTED")
    bad = broken(artifact, layer)
    found = verify(model, bad, prepare(bad, load_board("host")), rule_sets(bad.metadata["inputs"], 2))
    assert not found.exact
    assert found.known_fault is None


def test_places_behind_the_last_detection_are_zeros() -> None:
    model, _ = case("float32", 10, 0, max_classes_per_detection=2)
    outputs = [np.ones(s, np.float32) for s in ((1, 12, 4), (1, 12), (1, 12))]
    for count in (0, 2, 6):
        (found,) = with_zeros(model, [[*outputs, np.array([count], np.float32)]])
        assert [int(f.reshape(12, -1)[:, 0].sum()) for f in found[:3]] == [2 * count] * 3
    assert all(o.all() for o in outputs), "the given arrays stay"


def test_detections_of_a_file_without_shapes() -> None:
    """A converter may leave the shapes of the operator's results out (IndexError before)."""
    model, _ = case("float32", 10, 0, max_classes_per_detection=2)
    record = decode_model(Reader(model), Problems())
    assert record is not None
    (graph,) = record["subgraphs"]
    for t in graph["outputs"]:
        graph["tensors"][t]["shape"] = []
    outputs = [*(np.ones(s, np.float32) for s in ((1, 12, 4), (1, 12), (1, 12))), np.array([2], np.float32)]
    (zeroed,) = with_zeros(encode_model(record), [outputs])
    assert [int(z.reshape(12, -1)[:, 0].sum()) for z in zeroed[:3]] == [4, 4, 4]


@needs_gcc
@needs_litert
def test_detections_of_one_set_do_not_show_in_the_next(tmp_path: Path) -> None:
    """The reference keeps the first set's boxes where the second has fewer; that is no difference."""
    model, inputs = case("float32", 30, 3, nms_score_threshold=0.9)
    few = [inputs[0], np.minimum(inputs[1], np.float32(0.2))]
    raw: list[list[Any]] = reference_sets(model, [inputs, few])
    assert raw[1][3][0] == 0
    assert raw[1][1].any(), "the reference has stale values"
    artifact = build(model, target="host", name="boxes")
    sets = Sets((tuple(inputs), tuple(few)))
    assert verify(model, artifact, prepare(artifact, load_board("host")), sets).exact


@needs_gcc
@needs_litert
@pytest.mark.slow
@pytest.mark.skipif(not HAVE_TFLM, reason="tflite-micro is not installed")
def test_a_fault_of_tflm_is_told_and_accepted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """TFLM shows no tensors: it is asked for the operator alone, and LiteRT too."""
    builder, codes = ModelBuilder(), np.arange(8, dtype=np.int8)
    data, plain = builder.tensor("data", (1, 4), "float32"), builder.tensor("plain", (2, 4), "float32")
    weights = builder.tensor("weights", (2, 4), "int8", scale=(0.5, 0.25), axis=0, data=codes)
    out = builder.tensor("out", (1, 2), "float32")
    builder.op("DEQUANTIZE", [weights], [plain], version=5)
    builder.op("FULLY_CONNECTED", [data, plain, -1], [out])
    path, cli = tmp_path / "dense.tflite", Cli(capsys)
    path.write_bytes(builder.build([data], [out]))
    done = cli("verify", path, "--board", "host", "--oracle", "tflm", "-o", tmp_path / "out", "--json")
    assert done.code == 0, done.err
    validate(done.json)
    assert not done.json["exact"]
    fault = done.json["known_fault"]
    assert (fault["operator"], fault["layer"]) == ("DEQUANTIZE", 0)
    assert fault["compared_with"].startswith("ai-edge-litert")
