"""`aot run` and `aot verify`: a model on a board with real data, and every output byte compared with the reference."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aot.cli import common
from aot.cli import options as opts
from aot.cli.files import check_usable
from aot.cli.options import CompileOptions, finite, option, verb, words_of
from aot.cli.output import Output, paint
from aot.errors import EXIT_VERIFICATION, Problem, UsageError, VerificationError
from aot.support.dataclass import dataclass
from aot.support.text import does_of

if TYPE_CHECKING:
    from aot.executor.artifact import Artifact
    from aot.micro.board import Board
    from aot.micro.run.runner import RunResult
    from aot.report.measure.inputs import Samples, Sets
    from aot.report.measure.verify import Verification


# ---- `aot run MODEL`: run real data on a board and print the outputs


MAX_SHOWN = 10
MAX_LABELS = 1 << 24
"""bytes"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """The options of `aot run`."""

    inputs: Annotated[list[Path], option("--inputs FILE", "Data: .npz, .npy, .wav, an image, or raw bytes; may be repeated.")]
    board: opts.BoardName = None
    quantize: Annotated[
        str, option("--quantize auto|always|never", "Whether to quantise values for the model; auto: float arrays only.")
    ] = "auto"
    scale: Annotated[
        float | None, option("--scale", "Convert raw data: the real value is (raw - mean) * scale.", callback=finite)
    ] = None
    mean: Annotated[float | None, option("--mean", "See --scale.", callback=finite)] = None
    labels: Annotated[Path | None, option("--labels FILE", "Names of the classes, one per line.")] = None
    top: Annotated[int, option("--top", "How many classes to print per sample.", min=1)] = 3
    profile: Annotated[bool, option("--profile", "Print the instructions of every layer.")] = False
    clock: opts.ClockRate = None
    options: CompileOptions
    timeout: opts.Timeout = 0.0
    out: Output


@verb()
def aot_run(model: opts.ModelPath, *, asked: Running) -> None:
    """Run MODEL on a board with data from files; print the outputs, and the accuracy if the data has labels."""
    from aot.micro.build.project import prepare
    from aot.micro.run.runner import run
    from aot.report.figures.size import check_clock, parse_clock
    from aot.report.measure.inputs import Conversion, load_samples

    out = asked.out
    if asked.quantize not in ("auto", "always", "never"):
        raise UsageError(Problem("E5009", f"--quantize {asked.quantize}: choose one of auto, always, never"))
    classes, hertz = read_labels(asked.labels), parse_clock(asked.clock)
    place = common.find_board(asked.board)
    req, artifact = common.compile_on(model, asked.options, place, out)
    meta = artifact.metadata
    check_clock(meta, hertz)
    samples = load_samples(asked.inputs, meta, Conversion(asked.quantize, asked.scale, asked.mean))
    common.noted(samples.sets)
    with out.working(f"running {len(samples.sets)} samples on {place.name}"):
        mode = "profile" if asked.profile else "measure"
        result = run(prepare(artifact, place), samples.sets.inputs, mode=mode, timeout=asked.timeout or None)
    _report(asked, req.name, place, samples=samples, result=result, meta=meta, labels=classes, clock=hertz)


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


def _show_samples(
    out: Output, samples: Samples, rows: Sequence[Sequence[Any]], infos: Sequence[Any], *, labels: Sequence[str], top: int
) -> None:
    from aot.report.measure.inputs import dequantize

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
    from aot.report.measure.inputs import dequantize

    def one(values: Any, info: Any) -> dict[str, Any]:
        real = {"real": _plain(dequantize(values, info))} if info.get("scale") else {}
        return {"name": info["name"], "values": _plain(values), **real}

    return [[one(v, info) for v, info in zip(row, infos, strict=True)] for row in rows]


def _report(
    asked: Running, name: str, place: Board, *, samples: Samples, result: RunResult, meta: Mapping[str, Any],
    labels: Sequence[str], clock: int | None,
) -> None:  # fmt: skip
    """Print outputs, accuracy, instructions and, with --profile, the table of layers."""
    from aot.report.figures.size import LAYER_HEADERS, cycles_of, layer_rows, load_of, load_text, pushes_text, time_of

    out, counts = asked.out, {layer.index: layer.instructions for layer in result.layers}
    layers = [{**layer, "instructions": counts.get(layer["index"])} for layer in meta["layers"]] if asked.profile else []
    accuracy = _accuracy(result.outputs, samples)
    _show_samples(out, samples, result.outputs, meta["outputs"], labels=labels, top=asked.top)
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
    if asked.profile:
        out.table(LAYER_HEADERS, layer_rows(layers))
    out.result({
        "model": name, "board": place.name, "samples": len(samples.sets),
        "outputs": _json_rows(result.outputs, meta["outputs"]),
        "accuracy": None if accuracy is None else accuracy[0] / accuracy[1], "instructions": result.instructions,
        "cycles": result.cycles, "macs": meta["macs"], "stack_bytes": result.stack_bytes, "layers": layers,
        **({} if load is None else {"load": load}),
    })  # fmt: skip


# ---- `aot verify MODEL`: compile, build, run, and compare every output byte with the reference


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifying:
    """The options of `aot verify`."""

    board: opts.BoardName = None
    inputs: opts.InputsFile = None
    random: opts.RandomCount = None
    options: CompileOptions
    output: Annotated[Path, option("-o --output DIR", "Folder for the files that reproduce a mismatch.")] = Path("out/verify")
    profile: Annotated[bool, option("--profile/--no-profile", "Also count the instructions of each layer.")] = True
    poison: Annotated[bool, option("--poison", "Run again, overwriting all dead memory between layers.")] = False
    accept_known_faults: opts.FaultsFlag = True
    require: opts.RequireFlag = False
    serial: Annotated[
        str | None,
        option("--serial PORT[:BAUD]", "Port of a connected --board zephyr:BOARD: flash it, and run over its console."),
    ] = None
    clock: opts.ClockRate = None
    timeout: opts.Timeout = 0.0
    out: Output

    @property
    def zephyr(self) -> str | None:
        """Zephyr's name of the board; None for boards of ours."""
        return (self.board or "").removeprefix(ZEPHYR) if (self.board or "").startswith(ZEPHYR) else None

    def sets(self, model: bytes, artifact: Artifact) -> Sets:
        """The input sets; E3031 or E3032 if a reference is required and there is none."""
        sets = common.choose_sets(artifact, self.inputs, self.random)
        if self.require:
            common.require_reference(model, artifact, sets)
        return sets


ZEPHYR = "zephyr:"


@verb()
def aot_verify(model: opts.ModelPath, *, asked: Verifying) -> None:
    """Run MODEL on a board and compare every output byte with the reference.

    On a mismatch, exit 5 and name the first operator that differs.
    """
    from aot.micro.build.project import prepare
    from aot.report.figures.size import check_clock
    from aot.report.measure.verify import verify

    out, hertz = asked.out, check_asked(asked)
    if asked.zephyr is not None:
        result, artifact = run_with_zephyr(model, asked, asked.zephyr)
        show_verification(out, result, artifact)
        conclude(out, result)
        return
    place = common.find_board(asked.board)
    req, artifact = common.compile_on(model, asked.options, place, out)
    check_clock(artifact.metadata, hertz)
    sets = asked.sets(req.data, artifact)
    out.row("import", common.import_text(req))
    show_compiled(out, artifact)
    with out.working(f"running {model.name} on {place.name}"):
        project = prepare(artifact, place)
        result = verify(
            req.data, artifact, project, sets, profile=asked.profile, poison=asked.poison, timeout=asked.timeout or None,
            folder=asked.output, clock=hertz, progress=out.row,
        )  # fmt: skip
    show_verification(out, result, artifact)
    if result.divergence is not None:
        for line in reproducer_text(result.divergence, asked.output, model=model, board=place.name, options=asked.options):
            out.row("again", line)
    conclude(out, result, accept_faults=asked.accept_known_faults)


def check_asked(asked: Verifying) -> int | None:
    """The clock in hertz.  E5005 for an unusable folder; E5017 for --serial or --clock if the board does not support it."""
    from aot.report.figures.size import parse_clock

    check_usable(asked.output)
    if asked.serial is not None and asked.zephyr is None:
        raise UsageError(
            Problem("E5017", "--serial works with --board zephyr:BOARD only; for other boards, board.toml defines the connection")
        )
    if asked.clock is not None and asked.zephyr is not None:
        raise UsageError(Problem("E5017", f"--clock needs instruction counts, which --board {asked.board} does not provide"))
    return parse_clock(asked.clock)


def run_with_zephyr(model: Path, asked: Verifying, board: str) -> tuple[Verification, Artifact]:
    """Run the model in a Zephyr application, compiled for the core in Zephyr's configuration, and compare."""
    from aot.micro.run.zephyr import zephyr_base
    from aot.report.measure.verify import verify_on_zephyr

    zephyr_base()
    req = common.request(model, asked.options, target="cortex-m3")  # only for the tensors; the core is not known yet
    like = common.compile_for(req, None)
    sets = asked.sets(req.data, like)
    asked.out.row("import", common.import_text(req))
    how = "building and running" if asked.serial is None else "building, flashing and running"
    with asked.out.working(f"{how} {model.name} with Zephyr on {board}"):
        result, artifact = verify_on_zephyr(
            req.data, board, sets, compile_for=lambda cpu: common.compile_for(replace(req, target=cpu), None), like=like,
            serial=asked.serial, timeout=asked.timeout or None,
        )  # fmt: skip
    show_compiled(asked.out, artifact)
    return result, artifact


def show_compiled(out: Output, artifact: Artifact) -> None:
    """Print the layers, for which core, and the plan."""
    from aot.report.figures.size import operators_of, plan_of

    out.row("compile", f"{operators_of(artifact.metadata)}, for {artifact.metadata['target']['cpu']}")
    out.row("plan", plan_of(artifact.metadata))


def show_verification(out: Output, result: Verification, artifact: Artifact) -> None:
    """Print the figures of a verification."""
    from aot.report.figures.size import LAYER_HEADERS, flash_of, layer_rows, load_text, pushes_text, ram_of, slowest_of, time_of
    from aot.report.measure.divergence import fault_text

    out.rule()
    if not result.reference_independent:
        warning = f"NOT compared with an independent reference: {result.reference}; --require-reference makes this an error"
        out.line(" " + paint(warning, "yellow"))
    verdict = paint("bit-exact", "green") if result.exact else paint("exact, the others DIFFER", "red")
    worst = "" if result.exact else f" by up to {result.max_abs_diff}"
    out.row("outputs", f"{result.sets_exact}/{result.sets} sets {verdict}{worst}, reference: {result.reference}")
    out.row("reference", None if result.known_fault is None else fault_text(result.known_fault))
    out.row("flash", flash_of(artifact.metadata, code_bytes=result.code_bytes, constant_bytes=result.constant_bytes))
    stack = {"stack_bytes": result.stack_bytes, "stack_bound": result.stack_bound}
    out.row("RAM", ram_of(artifact.metadata, touched=result.workspace_extent, **stack))
    if result.poisoned_exact is not None:
        out.row("poison", "outputs unchanged" if result.poisoned_exact else paint("outputs CHANGE: dead memory is read", "red"))
    if result.instructions is not None:
        out.row("time", time_of(result.instructions, result.macs, result.macs_nominal))
    if result.pushes is not None:
        out.row("pushes", pushes_text((result.pushes["average"], result.pushes["most"]), result.sets))
    out.row("load", None if result.load is None else load_text(result.load))
    out.row("slowest", slowest_of(result.layers) or None)
    if result.first_divergence is not None and result.divergence is not None:
        out.row("differs", divergence_text(result.first_divergence))
        show_divergence(out, result.divergence)
    if out.verbose:
        out.table(LAYER_HEADERS, layer_rows(result.layers))


def show_divergence(out: Output, divergence: Mapping[str, Any], *, top: int = 10) -> None:
    """Print the layers that differ, a histogram of the differences, and whether the first layer differs alone."""
    rows = [(x["layer"], does_of(x), x["kernel"], x["count"], x["size"], x["max_abs"]) for x in divergence["layers"]]
    if rows:
        out.table(("layer", "operator", "kernel", "values that differ", "of", "by at most"), rows if out.verbose else rows[:top])
    if divergence.get("inside"):
        why = "layers in branches and loops are not compared: the reference does not expose their tensors"
        out.row("inside", f"{divergence['inside']} {why}")
    if divergence["histogram"]:
        off = ", ".join(f"{h['difference']:+d}: {h['count']:,}" for h in divergence["histogram"])
        out.row("off by", f"{off} (values of all outputs and sets)")
    alone = divergence["one_layer"]
    if alone is not None and alone["model"] is None:
        out.row("alone", f"layer {alone['layer']} cannot be extracted as a model: {alone['why_not']}")
    elif alone is not None:
        words = {True: "differs too", False: "is exact: the fault depends on other layers", None: "cannot be compiled or run"}
        out.row("alone", f"layer {alone['layer']} as a separate model {words[alone['reproduces']]}")


OF_ANY_MODEL = {"oracle", "opt", "kernels", "flash_budget", "ram_budget", "io"}
OF_THE_MODEL = frozenset(f.name for f in fields(CompileOptions)) - OF_ANY_MODEL
"""Options that do not apply to a single layer: they name graphs and tensors of the whole model."""


def reproducer_text(
    divergence: Mapping[str, Any], folder: Path, *, model: Path, board: str, options: CompileOptions
) -> list[str]:
    """The commands that reproduce the mismatch, with all options that differ from their defaults."""
    lines = []
    if divergence["reproducer"] is not None:
        chosen = " ".join(["", *words_of(options, always=())])
        lines.append(
            f"aot verify {quoted(model)} --board {quoted(board)}{chosen} --inputs {quoted(folder / divergence['reproducer'])}"
        )
    alone = divergence["one_layer"]
    if alone is not None and alone["model"] is not None:
        chosen = " ".join(["", *words_of(options, leave_out=OF_THE_MODEL, always=())])
        files = [quoted(folder / alone[key]) for key in ("model", "inputs")]
        lines.append(f"aot verify {files[0]} --board {quoted(board)}{chosen} --inputs {files[1]}")
    return lines


def quoted(text: object) -> str:
    """`text` as one shell word."""
    return shlex.quote(str(text))


def divergence_text(place: object) -> str:
    """One sentence about the first difference."""
    assert isinstance(place, dict)
    values = f"element {place['element']} of {place['size']} is {place['actual']}, the reference has {place['expected']}"
    if "layer" not in place:
        return f"output {place['output']} of set {place['set']}: {values} (every layer agrees with the reference's tensors)"
    ops, word = ", ".join(map(str, place["ops"])), "ops" if len(place["ops"]) > 1 else "op"
    where = f'layer {place["layer"]}, {word} {ops} {does_of(place)} "{place["name"]}", kernel {place["kernel"]}'
    return f"first at {where}, set {place['set']}: {values}"


def conclude(out: Output, result: Verification, *, accept_faults: bool = True) -> None:
    """Print the result as JSON; raise E4001 if outputs differ (unless by a known fault), E4040 if they change with --poison."""
    out.result(result.to_json())
    if not result.exact and not (accept_faults and result.known_fault is not None):
        if not out.json:
            where = divergence_text(result.first_divergence) if result.first_divergence else ""
            bad = f"{result.sets - result.sets_exact} of {result.sets} sets differ from {result.reference}"
            print(Problem("E4001", f"{bad}; {where}", result.model), file=sys.stderr)
        raise typer.Exit(EXIT_VERIFICATION)
    if result.poisoned_exact is False:
        raise VerificationError(Problem("E4040", "the outputs change when dead memory is overwritten", result.model))
