"""`aot new --kind mlperf-tiny`: firmware that speaks the serial protocol of the MLPerf Tiny runner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from aot.errors import Problem, UsageError
from aot.micro.new.bare import SERIAL, bare_files, bare_values, qemu_arguments
from aot.micro.new.registry import ProjectFiles, Spec, Text, common_values, project_kind, render

_BENCHMARKS = {490: "kws01", 32 * 32 * 3: "ic01", 96 * 96 * 3: "vww01", 640: "ad01", 30 * 40: "sww01"}
"""Elements of the input -> the name by which the runner knows the benchmark."""
_INTEGERS = ("int8", "int16", "uint8")


@project_kind("mlperf-tiny")
def mlperf_project(spec: Spec) -> ProjectFiles:
    """Built like a make project; what lies in src/ is the user's.

    Raises UsageError E5046 for a model with several inputs or outputs, or a board without a serial port.
    """
    _check(spec)
    values = _values(spec)
    files = bare_files(spec)
    for name in ("mlperf.h", "mlperf.c", "mlperf_model.c", "uart.h", "pin.h"):
        files[f"aot/mlperf/{name}"] = render(f"mlperf/{name}.j2", **values)
    assert spec.board.uart is not None
    files["aot/mlperf/uart.c"] = render(f"mlperf/uart_{spec.board.uart.kind}.c.j2", **values)
    values.update(bare_values(spec, files))
    values["includes"] = [*values["includes"], "aot/mlperf", "src"]
    values["qemu"] = qemu_arguments(spec.board, SERIAL)
    values["own_sources"] = ["src/main.c", "src/pin.c"]
    values["console"] = False  # the port is the runner's
    values["profiler"] = ""
    values["models"] = _models(spec)
    files["aot/project.mk"] = render("project.mk.j2", **values)
    files["README.md"] = render("mlperf/README.md.j2", **values)
    once: dict[str, Text] = {"Makefile": render("Makefile.j2", **values)}
    for name in ("main.c", "submission.h", "pin.c"):
        once[f"src/{name}"] = render(f"mlperf/{name}.j2", **values)
    return ProjectFiles(files, once)


def _check(spec: Spec) -> None:
    problems = []
    for part in spec.parts:
        tensors = (len(part.inputs), len(part.outputs))
        if tensors != (1, 1):
            problems.append(f"{part.name} has {tensors[0]} inputs and {tensors[1]} outputs instead of one each")
        dtypes = {i["dtype"] for i in (*part.artifact.metadata["inputs"], *part.artifact.metadata["outputs"])}
        if not dtypes <= {*_INTEGERS, "float32"}:
            problems.append(f"{part.name} has tensors of {', '.join(sorted(dtypes))}")
        if part.artifact.metadata.get("feed"):
            problems.append(f"{part.name} is fed by rows, but the runner sends a whole input")
    if spec.board.uart is None:
        problems.append(f"{spec.board.name} has no [uart] in its board.toml")
    if problems:
        raise UsageError(*(Problem("E5046", f"--kind mlperf-tiny: {text}") for text in problems))


def _values(spec: Spec) -> dict[str, Any]:
    models = _models(spec)
    return {**common_values(spec), "models": models, "buffer_bytes": max(m["buffer_bytes"] for m in models)}


def _models(spec: Spec) -> list[dict[str, Any]]:
    return [_model(values) for values in common_values(spec)["models"]]


def _model(model: Mapping[str, Any]) -> dict[str, Any]:
    """What the templates know of one model; `elements` are those of its input."""
    into, out = model["inputs"][0], model["outputs"][0]
    elements = int(np.prod(into["shape"], dtype=np.int64))
    out_elements = int(np.prod(out["shape"], dtype=np.int64))
    is_integer = into["dtype"] in _INTEGERS
    limits = np.iinfo(into["dtype"]) if is_integer else None
    scaled = is_integer and into["scale"] is not None
    return {
        **model, "elements": elements, "out_elements": out_elements, "scaled": scaled, "is_int8": into["dtype"] == "int8",
        "low": int(limits.min) if limits else 0, "high": int(limits.max) if limits else 0,
        "buffer_bytes": max(into["size"], 4 * elements if scaled else 0),
        "autoencoder": elements == out_elements,
        "benchmark": _BENCHMARKS.get(elements, model["name"]),
        "pixels": into["dtype"] == "int8" and into["zero_point"] == -128 and len(into["shape"]) == 4,
    }  # fmt: skip
