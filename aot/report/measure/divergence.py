"""Where a model differs from its reference: layer by layer, by how much, and the files that show it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from aot.driver.build import build
from aot.driver.options import Options
from aot.errors import AotError
from aot.frontend.extract import Extract, NotAloneError, extract
from aot.ir.op import Array
from aot.micro.build.project import Project, prepare
from aot.micro.run.runner import LayerResult, run
from aot.report.measure.compare import Comparison, compare_sets, difference
from aot.report.measure.reference import Reference, trace
from aot.report.measure.sets import Sets

FAR = 10
"""Differences of at least this size are counted together."""


def find_divergence(
    model: bytes,
    project: Project,
    sets: Sets,
    comparison: Comparison,
    *,
    expected: Sequence[Sequence[Array]],
    actual: Sequence[Sequence[Array]],
    timeout: float | None = None,
    folder: Path | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The first difference, and all of them: (`first_divergence`, `divergence`) of a verdict (schema aot-report).

    The first set that differs is traced; later layers mostly differ because of earlier ones, so the first is the one to look
    at.  With a `folder`, that set and the first wrong layer as a model of its own are written there.
    """
    assert comparison.first is not None
    number, output, diff = comparison.first
    tracer, tensors = trace(model, project.artifact.metadata["oracle"], sets.inputs[number])
    ran = run(project, [sets.inputs[number]], mode="trace", timeout=timeout).layers
    found = compare_layers(project.artifact.metadata["layers"], ran, tensors)
    first = {"set": number, "output": output, **asdict(diff)}
    if found:
        first = {"set": number, "reference": tracer.name, **found[0]}
    columns = ("layer", "op", "does", "name", "kernel", "tensor", "count", "size", "max_abs")
    block: dict[str, Any] = {
        "set": number,
        "reference": tracer.name,
        "layers": [{k: row[k] for k in columns} for row in found],
        "histogram": histogram(expected, actual),
        "reproducer": None,
        "one_layer": None,
        "inside": inside(project.artifact.metadata),
    }
    if folder is not None:
        stem = f"{project.artifact.name}@{project.board.name}"
        block["reproducer"] = f"{stem}.npz"
        write_reproducer(folder / f"{stem}.npz", sets.inputs[number], expected[number])
        if found:
            block["one_layer"] = _one_layer(model, project, tracer, tensors, first=found[0], folder=folder, timeout=timeout)
    return first, block


def inside(metadata: Mapping[str, Any]) -> int:
    """How many layers run in branches and loops, where nothing is compared."""
    return len({i for c in metadata.get("control", ()) for i in range(c["first"], c["last"] + 1)})


def compare_layers(
    layers: Sequence[Mapping[str, Any]], trace: Sequence[LayerResult], tensors: Mapping[int, Array]
) -> list[dict[str, Any]]:
    """The layers of a trace whose output is not the reference's tensor; layers without a counterpart are passed over."""
    by_index = {layer["index"]: layer for layer in layers}
    rows = []
    for step in trace:
        layer = by_index[step.index]
        tensor = layer["output"].get("tensor", -1)
        wanted = _kept(tensors.get(tensor), layer["output"].get("channels"))
        if wanted is None or step.output is None:
            continue
        output = _in_the_files_codes(step.output, wanted)
        if (wanted.size, wanted.dtype) != (output.size, output.dtype):
            continue
        diff = difference(wanted, output)
        if diff is not None:
            place = {"layer": step.index, **{k: layer[k] for k in ("op", "does", "ops", "name", "kernel")}}
            rows.append({**place, "ops": list(layer["ops"]), "tensor": tensor, **asdict(diff)})
    return rows


def _in_the_files_codes(output: Array, wanted: Array) -> Array:
    """What a layer gave, as uint8 where the reference's tensor is uint8: the compiled model keeps those as int8, less 128."""
    if output.dtype != np.int8 or wanted.dtype != np.uint8:
        return output
    return np.asarray(output.view(np.uint8) ^ np.uint8(128))


def _kept(tensor: Array | None, channels: Sequence[int] | None) -> Array | None:
    """What the compiled model computes of a reference's tensor: some indices of its last axis, or all of them."""
    if tensor is None or not channels or tensor.ndim == 0 or max(channels) >= tensor.shape[-1]:
        return tensor
    part: Array = tensor[..., list(channels)]
    return part


def histogram(expected: Sequence[Sequence[Array]], actual: Sequence[Sequence[Array]]) -> list[dict[str, int]]:
    """How often the integer outputs are off by how much (actual - expected), all sets together, smallest first; 0 is left out.

    From -FAR down and from FAR up the differences are counted as -FAR and FAR.  Floats are left out.
    """
    counts: Counter[int] = Counter()
    for want, got in zip(expected, actual, strict=True):
        for w, g in zip(want, got, strict=True):
            if w.dtype.kind in "iu":
                off = np.clip(g.astype(np.int64).reshape(-1) - w.astype(np.int64).reshape(-1), -FAR, FAR)
                values, numbers = np.unique(off[off != 0], return_counts=True)
                counts.update(dict(zip(values.tolist(), numbers.tolist(), strict=True)))
    return [{"difference": d, "count": counts[d]} for d in sorted(counts)]


def write_reproducer(path: Path, inputs: Sequence[Array], expected: Sequence[Array]) -> None:
    """One set with what must come out, as `aot verify MODEL --inputs FILE.npz` reads it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {f"in{i}_0": a for i, a in enumerate(inputs)} | {f"out{i}_0": a for i, a in enumerate(expected)}
    with path.open("wb") as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]


def _one_layer(
    model: bytes,
    project: Project,
    tracer: Reference,
    tensors: Mapping[int, Array],
    *,
    first: Mapping[str, Any],
    folder: Path,
    timeout: float | None,
) -> dict[str, Any]:
    """The operators of a layer as NAME@BOARD.layerN.tflite, with the reference's tensors around them as .npz.

    `reproduces`: whether that model, compiled in the same way, differs on the same board; `why_not` if there is none.
    """
    result = {"layer": first["layer"], "model": None, "inputs": None, "reproduces": None, "why_not": None}
    try:
        alone = extract(model, first["ops"], first["tensor"])
    except NotAloneError as error:
        return result | {"why_not": str(error)}
    missing = [t for t in alone.inputs if t not in tensors]
    if missing:
        return result | {"why_not": f"{tracer.name} does not show tensor {missing[0]}"}
    stem = f"{project.artifact.name}@{project.board.name}.layer{first['layer']}"
    inputs, expected = [tensors[t] for t in alone.inputs], [tensors[first["tensor"]]]
    (folder / f"{stem}.tflite").write_bytes(alone.data)
    write_reproducer(folder / f"{stem}.npz", inputs, expected)
    differs = _differs(alone, project, inputs, expected, timeout=timeout)
    return result | {"model": f"{stem}.tflite", "inputs": f"{stem}.npz", "reproduces": differs}


def _differs(
    alone: Extract, project: Project, inputs: Sequence[Array], expected: Sequence[Array], *, timeout: float | None
) -> bool | None:
    """Whether the layer alone also differs from the reference; None if it cannot be compiled or run."""
    meta = project.artifact.metadata
    # options of other kinds name tensors or graphs of the whole model
    plain: dict[str, Any] = {k: v for k, v in meta["options"].items() if v is None or isinstance(v, str | int)}
    try:
        artifact = build(alone.data, target=meta["target"]["cpu"], name="layer", options=Options(**plain))
        found = run(prepare(artifact, project.board), [inputs], timeout=timeout).outputs
        return not compare_sets([expected], found).exact
    except (AotError, ValueError):
        return None
