"""`aot new --kind mlperf-tiny`: firmware that speaks the serial protocol of the MLPerf Tiny runner."""

from __future__ import annotations

from typing import Any

import numpy as np

from aot.errors import Problem, UsageError
from aot.micro.generate import ProjectFiles, Spec, Text, common_values, project_kind, render
from aot.micro.generate_bare import SERIAL, bare_files, bare_values, qemu_arguments

_BENCHMARKS = {490: "kws01", 32 * 32 * 3: "ic01", 96 * 96 * 3: "vww01", 640: "ad01"}
"""Elements of the input -> the name by which the runner knows the benchmark."""
_INTEGERS = ("int8", "int16", "uint8")


@project_kind("mlperf-tiny")
def mlperf_project(spec: Spec) -> ProjectFiles:
    """Built like a make project; src/main.c and src/submission.h are the user's.

    Raises UsageError E5046 for several models, a model with several inputs or outputs, or a board without a serial port.
    """
    _check(spec)
    values = _values(spec)
    files = bare_files(spec)
    for name in ("mlperf.h", "mlperf.c", "mlperf_model.c", "uart.h"):
        files[f"aot/mlperf/{name}"] = render(f"mlperf/{name}.j2", **values)
    assert spec.board.uart is not None
    files["aot/mlperf/uart.c"] = render(f"mlperf/uart_{spec.board.uart.kind}.c.j2", **values)
    values.update(bare_values(spec, files))
    values["includes"] = [*values["includes"], "aot/mlperf", "src"]
    values["qemu"] = qemu_arguments(spec.board, SERIAL)
    files["aot/project.mk"] = render("project.mk.j2", **values)
    files["README.md"] = render("mlperf/README.md.j2", **values)
    once: dict[str, Text] = {
        "Makefile": render("Makefile.j2", **values),
        "src/main.c": render("mlperf/main.c.j2", **values),
        "src/submission.h": render("mlperf/submission.h.j2", **values),
    }
    return ProjectFiles(files, once)


def _check(spec: Spec) -> None:
    problems = []
    if len(spec.parts) != 1:
        problems.append(f"it takes one model, not {len(spec.parts)}")
    for part in spec.parts:
        tensors = (len(part.inputs), len(part.outputs))
        if tensors != (1, 1):
            problems.append(f"{part.name} has {tensors[0]} inputs and {tensors[1]} outputs instead of one each")
        dtypes = {i["dtype"] for i in (*part.artifact.metadata["inputs"], *part.artifact.metadata["outputs"])}
        if not dtypes <= {*_INTEGERS, "float32"}:
            problems.append(f"{part.name} has tensors of {', '.join(sorted(dtypes))}")
    if spec.board.uart is None:
        problems.append(f"{spec.board.name} has no [uart] in its board.toml")
    if problems:
        raise UsageError(*(Problem("E5046", f"--kind mlperf-tiny: {text}") for text in problems))


def _values(spec: Spec) -> dict[str, Any]:
    common = common_values(spec)
    model = common["models"][0]
    into, out = model["inputs"][0], model["outputs"][0]
    elements = int(np.prod(into["shape"], dtype=np.int64))
    is_integer = into["dtype"] in _INTEGERS
    limits = np.iinfo(into["dtype"]) if is_integer else None
    scaled = is_integer and into["scale"] is not None
    return {
        **common, "m": model, "elements": elements, "input_scaled": scaled, "input_is_int8": into["dtype"] == "int8",
        "low": int(limits.min) if limits else 0, "high": int(limits.max) if limits else 0,
        "buffer_bytes": max(into["size"], 4 * elements if scaled else 0),
        "autoencoder": elements == int(np.prod(out["shape"], dtype=np.int64)),
        "benchmark": _BENCHMARKS.get(elements, model["name"]),
        "pixels": into["dtype"] == "int8" and into["zero_point"] == -128 and len(into["shape"]) == 4,
    }  # fmt: skip
