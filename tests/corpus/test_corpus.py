"""The shared corpus on its golden sets, in numpy and as C on this machine: every model that is integer, keeps a state, branches
or loops, and every graph without weights.

`python -m tests.corpus.test_corpus [words]` prints one line a model (those whose name holds one of the words), then the codes
of what is not supported yet.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aot.driver.build import build
from aot.driver.options import Options
from aot.errors import AotError
from aot.frontend.tflite import from_tflite
from aot.relay.expr import Function
from aot.relay.interpreter import StatefulFunction
from aot.relay.transform import pipeline
from aot.report.measure import divergence
from aot.report.measure.inputs import Sets, golden_sets, open_npz
from aot.runtime.module import load

SHARED = Path(__file__).parents[3] / "shared" / "models"
_DIRECTIONS = ("BIDIRECTIONAL_SEQUENCE", "UNIDIRECTIONAL_SEQUENCE")
OVER_TIME = {
    "IF",
    "WHILE",
    "LSTM",
    "RNN",
    "SVDF",
    "VAR_HANDLE",
    *(f"{d}_{kind}" for d in _DIRECTIONS for kind in ("LSTM", "RNN")),
}
"""Operators of recurrent and stateful networks and of control flow."""

Array = np.ndarray[Any, Any]
Entry = Mapping[str, Any]


def belongs(entry: Entry) -> bool:
    """A model with integers or float16 somewhere, a graph without weights, or one that keeps a state, branches or loops."""
    return entry["expected"] == "runs" and (is_over_time(entry) or set(entry["quantisation"]) != {"float32"})


def is_over_time(entry: Entry) -> bool:
    """Whether it is recurrent, stateful, a part of an audio front end, or has control flow."""
    return any(o in OVER_TIME or o.startswith("CUSTOM:Signal") for o in entry["operators"])


def oracle_of(entry: Entry) -> str:
    """Whose results its golden file holds: the signal operators are TFLM's alone."""
    if entry["name"] in FAULTS_OF_LITERT:
        return "litert-reference"
    return "tflm" if any(o.startswith("CUSTOM:Signal") for o in entry["operators"]) else "litert"


def entries() -> list[Entry]:
    """The shared manifest's models that belong here; none where it is missing."""
    manifest = SHARED / "MANIFEST.json"
    return [m for m in json.loads(manifest.read_text())["models"] if belongs(m)] if manifest.is_file() else []


@dataclass(frozen=True, slots=True)
class Outcome:
    """`codes` of a model that is not supported, else how far the results are from the golden ones."""

    codes: tuple[str, ...]
    messages: tuple[str, ...]
    numpy_faults: tuple[str, ...] = ()
    host_faults: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.codes:
            return "; ".join(self.messages)
        faults = [*(f"numpy: {f}" for f in self.numpy_faults), *(f"host: {f}" for f in self.host_faults)]
        return "; ".join(faults) or "exact"


FAULTS_OF_TFLM = frozenset(
    {"add_quantized_int8", "rsqrt_a16w8", "mlperf_ic_resnet_weight_only_int8", "mnist_conv_fc_f16_weights"}
)
"""Where TFLM's results are wrong for another reason than rounding (README of the shared models)."""


FAULTS_OF_LITERT = frozenset({"fc_int4_blockwise_hybrid"})
"""Where LiteRT's reference kernels alone are known to be wrong, and so are the golden files: exact with `litert-reference`."""


def rounded_otherwise() -> list[Entry]:
    """The models that TFLM rounds otherwise, with outputs of TFLM in the golden files."""
    return [e for e in entries() if not is_over_time(e) and e["tflm"]["status"] == "differs" and e["name"] not in FAULTS_OF_TFLM]


def outcome(entry: Entry, oracle: str = "litert") -> Outcome:
    """Compile a model and run all its golden sets both ways."""
    data = (SHARED / entry["file"]).read_bytes()
    try:
        module = pipeline()(from_tflite(data, oracle=oracle))
        artifact = build(data, target="host", name="model", options=Options(oracle=oracle))
    except AotError as error:
        codes = tuple(sorted({p.code for p in error.problems}))
        return Outcome(codes, tuple(sorted({f"{p.code} {_operator(p.where)} {p.message}" for p in error.problems})))
    main = module["main"]
    assert isinstance(main, Function)
    golden = SHARED / entry["golden"]["file"]
    info = artifact.metadata
    sets = golden_sets(open_npz(golden), golden, inputs=info["inputs"], outputs=info["outputs"], oracle=oracle)
    model, graph = load(artifact), StatefulFunction(main)
    shapes = [tuple(i["shape"]) for i in info["inputs"]]  # golden files have a dimension where the model has a scalar

    def with_shapes(run: Any) -> Any:
        return lambda inputs: run([np.reshape(x, shape) for x, shape in zip(inputs, shapes, strict=True)])

    return Outcome((), (), tuple(_faults(sets, with_shapes(graph.run))), tuple(_faults(sets, with_shapes(model.run))))


def _operator(where: str) -> str:
    return where.split(" ")[2] if where.startswith("op ") else where


def _faults(sets: Sets, run: Any) -> Iterator[str]:
    assert sets.expected is not None
    for number, (inputs, expected) in enumerate(zip(sets.inputs, sets.expected, strict=True)):
        for i, (found, wanted) in enumerate(zip(run(inputs), expected, strict=True)):
            fault = difference(np.asarray(found), wanted)
            if fault:
                yield f"set {number} output {i}: {fault}"


def difference(found: Array, wanted: Array) -> str:
    """What is wrong with a result."""
    if found.dtype != wanted.dtype or found.size != wanted.size:
        return f"{found.dtype}{list(found.shape)} for {wanted.dtype}{list(wanted.shape)}"
    diff = divergence.difference(wanted, found)
    return "" if diff is None else f"{diff.count} of {diff.size} differ, by {diff.max_abs}"


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared models are not there")
@pytest.mark.parametrize("entry", entries(), ids=lambda e: str(e["name"]))
def test_model(entry: Entry) -> None:
    found = outcome(entry, oracle_of(entry))
    if found.codes:
        pytest.skip(f"not supported: {found}")
    assert str(found) == "exact"


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared models are not there")
@pytest.mark.parametrize("entry", rounded_otherwise(), ids=lambda e: str(e["name"]))
def test_rounding_of_tflm(entry: Entry) -> None:
    assert str(outcome(entry, "tflm")) == "exact"
    with np.load(SHARED / entry["golden"]["file"]) as golden:
        pairs = [(golden[k], golden["out" + k.removeprefix("tflm")]) for k in golden.files if k.startswith("tflm")]
    assert any((a != b).any() for a, b in pairs), "the golden file has outputs of TFLM that differ"


def test_differences_are_seen() -> None:
    """The judge itself: one code, one type, one NaN, one bit."""
    one = np.ones(3, np.float32)
    assert difference(np.array([1, 2], np.int8), np.array([1, 3], np.int8)) == "1 of 2 differ, by 1.0"
    assert difference(one, one.astype(np.float64)) == "float32[3] for float64[3]"
    assert difference(one, np.array([1, np.nan, 1], np.float32)) == "1 of 3 differ, by None"
    assert difference(np.nextafter(one, np.float32(2)), one).startswith("3 of 3 differ, by 1.19")
    assert difference(-np.array([np.nan]), np.array([np.nan])) == ""


def main(words: Sequence[str]) -> None:
    """A line a model and a summary."""
    codes: Counter[str] = Counter()
    exact = 0
    chosen = [e for e in entries() if not words or any(w in e["name"] for w in words)]
    for entry in chosen:
        try:
            found = outcome(entry, oracle_of(entry))
        except Exception as error:
            print(f"{entry['name']:40} FAULT {type(error).__name__}: {str(error)[:300]}", flush=True)
            continue
        exact += str(found) == "exact"
        codes.update({m.split(" is ")[0].split(":")[0][:60] for m in found.messages})
        print(f"{entry['name']:40} {str(found)[:300]}", flush=True)
    print(f"{exact} of {len(chosen)} exact")
    for code, count in codes.most_common():
        print(f"{count:4} {code}")


if __name__ == "__main__":
    main(sys.argv[1:])
