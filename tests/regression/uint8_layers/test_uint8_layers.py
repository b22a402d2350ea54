"""The first wrong layer of a uint8 network is named: what the compiled model keeps as int8 is compared with uint8 tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aot.driver.build import build
from aot.executor.artifact import Artifact
from aot.micro.board import load_board
from aot.micro.build.project import prepare
from aot.micro.run.runner import LayerResult
from aot.report.measure.divergence import compare_layers
from aot.report.measure.inputs import rule_sets
from aot.report.measure.verify import verify
from aot.testing import HAVE_LITERT, ModelBuilder
from tests.report.measure.test_verify import broken, needs_gcc

WIDTH = 8


def network() -> bytes:
    """Four 1x1 convolutions of uint8 in a row."""
    b, rng = ModelBuilder(), np.random.default_rng(3)
    tensors = [b.tensor("x", (1, 4, 4, WIDTH), "uint8", scale=0.05, zero_point=120)]
    for i in range(4):
        stored = rng.integers(0, 256, (WIDTH, 1, 1, WIDTH)).astype(np.uint8)
        weights = b.tensor(f"w{i}", stored.shape, "uint8", data=stored, scale=0.01, zero_point=128)
        values = rng.integers(-500, 500, WIDTH).astype(np.int32)
        bias = b.tensor(f"b{i}", (WIDTH,), "int32", data=values, scale=0.05 * 0.01, zero_point=0)
        tensors.append(b.tensor(f"y{i}", (1, 4, 4, WIDTH), "uint8", scale=0.05, zero_point=128 - i))
        b.op("CONV_2D", [tensors[-2], weights, bias], [tensors[-1]], version=1, stride_h=1, stride_w=1, padding="VALID")
    return b.build([tensors[0]], [tensors[-1]])


def faulty_build(layer: int, *args: Any, **options: Any) -> Artifact:
    return broken(build(*args, **options), layer)


@needs_gcc
@pytest.mark.skipif(not HAVE_LITERT, reason="ai-edge-litert is not installed")
@pytest.mark.slow
@pytest.mark.parametrize("convolution", [0, 2, 3])
def test_the_wrong_layer_is_named(convolution: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = network()
    good = build(model, target="host", name="four")
    convolutions = [layer for layer in good.metadata["layers"] if layer["op"] == "CONV_2D"]
    layer = convolutions[convolution]
    bad = faulty_build(layer["index"], model, target="host", name="four")
    monkeypatch.setattr("aot.report.measure.divergence.build", lambda *a, **o: wrong_alone(*a, **o))
    sets = rule_sets(bad.metadata["inputs"], 2)
    found = verify(model, bad, prepare(bad, load_board("host")), sets, folder=tmp_path)
    assert not found.exact
    assert found.first_divergence is not None
    assert found.divergence is not None
    assert (found.first_divergence["layer"], found.first_divergence["name"]) == (layer["index"], layer["name"])
    assert [row["op"] for row in found.divergence["layers"]] == ["CONV_2D"] * (4 - convolution)
    assert min(found.first_divergence["expected"], found.first_divergence["actual"]) >= 0, "in the file's codes"
    alone = found.divergence["one_layer"]
    assert (alone["layer"], alone["reproduces"]) == (layer["index"], True)


def wrong_alone(*args: Any, **options: Any) -> Artifact:
    """The compiler of the same fault, given one layer."""
    artifact = build(*args, **options)
    (layer,) = (x["index"] for x in artifact.metadata["layers"] if x["op"] == "CONV_2D")
    return broken(artifact, layer)


def test_codes_are_compared_as_the_file_has_them() -> None:
    """int8 of the compiled model as uint8 of the file; tensors of other types stay what they are."""
    layer = {"index": 0, "op": "CONV_2D", "does": "CONV_2D", "ops": [0], "name": "y0", "kernel": "k", "output": {"tensor": 1}}
    uint8 = np.array([0, 128, 255, 7], np.uint8)
    for kept, differ in (([-128, 0, 127, -121], 0), ([-128, 0, 126, -121], 1)):
        rows = compare_layers([layer], [LayerResult(0, None, np.array(kept, np.int8))], {1: uint8})
        assert len(rows) == differ
        assert not rows or (rows[0]["expected"], rows[0]["actual"]) == (255, 254)
