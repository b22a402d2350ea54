"""Write the models of this folder, their golden files and the manifest: `python -m tests.models.make`.

Needs the reference engines (pip install '.[test,tflm]').  Nothing depends on the machine; `--check` only compares
and fails where a committed file is not what would be written.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections import Counter
from importlib.metadata import version
from typing import Any

import numpy as np
import tflite

from aot.testing import input_details, reference_sets, tflm_reference
from tests.models.catalogue import Case, operators
from tests.models.golden import FOLDER, make_input, npz_bytes
from tests.models.graphs import graphs
from tests.models.networks import networks
from tests.models.reject import Reject, operator_names, rejects


def cases() -> list[Case]:
    """Every model that has a golden file."""
    return [*operators(), *graphs(), *networks()]


def input_sets(model: bytes, count: int) -> list[list[np.ndarray]]:
    """The first `count` sets of inputs for a model."""
    details = input_details(model)
    return [
        [make_input(shape, dtype.name, index=i, number=number) for i, (shape, dtype) in enumerate(details)]
        for number in range(count)
    ]


def golden_arrays(model: bytes, count: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays of the golden file and what TFLM does with the model (the manifest's `tflm` entry)."""
    sets = input_sets(model, count)
    arrays: dict[str, np.ndarray] = {}
    for number, (inputs, outputs) in enumerate(zip(sets, reference_sets(model, sets), strict=True)):
        arrays |= {f"in{i}_{number}": value for i, value in enumerate(inputs)}
        arrays |= {f"out{i}_{number}": value for i, value in enumerate(outputs)}
    try:
        micro = [tflm_reference(model, inputs) for inputs in sets]
    except RuntimeError:
        return arrays, {"status": "fails"}
    other = {f"tflm{i}_{n}": value for n, values in enumerate(micro) for i, value in enumerate(values)}
    largest = max(
        float(np.abs(value.astype(np.float64) - arrays[key.replace("tflm", "out")]).max()) for key, value in other.items()
    )
    if largest == 0:
        return arrays, {"status": "exact", "max_abs_difference": 0}
    return arrays | other, {"status": "differs", "max_abs_difference": largest}


def _tensor_entry(tensor: Any) -> dict[str, Any]:
    types = {v: k.lower() for k, v in vars(tflite.TensorType).items() if isinstance(v, int)}
    entry = {
        "name": tensor.Name().decode(),
        "shape": [int(tensor.Shape(i)) for i in range(tensor.ShapeLength())],
        "dtype": types[tensor.Type()],
    }
    q = tensor.Quantization()
    if q and q.ScaleLength() == 1:
        entry |= {"scale": float(q.Scale(0)), "zero_point": int(q.ZeroPoint(0))}
    return entry


def _interface(model: bytes) -> dict[str, Any]:
    root = tflite.Model.GetRootAs(model, 0)
    graph = root.Subgraphs(0)
    codes = [root.OperatorCodes(i).BuiltinCode() for i in range(root.OperatorCodesLength())]
    used = [codes[graph.Operators(i).OpcodeIndex()] for i in range(graph.OperatorsLength())]
    return {
        "inputs": [_tensor_entry(graph.Tensors(graph.Inputs(i))) for i in range(graph.InputsLength())],
        "outputs": [_tensor_entry(graph.Tensors(graph.Outputs(i))) for i in range(graph.OutputsLength())],
        "operators": dict(sorted(Counter(operator_names()[code] for code in used).items())),
    }


def _entry(case: Case, model: bytes, tflm: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": case.name,
        "file": f"{case.name}.tflite",
        "covers": case.covers,
        "sha256": hashlib.sha256(model).hexdigest(),
        "size": len(model),
        **_interface(model),
        "expected": "runs",
        "golden": {
            "file": f"{case.name}.golden.npz",
            "engine": f"ai-edge-litert {version('ai-edge-litert')} BUILTIN_REF",
            "sets": case.sets,
        },
        "tflm": tflm,
    }


def _reject_entry(reject: Reject, model: bytes) -> dict[str, Any]:
    return {
        "name": reject.name,
        "file": f"reject/{reject.name}.tflite",
        "covers": reject.why,
        "sha256": hashlib.sha256(model).hexdigest(),
        "size": len(model),
        "expected": f"rejected: {reject.why}",
        "codes": list(reject.families),
    }


def all_files() -> dict[str, bytes]:
    """Path relative to this folder -> content, for every file that this script owns."""
    files: dict[str, bytes] = {}
    entries = []
    for case in cases():
        model = case.make()
        arrays, tflm = golden_arrays(model, case.sets)
        files[f"{case.name}.tflite"] = model
        files[f"{case.name}.golden.npz"] = npz_bytes(arrays)
        entries.append(_entry(case, model, tflm))
    for reject in rejects():
        model = reject.make()
        files[f"reject/{reject.name}.tflite"] = model
        entries.append(_reject_entry(reject, model))
    manifest = {"schema": "aot-test-models/1", "models": entries}
    files["MANIFEST.json"] = (json.dumps(manifest, indent=1) + "\n").encode()
    return files


def main() -> int:
    """Write (or compare) all files; 1 if `--check` finds a difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only")
    check = parser.parse_args().check
    files = all_files()
    stale = [n for n, data in files.items() if not (FOLDER / n).is_file() or (FOLDER / n).read_bytes() != data]
    owned = [*FOLDER.glob("*.tflite"), *FOLDER.glob("*.golden.npz"), *FOLDER.glob("reject/*.tflite")]
    extra = [path for path in owned if path.relative_to(FOLDER).as_posix() not in files]
    print(f"{len(files)} files, {sum(map(len, files.values()))} bytes, {len(stale)} differ, {len(extra)} are left over")
    if check:
        return int(bool(stale or extra))
    (FOLDER / "reject").mkdir(exist_ok=True)
    for name in stale:
        (FOLDER / name).write_bytes(files[name])
    for path in extra:
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
