"""Differences between a model and its reference: layer by layer, how large, and files that reproduce them."""

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
from aot.frontend.problems import Problems
from aot.frontend.tflite.flatbuffer import read_map
from aot.frontend.tflite.specialize import Extract, NotAloneError, extract
from aot.frontend.tflite.view import ABSENT, ModelView, parse
from aot.ir.op import Array
from aot.micro.build.project import Project, prepare
from aot.micro.run.runner import LayerResult, run
from aot.report.measure.inputs import Sets
from aot.report.measure.reference import Reference, RefusedError, graph, litert, tflm, trace
from aot.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Difference:
    """The first element of a tensor that differs; `max_abs` is over the whole tensor, None if a value is not finite.

    Values without a JSON number are text: "nan", "inf", "-inf".
    """

    element: int
    expected: float | int | str
    actual: float | int | str
    count: int
    size: int
    max_abs: float | None


def difference(expected: Array, actual: Array) -> Difference | None:
    """The difference, or None if both have the same bytes; size and type must match (ValueError), the shape need not.

    All NaNs are equal: IEEE 754 leaves sign and payload to the processor.  -0 differs from 0.
    """
    if expected.size != actual.size or expected.dtype != actual.dtype:
        raise ValueError(f"{expected.dtype}[{expected.size}] cannot be compared with {actual.dtype}[{actual.size}]")
    e, a = np.ascontiguousarray(expected).reshape(-1), np.ascontiguousarray(actual).reshape(-1)
    if e.dtype.kind == "c":  # each part by itself
        e, a = e.view(np.float32), a.view(np.float32)
    raw = np.dtype(f"u{e.dtype.itemsize}")
    wrong = e.view(raw) != a.view(raw)
    if e.dtype.kind == "f":
        wrong &= ~(np.isnan(e) & np.isnan(a))
    bad = np.flatnonzero(wrong)
    if not bad.size:
        return None
    wide: Any = np.float64 if e.dtype.kind == "f" else np.int64
    with np.errstate(invalid="ignore", over="ignore"):
        largest = float(np.max(np.abs(e[bad].astype(wide) - a[bad].astype(wide))))
    first = int(bad[0])
    finite = largest if np.isfinite(largest) else None
    return Difference(first, _plain(e[first]), _plain(a[first]), int(bad.size), int(e.size), finite)


def _plain(value: np.generic) -> float | int | str:
    number: float | int = value.item()
    return number if np.isfinite(number) else str(number)


@dataclass(frozen=True, slots=True)
class Comparison:
    """`sets` were compared, `bad_sets` of them differ; `max_abs` over all (0 if all are exact, None if not finite)."""

    sets: int
    bad_sets: tuple[int, ...]
    max_abs: float | None
    first: tuple[int, int, Difference] | None
    """(set, output, difference)"""

    @property
    def exact(self) -> bool:
        return not self.bad_sets


def compare_sets(expected: Sequence[Sequence[Array]], actual: Sequence[Sequence[Array]]) -> Comparison:
    """Compare all outputs of all sets."""
    differences = [
        (s, o, d)
        for s, (want, got) in enumerate(zip(expected, actual, strict=True))
        for o, (w, g) in enumerate(zip(want, got, strict=True))
        if (d := difference(w, g)) is not None
    ]
    sizes = [d.max_abs for _, _, d in differences]
    finite = [m for m in sizes if m is not None]
    largest = None if len(finite) < len(sizes) else max(finite, default=0.0)
    return Comparison(
        len(expected), tuple(sorted({s for s, _, _ in differences})), largest, differences[0] if differences else None
    )


FAR = 10
"""Differences of at least this size are counted together."""


def explain(
    model: bytes, project: Project, sets: Sets, comparison: Comparison, *, expected: Sequence[Sequence[Array]],
    actual: Sequence[Sequence[Array]], timeout: float | None = None, folder: Path | None = None,
) -> dict[str, Any]:  # fmt: skip
    """`first_divergence`, `divergence` (all differences) and `known_fault` of a verdict (schema aot-report).

    The first set that differs is traced; later layers mostly differ because of earlier ones, so the first one matters.  With a
    `folder`, that set and the first wrong layer as a model of its own are written there.
    """
    assert comparison.first is not None
    number, output, diff = comparison.first
    tracer, tensors = trace(model, project.artifact.metadata["oracle"], sets.inputs[number])
    ran = run(project, [sets.inputs[number]], mode="trace", timeout=timeout).layers
    rows = compare_layers(project.artifact.metadata["layers"], ran, tensors)
    first = {"set": number, "output": output, **asdict(diff)}
    if rows:
        first = {"set": number, "reference": tracer.name, **rows[0]}
    columns = ("layer", "op", "does", "name", "kernel", "tensor", "count", "size", "max_abs")
    block: dict[str, Any] = {
        "set": number,
        "reference": tracer.name,
        "layers": [{k: row[k] for k in columns} for row in rows],
        "histogram": histogram(expected, actual),
        "reproducer": None,
        "one_layer": None,
        "inside": inside(project.artifact.metadata),
    }
    if folder is not None:
        stem = f"{project.artifact.name}@{project.board.name}"
        block["reproducer"] = f"{stem}.npz"
        write_reproducer(folder / f"{stem}.npz", sets.inputs[number], expected[number])
        if rows:
            block["one_layer"] = _one_layer(model, project, tracer, tensors, first=rows[0], folder=folder, timeout=timeout)
    fault = explain_difference(model, project.artifact.metadata, first=first, inputs=sets.inputs, actual=actual)
    return {"first_divergence": first, "divergence": block, "known_fault": fault}


def inside(metadata: Mapping[str, Any]) -> int:
    """The number of layers in branches and loops, which are not compared."""
    return len({i for c in metadata.get("control", ()) for i in range(c["first"], c["last"] + 1)})


def compare_layers(
    layers: Sequence[Mapping[str, Any]], trace: Sequence[LayerResult], tensors: Mapping[int, Array]
) -> list[dict[str, Any]]:
    """The layers of a trace whose output differs from the reference's tensor; layers without a counterpart are skipped."""
    by_index = {layer["index"]: layer for layer in layers}
    rows = []
    for step in trace:
        layer = by_index[step.index]
        tensor = layer["output"].get("tensor", -1)
        expected = _kept(tensors.get(tensor), layer["output"].get("channels"))
        if expected is None or step.output is None:
            continue
        output = step.output
        if output.dtype == np.int8 and expected.dtype == np.uint8:  # the compiled model keeps uint8 as int8, less 128
            output = np.asarray(output.view(np.uint8) ^ np.uint8(128))
        if (expected.size, expected.dtype) != (output.size, output.dtype):
            continue
        diff = difference(expected, output)
        if diff is not None:
            place = {"layer": step.index, **{k: layer[k] for k in ("op", "does", "ops", "name", "kernel")}}
            rows.append({**place, "ops": list(layer["ops"]), "tensor": tensor, **asdict(diff)})
    return rows


def _kept(tensor: Array | None, channels: Sequence[int] | None) -> Array | None:
    """The part of a reference's tensor that the compiled model computes: some indices of its last axis, or all."""
    if tensor is None or not channels or tensor.ndim == 0 or max(channels) >= tensor.shape[-1]:
        return tensor
    part: Array = tensor[..., list(channels)]
    return part


def histogram(expected: Sequence[Sequence[Array]], actual: Sequence[Sequence[Array]]) -> list[dict[str, int]]:
    """Counts of the integer outputs' differences (actual - expected), over all sets, smallest first; without 0.

    Differences beyond -FAR and FAR are counted as -FAR and FAR.  Floats are ignored.
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
    """Write one set and its expected outputs, as `aot verify MODEL --inputs FILE.npz` reads it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {f"in{i}_0": a for i, a in enumerate(inputs)} | {f"out{i}_0": a for i, a in enumerate(expected)}
    with path.open("wb") as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]


def _one_layer(
    model: bytes, project: Project, tracer: Reference, tensors: Mapping[int, Array], *, first: Mapping[str, Any], folder: Path,
    timeout: float | None,
) -> dict[str, Any]:  # fmt: skip
    """Write a layer's operators as NAME@BOARD.layerN.tflite, with the reference's tensors around them as .npz.

    `reproduces`: whether that model, compiled with the same options, differs on the same board; `why_not` if there is no such
    model."""
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
    # other options refer to tensors or graphs of the whole model
    plain: dict[str, Any] = {k: v for k, v in meta["options"].items() if v is None or isinstance(v, str | int)}
    try:
        artifact = build(alone.data, target=meta["target"]["cpu"], name="layer", options=Options(**plain))
        outputs = run(prepare(artifact, project.board), [inputs], timeout=timeout).outputs
        return not compare_sets([expected], outputs).exact
    except (AotError, ValueError):
        return None


# ---- faults of the reference: kernels known to be wrong, and outputs that an operator leaves undefined
# A model whose outputs differ because of a known fault does not count as exact.  The first layer that differs must have an
# operator of the table; every output must equal the graph interpreter's, which computes that operator correctly; and for the
# operator alone the other engine, if it has it, must agree.


@dataclass(frozen=True, slots=True)
class KnownFault:
    """`opcode` on data of one of `dtypes` is wrong in the reference kernels of `engine`, in these `versions`.

    `what` is wrong, `example` shows it in one line, `source` says where the fault is.  `scales`: only if an operand has a scale
    per "channel" or "block"."""

    opcode: str
    dtypes: tuple[str, ...]
    engine: str
    versions: str
    what: str
    example: str
    source: str
    scales: str = ""


KNOWN_FAULTS: tuple[KnownFault, ...] = (
    KnownFault(
        "SUM", ("int8", "int16"), "litert", "ai-edge-litert 2.1 to 2.3",
        "the reference kernel reads and writes the values as uint8",
        "eight times -128 of scale 1 are -1, not -128",
        "tflite/kernels/reduce.cc, QuantizedMeanOrSum of kReference: GetTensorData<uint8_t> for every type",
    ),
    KnownFault(
        "FULLY_CONNECTED", ("float32",), "litert", "ai-edge-litert 2.1 to 2.3",
        "the reference kernel uses a single scale for weights with per-block scales, and reads 0",
        "every result is 0, or the bias; LiteRT's own kernels without delegates give the intended result",
        "tflite/kernels/fully_connected.cc, Prepare: op_data_4bit, and with it EvalBlockwise4Bit, is not for kReference;"
        " EvalHybridDense multiplies by filter->params.scale, which is 0 for a tensor with blocks",
        scales="block",
    ),
    KnownFault(
        "DEQUANTIZE", ("int8",), "tflm", "tflite-micro 0.dev2026",
        "the kernel uses one scale and zero point for the whole tensor, even if the weights have per-channel scales",
        "all channels are scaled like the first",
        "tensorflow/lite/micro/kernels/dequantize_common.cc, DequantizePrepare: input->params.scale",
        scales="channel",
    ),
)  # fmt: skip


def known_fault(opcode: str, dtype: str, *, oracle: str, scales: str = "") -> KnownFault | None:
    """The entry for an operator on data of `dtype`; `scales`: "channel" or "block" if an operand has such scales."""
    here = (f for f in KNOWN_FAULTS if f.opcode == opcode and dtype in f.dtypes and f.engine == oracle)
    return next((f for f in here if f.scales in ("", scales)), None)


def explain_difference(
    model: bytes, metadata: Mapping[str, Any], *, first: Mapping[str, Any], inputs: Sequence[Sequence[Array]],
    actual: Sequence[Sequence[Array]],
) -> dict[str, Any] | None:  # fmt: skip
    """Why outputs differ, if a known fault of the reference explains all differences, else None.

    `metadata` describes the compiled model, `first` is the first divergence, `actual[set][output]` the compiled model's results
    for `inputs[set][input]`.  TFLM shows no tensors: if every layer agrees with LiteRT's tensors, any operator of the model may
    be at fault, and TFLM runs each operator alone."""
    view = parse(model, Problems())
    if view is None:
        return None
    oracle = metadata["oracle"]
    unknown = oracle == "tflm" and "ops" not in first
    ops = range(len(view.subgraphs[0].operators)) if unknown else first.get("ops", ())
    culprit = _first_fault(view, ops, oracle)
    if culprit is None:
        return None
    index, result, fault = culprit
    interpreter = graph(model, oracle)
    if not compare_sets(interpreter.outputs(inputs), actual).exact:
        return None
    tensors = interpreter.tensors(inputs[first["set"]])
    engine, agrees = _alone(model, index, result, tensors, oracle="litert" if unknown else "tflm")
    if agrees is False or (unknown and (agrees is None or _alone(model, index, result, tensors, oracle="tflm")[1] is not False)):
        return None
    words = {"operator": fault.opcode, "what": fault.what, "example": fault.example, "versions": fault.versions}
    # an operator on constants is folded into the layer that uses them, or into none
    layer = first.get("layer", next((x["index"] for x in metadata["layers"] if any(op >= index for op in x["ops"])), 0))
    return {**words, "layer": layer, "compared_with": engine}


def fault_text(fault: Mapping[str, Any]) -> str:
    """A known fault of the reference in one sentence."""
    other = f"; {fault['compared_with']} agrees with the compiled model" if fault["compared_with"] else ""
    here = f"layer {fault['layer']}, {fault['operator']}, {fault['versions']}"
    return f"differs from the reference, which is wrong here ({here}): {fault['what']}; {fault['example']}{other}"


def _first_fault(view: ModelView, ops: Sequence[int], oracle: str) -> tuple[int, int, KnownFault] | None:
    """The first of a layer's operators that is in the table, with its result's tensor."""
    graph_view = view.subgraphs[0]
    for index in ops:
        op = graph_view.operators[index]
        operands = [graph_view.tensors[t] for t in op.inputs if t != ABSENT]
        quants = [t.quant for t in operands if t.quant is not None]
        scales = (
            "block" if any(q.block is not None for q in quants) else "channel" if any(len(q.scales) > 1 for q in quants) else ""
        )
        fault = known_fault(op.opcode, operands[0].dtype, oracle=oracle, scales=scales) if operands else None
        if fault is not None:
            return index, op.outputs[0], fault
    return None


def _alone(model: bytes, index: int, result: int, tensors: Mapping[int, Array], *, oracle: str) -> tuple[str | None, bool | None]:
    """An engine's name, and whether it gets the operator's result from the same operands; (None, None) if it cannot run it."""
    try:
        alone = extract(model, (index,), result)
        engine = tflm(alone.data, 1) if oracle == "tflm" else litert(alone.data)
    except (NotAloneError, RefusedError, ImportError):
        return None, None
    if any(t not in tensors for t in (*alone.inputs, result)):
        return None, None
    expected = tensors[result]
    try:
        ((actual,),) = engine.outputs([[tensors[t] for t in alone.inputs]])
    except RuntimeError:  # a kernel of the engine fails
        return None, None
    return engine.name, difference(actual.reshape(expected.shape), expected) is None


# --- outputs that an operator leaves undefined

DETECTION = "TFLite_Detection_PostProcess"


def with_zeros(model: bytes, sets: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """Reference outputs with zeros in undefined places: detections after the last one.

    The reference leaves the values of an earlier run there; the compiled model writes zeros.
    """
    view, zeroed = parse(model, Problems()), [list(outputs) for outputs in sets]
    if view is None:
        return zeroed
    outputs = list(view.subgraphs[0].outputs)
    for op in view.subgraphs[0].operators:
        if op.opcode != "CUSTOM" or op.custom_name != DETECTION or len(op.outputs) != 4 or op.outputs[3] not in outputs:
            continue
        number, most = outputs.index(op.outputs[3]), int(read_map(op.custom_options)["max_detections"])  # already checked
        for arrays in zeroed:
            count = int(arrays[number].reshape(-1)[0])
            for place in (outputs.index(t) for t in op.outputs[:3] if t in outputs):  # [1, detections, ...]
                array = arrays[place] = np.array(arrays[place])
                array[:, count * (array.shape[1] // most) :] = 0
    return zeroed
