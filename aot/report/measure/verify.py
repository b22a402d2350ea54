"""Compile a model, run it, and compare every byte with a reference; on a mismatch find the first wrong operator."""

from __future__ import annotations

import json
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, field, replace
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from aot.errors import Problem, UsageError
from aot.executor.artifact import Artifact
from aot.ir.op import Array
from aot.micro.board import Board, load_board
from aot.micro.build.image import check_image
from aot.micro.build.project import Project, compiler
from aot.micro.build.toolchain import find_tool, short_version
from aot.micro.run.runner import LayerResult, RunResult, run
from aot.micro.run.zephyr import PREFIX, run_on_serial, run_on_zephyr
from aot.report.figures.size import LAYER_HEADERS, layer_rows, load_of, state_figures
from aot.report.measure.divergence import Comparison, compare_sets, explain, with_zeros
from aot.report.measure.inputs import Sets, as_windows, moves
from aot.report.measure.reference import OWN, find_reference, never_runs, own_interpreter
from aot.support.dataclass import dataclass
from aot.support.notebook import section, table

SCHEMA = "aot-verify/1"

Progress = Callable[[str, str], None]
"""Called with (step, result) during the work."""


@dataclass(frozen=True, slots=True, repr=False)
class Verification:
    """The result of `verify`; figures are None if the board cannot measure them (the host counts no instructions).

    `first_divergence` names the first layer, in order of execution, whose output differs from the reference's tensor, or only the
    output that differs if no layer could be compared; `divergence` has all differences, as in a report.  `known_fault`: the entry
    of `KNOWN_FAULTS` that explains all differences, and which engine agrees with us.  `pushes`: for a model with a moving window,
    the instructions of a run on `average` and at `most`, over all sets; `load`: for a chain, its load (`load_of`)."""

    model: str
    board: str
    oracle: str
    opt: str
    reference: str
    reference_independent: bool
    sets: int
    exact: bool
    sets_exact: int
    max_abs_diff: float | None
    first_divergence: Mapping[str, Any] | None
    divergence: Mapping[str, Any] | None
    fingerprint: Mapping[str, Any]
    instructions: int | None
    macs: int
    macs_nominal: int | None
    code_bytes: int | None
    constant_bytes: int
    workspace_bytes: int
    workspace_liveness_bound: int
    workspace_streaming_bound: int | None
    workspace_optimal: bool
    workspace_touched: int | None
    workspace_extent: int | None
    stack_bytes: int | None
    stack_bound: int | None
    heap_bytes: int | None
    poisoned_exact: bool | None = None
    known_fault: Mapping[str, Any] | None = None
    cycles: int | None = None
    clock_hz: int | None = None
    state: Mapping[str, Any] | None = None
    pushes: Mapping[str, int] | None = None
    load: Mapping[str, Any] | None = None
    layers: Sequence[Mapping[str, Any]] = field(default_factory=tuple)

    def __repr__(self) -> str:
        return f"Verification({self.model} on {self.board}: {', '.join(self._words())})"

    def _words(self) -> list[str]:
        counters = (("instructions", self.instructions), ("cycles", self.cycles))
        memory = (("code", self.code_bytes), ("constants", self.constant_bytes), ("workspace", self.workspace_bytes),
                  ("stack", self.stack_bytes))  # fmt: skip
        return [
            f"{self.sets_exact}/{self.sets} sets bit-exact",
            *(f"{n:,} {word}" for word, n in counters if n is not None),
            *(f"{word} {n:,} B" for word, n in memory if n is not None),
        ]

    def _repr_html_(self) -> str:
        """A notebook's view: the verdict, the figures, and the instructions of each layer if they were counted."""
        lines = f"<p>{', '.join(self._words())}</p><p>Reference: {escape(self.reference)}</p>"
        rows = layer_rows(self.layers)
        return section(f"{self.model} on {self.board}", lines, table(LAYER_HEADERS, rows, left=3) if rows else "")

    def to_json(self) -> dict[str, Any]:
        """Plain values, in the order of the fields, in the form of schema/aot-verify-1.schema.json."""
        return {"schema": SCHEMA, **asdict(self)}


def verify(
    model: bytes, artifact: Artifact, project: Project, sets: Sets, *, profile: bool = True, poison: bool = False,
    timeout: float | None = None, folder: Path | None = None, clock: int | None = None,
    progress: Progress = lambda _step, _result: None,
) -> Verification:  # fmt: skip
    """Run `sets` on the project's board and compare with the expected outputs of the sets, else with the oracle's engine.

    `model` is the .tflite that `artifact` was built from.  Raises ToolchainError if something cannot be built or run,
    VerificationError if the program faults; outputs that differ are a result, not an error, and files that reproduce them are
    written to `folder`, if given.  `poison` adds a run in which all dead bytes of the workspace change after every layer: its
    outputs must equal the plain run's.  `clock` in hertz is for the load of a chain.
    """
    meta = artifact.metadata
    expected, by = expected_outputs(model, as_windows(sets, meta), oracle=meta["oracle"], outputs=len(meta["outputs"]))
    progress("expect", by)
    project.image("measure")
    facts = image_facts(project)
    progress("build", f"{facts.compiler} for {project.board.cpu}")
    result = run(project, sets.inputs, timeout=timeout)
    comparison = compare_sets(expected, result.outputs)
    timed = run(project, sets.inputs[:1], mode="profile", timeout=timeout).layers if profile and project.board.tick else ()
    progress("run", run_text(project.board, len(sets)))
    found: dict[str, Any] = {"load": load_of(meta, result.every, clock)}
    if poison:
        again = run(project, sets.inputs, mode="poison", timeout=timeout).outputs
        found["poisoned_exact"] = compare_sets(result.outputs, again).exact
    if not comparison.exact and not moves(meta):  # with moving windows, layers compute only some rows
        progress("search", "the first operator that differs")
        found |= explain(
            model, project, sets, comparison, expected=expected, actual=result.outputs, timeout=timeout, folder=folder
        )
    print_ = fingerprint(project, sets, result.outputs)
    checked = summary(artifact, project.board, comparison, result, by=by, facts=facts, timed=timed, fingerprint=print_)
    return replace(checked, **found)


def expected_outputs(model: bytes, sets: Sets, *, oracle: str, outputs: int) -> tuple[Sequence[Sequence[Array]], str]:
    """The expected outputs, with zeros for what an operator leaves undefined, and the name of their source.

    A reference that fails for all inputs is replaced by our own interpreter.  E4010 if it refuses only these inputs.
    """
    if sets.expected is not None:
        return with_zeros(model, sets.expected), sets.expected_by
    reference = find_reference(model, oracle, outputs=outputs)
    try:
        return with_zeros(model, reference.outputs(sets.inputs)), reference.name
    except RuntimeError as error:  # what the engines raise when a kernel fails, such as DIV for a divisor of 0
        why = f"{reference.engine} {error}"
        if not never_runs(reference, sets.inputs[0]):
            message = f"{why} with these inputs ({sets.origin}); choose others with --inputs"
            raise UsageError(Problem("E4010", message)) from None
    interpreter = own_interpreter(model, oracle, why)
    return with_zeros(model, interpreter.outputs(sets.inputs)), interpreter.name


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """Bytes of the model's own image (kernels, main function, and the runtime functions they use); None on the host."""

    compiler: str
    code_bytes: int | None = None
    constant_bytes: int | None = None
    stack_bound: int | None = None
    heap_bytes: int | None = None


def image_facts(project: Project) -> ImageFacts:
    """Link the model without harness and start-up, measure it, and check that it contains nothing forbidden (E4030)."""
    tool = short_version(compiler(project.board))
    if project.board.is_host:
        return ImageFacts(tool)
    report = check_image(project)
    return ImageFacts(tool, report.code, report.constants, report.stack_bound, 0)


def run_text(board: Board, sets: int) -> str:
    """How a verification ran, for the summary."""
    if board.gdb is not None:
        how = f"GDB server {board.gdb.server[0] if board.gdb.server else board.gdb.connect}"
    else:
        how = "native program" if board.is_host else f"QEMU {board.machine}, exact instruction count"
    return f"{how}, {sets} sets"


def summary(
    artifact: Artifact, board: Board, comparison: Comparison, result: RunResult, *, by: str, facts: ImageFacts,
    timed: Sequence[LayerResult], fingerprint: Mapping[str, Any],
) -> Verification:  # fmt: skip
    """The result of a run, without the search for differences."""
    meta = artifact.metadata
    instructions = {layer.index: layer.instructions for layer in timed}
    cycles = {layer.index: layer.cycles for layer in timed if layer.cycles is not None}
    return Verification(
        model=artifact.name,
        board=board.name,
        oracle=meta["oracle"],
        opt=meta["opt"],
        reference=by,
        reference_independent=not by.startswith(f"{OWN}, as "),
        sets=comparison.sets,
        exact=comparison.exact,
        sets_exact=comparison.sets - len(comparison.bad_sets),
        max_abs_diff=comparison.max_abs,
        first_divergence=None,
        divergence=None,
        fingerprint=fingerprint,
        instructions=result.instructions,
        cycles=result.cycles,
        clock_hz=board.gdb.hz if board.gdb is not None and result.cycles is not None and board.gdb.hz else None,
        macs=meta["macs"],
        macs_nominal=meta["macs_nominal"],
        code_bytes=facts.code_bytes,
        constant_bytes=meta["constants"]["size"] if facts.constant_bytes is None else facts.constant_bytes,
        workspace_bytes=meta["workspace"]["size"],
        workspace_liveness_bound=meta["workspace"]["liveness_bound"],
        workspace_streaming_bound=meta["workspace"]["streaming_bound"],
        workspace_optimal=meta["workspace"]["optimal"],
        workspace_touched=result.workspace_touched,
        workspace_extent=result.workspace_extent,
        stack_bytes=result.stack_bytes,
        stack_bound=facts.stack_bound,
        heap_bytes=facts.heap_bytes,
        state=state_figures(meta),
        pushes={"average": result.every[0], "most": result.every[1]} if result.every and moves(meta) else None,
        layers=[
            {**layer, "instructions": instructions.get(layer["index"])} | ({"cycles": cycles[layer["index"]]} if cycles else {})
            for layer in meta["layers"]
        ],
    )


# ---- everything that the figures of a run depend on, as data, so that two runs can be compared


def crc_of(sets: Sequence[Sequence[Array]]) -> str:
    """CRC-32 of all arrays' bytes, little-endian, in the order of sets and tensors."""
    value = 0
    for arrays in sets:
        for array in arrays:
            value = zlib.crc32(np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False)).tobytes(), value)
    return f"{value:08x}"


def fingerprint(project: Project, sets: Sets, outputs: Sequence[Sequence[Array]]) -> dict[str, Any]:
    """Tool, model, options, compiler, flags, emulator and inputs; and the checksum of the outputs.

    In the form that reading it from a file gives (lists, no tuples), so that it compares equal.
    """
    name = project.artifact.name
    tools = {
        "compiler": compiler(project.board).version,
        "flags": {"kernels": project.flags(f"{name}_kernels.c"), "main": project.flags(f"{name}.c")},
        "emulator": find_tool("qemu-system-arm").version if project.board.machine else None,
    }
    return _fingerprint(project.artifact.metadata, project.board.name, tools, sets, outputs)


def _fingerprint(
    meta: Mapping[str, Any], board: str, tools: Mapping[str, Any], sets: Sets, outputs: Sequence[Sequence[Array]]
) -> dict[str, Any]:  # fmt: skip
    return {
        "tool": f"{meta['tool']['name']} {meta['tool']['version']}",
        "model": dict(meta["model"]),
        "board": board,
        "options": json.loads(json.dumps({k: meta[k] for k in ("oracle", "opt", "io")} | dict(meta["options"]))),
        **tools,
        "inputs": {"origin": sets.origin, "sets": len(sets), "crc32": crc_of(sets.inputs)},
        "outputs": {"crc32": crc_of(outputs)},
    }


# ---- `aot verify --board zephyr:BOARD`: the outputs of a model in a Zephyr application against the reference
# Instruction count, stack and workspace painting need our own start-up code: those figures are None here.


def verify_on_zephyr(
    model: bytes, board: str, sets: Sets, *, compile_for: Callable[[str], Artifact], like: Artifact, serial: str | None = None,
    timeout: float | None = None,
) -> tuple[Verification, Artifact]:  # fmt: skip
    """Run `sets` on Zephyr's `board` (without the prefix) and compare; the artifact is compiled for the board's core.

    `like` is the model compiled for any core, for its tensors.  `serial` is the port of a connected board; without it, the board
    is emulated.  Raises what aot.micro.run.zephyr.run_on_zephyr and aot.micro.run.zephyr.run_on_serial do."""
    oracle = like.metadata["oracle"]
    expected, by = expected_outputs(model, as_windows(sets, like.metadata), oracle=oracle, outputs=len(like.metadata["outputs"]))
    with tempfile.TemporaryDirectory(prefix="aot-zephyr-") as folder:
        start = run_on_zephyr if serial is None else partial(run_on_serial, port=serial)
        done = start(board, sets.inputs, metadata=like.metadata, compile_for=compile_for, folder=Path(folder), timeout=timeout)
    comparison, name = compare_sets(expected, done.outputs), PREFIX + board
    tools = {"compiler": done.tool, "flags": {"kernels": ["-O2"], "main": []}, "emulator": done.tool}  # Zephyr's version
    verification = summary(
        done.artifact, replace(load_board("host"), name=name), comparison, RunResult(done.outputs, None, None, None, None),
        by=by, facts=ImageFacts(done.tool), timed=(),
        fingerprint=_fingerprint(done.artifact.metadata, name, tools, sets, done.outputs),
    )  # fmt: skip
    if comparison.first is not None:
        number, output, difference = comparison.first
        verification = replace(verification, first_divergence={"set": number, "output": output, **asdict(difference)})
    return verification, done.artifact
