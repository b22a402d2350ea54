"""The committed models and golden files are what the scripts make and what the reference computes."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aot.testing import HAVE_TFLM, reference_sets, reference_tensors, tflm_reference
from tests.models.catalogue import Case
from tests.models.golden import FOLDER, load_golden, make_input, manifest, npz_bytes, sets_of
from tests.models.make import cases
from tests.models.reject import Reject, rejects

SIZE_LIMIT = 2_000_000
ISSUE_OPERATORS = {
    "CONV_2D",
    "DEPTHWISE_CONV_2D",
    "FULLY_CONNECTED",
    "ADD",
    "AVERAGE_POOL_2D",
    "MAX_POOL_2D",
    "MEAN",
    "PAD",
    "RESHAPE",
    "SOFTMAX",
    "CONCATENATION",
    "QUANTIZE",
    "DEQUANTIZE",
    "LOGISTIC",
    "TRANSPOSE",
    "RESIZE_NEAREST_NEIGHBOR",
}


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_committed_model_is_what_the_script_makes(case: Case) -> None:
    assert (FOLDER / f"{case.name}.tflite").read_bytes() == case.make(), "run python -m tests.models.make"


@pytest.mark.parametrize("reject", rejects(), ids=lambda reject: reject.name)
def test_committed_reject_is_what_the_script_makes(reject: Reject) -> None:
    assert (FOLDER / "reject" / f"{reject.name}.tflite").read_bytes() == reject.make()


@pytest.mark.parametrize("name", [entry["name"] for entry in manifest()])
def test_golden_equals_reference(name: str) -> None:
    arrays = load_golden(name)
    model = (FOLDER / f"{name}.tflite").read_bytes()
    results = reference_sets(model, sets_of(arrays, "in"))
    for outputs, expected in zip(results, sets_of(arrays, "out"), strict=True):
        for output, wanted in zip(outputs, expected, strict=True):
            assert output.dtype == wanted.dtype
            np.testing.assert_array_equal(output, wanted)


@pytest.mark.skipif(not HAVE_TFLM, reason="tflite-micro is not installed")
@pytest.mark.parametrize("entry", [e for e in manifest() if e["tflm"]["status"] != "fails"], ids=lambda e: e["name"])
def test_golden_equals_tflm(entry: dict[str, Any]) -> None:
    arrays = load_golden(entry["name"])
    model = (FOLDER / entry["file"]).read_bytes()
    prefix = "tflm" if entry["tflm"]["status"] == "differs" else "out"
    for inputs, expected in zip(sets_of(arrays, "in"), sets_of(arrays, prefix), strict=True):
        for output, wanted in zip(tflm_reference(model, inputs), expected, strict=True):
            np.testing.assert_array_equal(output, wanted)


def test_manifest_describes_every_file() -> None:
    entries = manifest("")
    listed = {entry["file"] for entry in entries} | {e["golden"]["file"] for e in entries if "golden" in e}
    present = {
        path.relative_to(FOLDER).as_posix() for pattern in ("*.tflite", "*.npz", "reject/*") for path in FOLDER.glob(pattern)
    }
    assert present == listed
    for entry in entries:
        data = (FOLDER / entry["file"]).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (entry["size"], entry["sha256"])


def test_every_operator_of_the_first_release_has_a_model() -> None:
    alone = [e for e in manifest() if len(e["operators"]) == 1]
    assert {next(iter(e["operators"])) for e in alone} == ISSUE_OPERATORS


def test_folder_stays_small() -> None:
    files: list[Path] = [p for p in FOLDER.rglob("*") if p.suffix in (".tflite", ".npz", ".json")]
    assert sum(p.stat().st_size for p in files) < SIZE_LIMIT


@pytest.mark.parametrize("name", [e["name"] for e in manifest()])
def test_outputs_depend_on_inputs_and_use_the_range(name: str) -> None:
    arrays = load_golden(name)
    for key in [k for k in arrays if k.startswith("out") and k.endswith("_0")]:
        values = np.stack([v for k, v in arrays.items() if k.startswith(key[:-1])]).astype(np.float64)
        assert len(np.unique(values)) >= min(3, values.size), "the output is nearly constant"
        assert np.any(values[0] != values[1]), "two different inputs give one output"
        if arrays[key].dtype == np.int8:
            assert values.max() - values.min() >= 8


@pytest.mark.parametrize("name", [e["name"] for e in manifest() if e["name"].startswith("net_")])
def test_activations_of_networks_neither_die_nor_saturate(name: str) -> None:
    arrays = load_golden(name)
    tensors = reference_tensors((FOLDER / f"{name}.tflite").read_bytes(), sets_of(arrays, "in")[1])
    activations = [t for t in tensors.values() if t.dtype == np.int8 and t.shape[0] == 1 and t.size >= 8]
    assert len(activations) > 8
    for values in activations:
        assert np.mean(values == 127) < 0.25
        assert len(np.unique(values)) >= 5


def test_golden_container_has_no_time_stamp() -> None:
    arrays = {"in0_0": np.arange(6, dtype=np.int8)}
    assert npz_bytes(arrays) == npz_bytes(arrays)


@pytest.mark.parametrize(
    ("dtype", "first"), [("int8", 0), ("uint8", 0), ("int16", 0), ("float32", 0.0), ("int32", 0), ("bool", False)]
)
def test_set_zero_follows_the_congruence(dtype: str, first: float) -> None:
    x = make_input((2, 3), dtype, index=0, number=0)
    assert x.shape == (2, 3)
    assert x.dtype == np.dtype(dtype)
    byte = np.int8(np.uint8((1103515245 + 12345) >> 16 & 255))
    wanted = {
        "int8": byte,
        "uint8": np.uint8(byte),
        "int16": int(byte) * 256,
        "float32": int(byte) / 128,
        "int32": int(byte),
        "bool": bool(byte & 1),
    }
    assert x[0, 0] == first
    assert x[0, 1] == wanted[dtype]
