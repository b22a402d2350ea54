"""Compile a model, run it, and compare every byte with a reference; on a mismatch find the first operator that is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from aot.executor.artifact import Artifact
from aot.ir.op import Array
from aot.micro.board import Board
from aot.micro.image import check_image
from aot.micro.project import Project, compiler
from aot.micro.runner import LayerResult, RunResult, run
from aot.micro.toolchain import Tool
from aot.report.compare import Comparison, compare_sets, difference
from aot.report.reference import find_reference, find_tracer
from aot.report.sets import Sets

Progress = Callable[[str, str], None]
"""Told (step, what came of it) as the work goes on."""


def _quiet(step: str, text: str) -> None:
    """The default Progress."""


@dataclass(frozen=True, slots=True)
class Verification:
    """What `verify` found; figures are None where the board cannot tell them (the host counts no instructions).

    `first_divergence` names the first layer, in order of execution, whose output differs from the reference's tensor, or only the
    output that differs where no layer could be compared.
    """

    model: str
    board: str
    oracle: str
    opt: str
    reference: str
    sets: int
    exact: bool
    sets_exact: int
    max_abs_diff: float | None
    first_divergence: Mapping[str, Any] | None
    instructions: int | None
    macs: int
    code_bytes: int | None
    constant_bytes: int
    workspace_bytes: int
    workspace_lower_bound: int
    workspace_touched: int | None
    workspace_extent: int | None
    stack_bytes: int | None
    stack_bound: int | None
    heap_bytes: int | None
    layers: Sequence[Mapping[str, Any]] = field(default_factory=tuple)

    def to_json(self) -> dict[str, Any]:
        """Plain values, in the order of the fields."""
        return asdict(self)


def verify(
    model: bytes,
    artifact: Artifact,
    project: Project,
    sets: Sets,
    *,
    profile: bool = True,
    timeout: float | None = None,
    progress: Progress = _quiet,
) -> Verification:
    """Run `sets` on the project's board and compare with the outputs that the sets bring along, else with the oracle's engine.

    `model` is the .tflite that `artifact` was built from.  Raises ToolchainError when something cannot be built or run,
    VerificationError when the program faults; outputs that differ are a result, not an error.
    """
    meta = artifact.metadata
    expected, by = expected_outputs(model, sets, oracle=meta["oracle"], outputs=len(meta["outputs"]))
    progress("expect", by)
    project.image("measure")
    facts = image_facts(project)
    progress("build", build_text(project.board, facts))
    result = run(project, sets.inputs, timeout=timeout)
    comparison = compare_sets(expected, result.outputs)
    timed = run(project, sets.inputs[:1], mode="profile", timeout=timeout).layers if profile and project.board.tick else ()
    progress("run", run_text(project.board, len(sets)))
    divergence = None
    if not comparison.exact:
        progress("search", "the first operator that differs")
        divergence = first_divergence(model, project, sets, comparison, timeout=timeout)
    return _summary(artifact, project.board, comparison, result, by=by, facts=facts, timed=timed, divergence=divergence)


def expected_outputs(model: bytes, sets: Sets, *, oracle: str, outputs: int) -> tuple[Sequence[Sequence[Array]], str]:
    """What must come out, and who says so."""
    if sets.expected is not None:
        return sets.expected, sets.expected_by
    reference = find_reference(model, oracle, outputs=outputs)
    return reference.outputs(sets.inputs), reference.name


def first_divergence(
    model: bytes, project: Project, sets: Sets, comparison: Comparison, *, timeout: float | None = None
) -> dict[str, Any]:
    """Trace the first set that differs, layer by layer, against the reference's tensors."""
    assert comparison.first is not None
    number, output, diff = comparison.first
    trace = run(project, [sets.inputs[number]], mode="trace", timeout=timeout).layers
    tracer = find_tracer(model, project.artifact.metadata["oracle"])
    assert tracer.tensors is not None
    tensors = tracer.tensors(sets.inputs[number])
    found = compare_layers(project.artifact.metadata["layers"], trace, tensors)
    if found is None:
        return {"set": number, "output": output, **asdict(diff)}
    return {"set": number, "reference": tracer.name, **found}


def compare_layers(
    layers: Sequence[Mapping[str, Any]], trace: Sequence[LayerResult], tensors: Mapping[int, Array]
) -> dict[str, Any] | None:
    """The first layer of a trace whose output is not the reference's tensor; layers without a counterpart are passed over."""
    by_index = {layer["index"]: layer for layer in layers}
    for step in trace:
        layer = by_index[step.index]
        tensor = layer["output"].get("tensor", -1)
        wanted = _kept(tensors.get(tensor), layer["output"].get("channels"))
        if wanted is None or step.output is None or (wanted.size, wanted.dtype) != (step.output.size, step.output.dtype):
            continue
        diff = difference(wanted, step.output)
        if diff is not None:
            place = {
                "layer": step.index,
                "op": layer["op"],
                "ops": list(layer["ops"]),
                "name": layer["name"],
                "kernel": layer["kernel"],
            }
            return {**place, "tensor": tensor, **asdict(diff)}
    return None


def _kept(tensor: Array | None, channels: Sequence[int] | None) -> Array | None:
    """What the compiled model computes of a reference's tensor: some indices of its last axis, or all of them."""
    if tensor is None or not channels or tensor.ndim == 0 or max(channels) >= tensor.shape[-1]:
        return tensor
    part: Array = tensor[..., list(channels)]
    return part


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """Bytes of the model's own image (kernels, main function, what they use of the runtime); None on the host."""

    compiler: str
    code_bytes: int | None = None
    constant_bytes: int | None = None
    stack_bound: int | None = None
    heap_bytes: int | None = None


def short_version(tool: Tool) -> str:
    """`arm-none-eabi-gcc 12.2.1`: the number after the packager's remarks in parentheses."""
    number = re.search(r"\d+(\.\d+)+", re.sub(r"\(.*?\)", "", tool.version))
    return f"{tool.name} {number.group() if number else tool.version}"


def image_facts(project: Project) -> ImageFacts:
    """Link the model without harness and start-up, measure it, and check that it holds nothing forbidden (E4030)."""
    tool = short_version(compiler(project.board))
    if project.board.is_host:
        return ImageFacts(tool)
    report = check_image(project)
    return ImageFacts(tool, report.code, report.constants, report.stack_bound, 0)


def build_text(board: Board, facts: ImageFacts) -> str:
    return f"{facts.compiler} for {board.cpu}"


def run_text(board: Board, sets: int) -> str:
    """How a verification ran, for the summary."""
    how = "native program" if board.is_host else f"QEMU {board.machine}, exact instruction count"
    return f"{how}, {sets} sets"


def _summary(
    artifact: Artifact,
    board: Board,
    comparison: Comparison,
    result: RunResult,
    *,
    by: str,
    facts: ImageFacts,
    timed: Sequence[LayerResult],
    divergence: Mapping[str, Any] | None,
) -> Verification:
    meta = artifact.metadata
    instructions = {layer.index: layer.instructions for layer in timed}
    return Verification(
        model=artifact.name,
        board=board.name,
        oracle=meta["oracle"],
        opt=meta["opt"],
        reference=by,
        sets=comparison.sets,
        exact=comparison.exact,
        sets_exact=comparison.sets - len(comparison.bad_sets),
        max_abs_diff=comparison.max_abs,
        first_divergence=divergence,
        instructions=result.instructions,
        macs=meta["macs"],
        code_bytes=facts.code_bytes,
        constant_bytes=meta["constants"]["size"] if facts.constant_bytes is None else facts.constant_bytes,
        workspace_bytes=meta["workspace"]["size"],
        workspace_lower_bound=meta["workspace"]["lower_bound"],
        workspace_touched=result.workspace_touched,
        workspace_extent=result.workspace_extent,
        stack_bytes=result.stack_bytes,
        stack_bound=facts.stack_bound,
        heap_bytes=facts.heap_bytes,
        layers=[{**layer, "instructions": instructions.get(layer["index"])} for layer in meta["layers"]],
    )
