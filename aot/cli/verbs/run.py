"""`aot run MODEL`: run real data on a board and print the outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aot.cli import completion
from aot.cli.options import (
    BoardName,
    ClockRate,
    CompileOptions,
    JsonFlag,
    ModelPath,
    QuietFlag,
    Timeout,
    VerboseFlag,
    compiles,
    finite,
)
from aot.cli.output import Output
from aot.errors import Problem, UsageError

if TYPE_CHECKING:
    from aot.micro.board import Board
    from aot.micro.run.runner import RunResult
    from aot.report.measure.samples import Samples

NAME = "run"
MAX_SHOWN = 10
MAX_LABELS = 1 << 24
"""bytes"""

InputFiles = Annotated[
    list[Path],
    typer.Option(
        "--inputs", metavar="FILE", help="Data: .npz, .npy, .wav, an image, or raw bytes; may be repeated.", show_default=False
    ),
]
Quantize = Annotated[
    str,
    typer.Option(
        "--quantize",
        metavar="auto|always|never",
        autocompletion=completion.choices("auto", "always", "never"),
        help="Whether to quantise values for the model; auto: float arrays only.",
    ),
]
Scale = Annotated[
    float | None,
    typer.Option(
        "--scale", help="Convert raw data: the real value is (raw - mean) * scale.", callback=finite, show_default=False
    ),
]
Mean = Annotated[float | None, typer.Option("--mean", help="See --scale.", callback=finite, show_default=False)]
Labels = Annotated[
    Path | None, typer.Option("--labels", metavar="FILE", help="Names of the classes, one per line.", show_default=False)
]
Top = Annotated[int, typer.Option("--top", min=1, help="How many classes to print per sample.")]
Profile = Annotated[bool, typer.Option("--profile", help="Print the instructions of every layer.")]


def read_labels(path: Path | None) -> list[str]:
    """Class names from a file with one per line (E5016)."""
    from aot.driver.reading import read_limited

    if path is None:
        return []
    try:
        text = read_limited(path, limit=MAX_LABELS).decode("utf-8")
        return [line.strip() for line in text.splitlines() if line.strip()]
    except (UsageError, UnicodeDecodeError) as error:
        raise UsageError(Problem("E5016", f"cannot read the labels '{path}': {error}")) from None


def class_name(index: int, labels: Sequence[str]) -> str:
    return labels[index] if index < len(labels) else str(index)


def _output_text(real: Any, info: dict[str, Any], labels: Sequence[str], top: int) -> str:
    """The top classes if the output is a vector of scores, else its first values."""
    flat = real.reshape(-1)
    if flat.size > 1 and flat.size == info["shape"][-1]:
        best = sorted(range(flat.size), key=lambda i: (-flat[i], i))[:top]
        return "   ".join(f"{class_name(i, labels)} {flat[i]:.3f}" for i in best)
    values = " ".join(f"{v:.4g}" for v in flat[:8])
    return f"{values} …" if flat.size > 8 else values


def _accuracy(outputs: Sequence[Sequence[Any]], samples: Samples) -> tuple[int, int] | None:
    """(correct, total) if the samples have labels, else None."""
    if samples.labels is None:
        return None
    right = sum(int(row[0].reshape(-1).argmax()) == label for row, label in zip(outputs, samples.labels, strict=True))
    return right, len(samples.labels)


def _show(
    out: Output, samples: Samples, rows: Sequence[Sequence[Any]], infos: Sequence[Any], *, labels: Sequence[str], top: int
) -> None:
    from aot.report.measure.samples import dequantize

    shown = len(rows) if out.verbose else min(len(rows), MAX_SHOWN)
    for n, row in enumerate(rows[:shown]):
        truth = f"   label {class_name(samples.labels[n], labels)}" if samples.labels is not None else ""
        for i, (values, info) in enumerate(zip(row, infos, strict=True)):
            label = f"sample {n}" if len(infos) == 1 else f"sample {n} {info['name']}"
            text = _output_text(dequantize(values, info), info, labels, top)
            out.row(label, text + (truth if i == 0 else ""))
    if shown < len(rows):
        out.line(f"  … {len(rows) - shown} more (-v shows all)")


def _plain(values: Any) -> list[Any]:
    """Values for JSON, which lacks NaN, infinities and complex numbers: these become strings and pairs."""
    if values.dtype.kind == "c":
        values = values.reshape(-1, 1).view(values.real.dtype)
        return [_plain(pair) for pair in values]
    if values.dtype.kind != "f":
        return list(values.reshape(-1).tolist())
    return [v if math.isfinite(v) else str(v) for v in values.reshape(-1).tolist()]


def _json_rows(rows: Sequence[Sequence[Any]], infos: Sequence[Any]) -> list[list[dict[str, Any]]]:
    """Every output of every sample: the model's values and, if they are quantised, the real values."""
    from aot.report.measure.samples import dequantize

    def one(values: Any, info: Any) -> dict[str, Any]:
        real = {"real": _plain(dequantize(values, info))} if info.get("scale") else {}
        return {"name": info["name"], "values": _plain(values), **real}

    return [[one(v, info) for v, info in zip(row, infos, strict=True)] for row in rows]


def _report(
    out: Output,
    name: str,
    *,
    place: Board,
    samples: Samples,
    result: RunResult,
    meta: Mapping[str, Any],
    labels: Sequence[str],
    top: int,
    profile: bool,
    clock: int | None,
) -> None:
    """Print outputs, accuracy, instructions and, with --profile, the table of layers."""
    from aot.report.figures.size import LAYER_HEADERS, cycles_of, layer_rows, load_of, load_text, pushes_text, time_of

    instructions = {layer.index: layer.instructions for layer in result.layers}
    layers = [{**layer, "instructions": instructions.get(layer["index"])} for layer in meta["layers"]] if profile else []
    accuracy = _accuracy(result.outputs, samples)
    _show(out, samples, result.outputs, meta["outputs"], labels=labels, top=top)
    if accuracy is not None:
        out.row("accuracy", f"{accuracy[0]}/{accuracy[1]} = {100 * accuracy[0] / accuracy[1]:.1f} %")
    if result.instructions is not None:
        out.row("time", time_of(result.instructions, meta["macs"], meta["macs_nominal"]))
    load = load_of(meta, result.every, clock)
    if load is not None and result.every is not None:
        out.row("pushes", pushes_text(result.every, len(samples.sets)))
        out.row("load", load_text(load))
    if result.cycles is not None and place.gdb is not None:
        out.row("time", cycles_of(result.cycles, meta["macs"], place.gdb.hz))
    out.row("board", f"{place.name}: {place.title}")
    if profile:
        out.table(LAYER_HEADERS, layer_rows(layers))
    out.result({
        "model": name, "board": place.name, "samples": len(samples.sets),
        "outputs": _json_rows(result.outputs, meta["outputs"]),
        "accuracy": None if accuracy is None else accuracy[0] / accuracy[1], "instructions": result.instructions,
        "cycles": result.cycles, "macs": meta["macs"], "stack_bytes": result.stack_bytes, "layers": layers,
        **({} if load is None else {"load": load}),
    })  # fmt: skip


@compiles()
def command(
    model: ModelPath,
    *,
    inputs: InputFiles,
    board: BoardName = None,
    quantize: Quantize = "auto",
    scale: Scale = None,
    mean: Mean = None,
    labels: Labels = None,
    top: Top = 3,
    profile: Profile = False,
    clock: ClockRate = None,
    options: CompileOptions,
    timeout: Timeout = 0.0,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
) -> None:
    """Run MODEL on a board with data from files; print the outputs, and the accuracy if the data has labels."""
    from aot.cli.common import compile_for, find_board, noted, request
    from aot.micro.build.project import prepare
    from aot.micro.run.runner import run
    from aot.report.figures.size import check_clock, parse_clock
    from aot.report.measure.fitting import linker
    from aot.report.measure.samples import Conversion, load_samples

    out = Output(json=as_json, quiet=quiet, verbose=verbose)
    if quantize not in ("auto", "always", "never"):
        raise UsageError(Problem("E5009", f"--quantize {quantize}: choose one of auto, always, never"))
    classes, hertz = read_labels(labels), parse_clock(clock)
    place = find_board(board)
    req = request(model, options, target=place.cpu, board=place)
    with out.working(f"compiling {model.name}"):
        artifact = compile_for(req, place, out, link=linker(place))
    meta = artifact.metadata
    check_clock(meta, hertz)
    samples = load_samples(inputs, meta, Conversion(quantize, scale, mean))
    noted(samples.sets)
    with out.working(f"running {len(samples.sets)} samples on {place.name}"):
        project = prepare(artifact, place)
        result = run(project, samples.sets.inputs, mode="profile" if profile else "measure", timeout=timeout or None)
    _report(
        out, req.name, place=place, samples=samples, result=result, meta=meta, labels=classes, top=top, profile=profile,
        clock=hertz,
    )  # fmt: skip
