"""Runs input sets on a board and reads back the outputs and the costs."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from aot.errors import Problem, ToolchainError, UsageError
from aot.micro.board import Board
from aot.micro.build.project import Project
from aot.micro.run import gdb, qemu
from aot.micro.run.qemu import Report
from aot.support.dataclass import dataclass

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class LayerResult:
    """One layer of a profile (`instructions`, or `cycles` of the core's counter) or of a trace (`output`, for set 0)."""

    index: int
    instructions: int | None = None
    output: Array | None = None
    cycles: int | None = None


@dataclass(frozen=True, slots=True)
class RunResult:
    """The outputs of every set, and the cost of the second inference of set 0 (None if the board cannot measure it).

    `outputs[set][i]` has the shape and dtype of output i.  `instructions`: executed by <name>_run, exact.  `cycles`: from the
    core's counter, if the board has one.  `stack_bytes`: measured depth below the caller.  `workspace_touched`: bytes written;
    `workspace_extent`: from the first to the last of these.  `every`: instructions of all sets, average and maximum; runs differ
    if the model has a state.
    """

    outputs: list[list[Array]]
    instructions: int | None
    stack_bytes: int | None
    workspace_touched: int | None
    workspace_extent: int | None
    layers: tuple[LayerResult, ...] = ()
    cycles: int | None = None
    every: tuple[int, int] | None = None


def run(
    project: Project, input_sets: Sequence[Sequence[Array]], *, mode: str = "measure", timeout: float | None = None
) -> RunResult:
    """Run all `input_sets` (arrays of the inputs' dtypes and sizes, in their order) on the project's board.

    `mode`: "measure"; "profile" adds instructions per layer; "trace" runs set 0 only and adds every layer's output; "poison"
    overwrites memory that is dead by the plan after each layer, and measures nothing.  `timeout` in seconds (None: the board's).

    Raises UsageError E5022 (inputs do not match the model) and E5024 (the board counts incorrectly), and the errors of
    aot.micro.run.qemu.
    """
    meta = project.artifact.metadata
    data = b"".join(b"".join(encode_inputs(meta["inputs"], arrays, number)) for number, arrays in enumerate(input_sets))
    if not input_sets:
        raise UsageError(Problem("E5022", "no input set was given"))
    elf = project.image(mode)
    with tempfile.TemporaryDirectory(prefix="aot-run-") as name:
        folder = Path(name)
        (folder / "inputs.bin").write_bytes(data)
        start = qemu.execute if project.board.gdb is None else gdb.execute
        done = start(project.board, elf, cwd=folder, timeout=project.board.timeout if timeout is None else timeout)
        result = qemu.result_of(project.board, elf, done)
        expected = 1 if mode == "trace" else len(input_sets)
        if result.sets != expected:
            raise ToolchainError(Problem("E3011", f"{result.sets} sets were run instead of {expected}"))
        size = sum(int(o["size"]) for o in meta["outputs"])
        outputs = decode_outputs(meta["outputs"], _bytes(folder / "outputs.bin", size * expected), expected)
        trace = _read_trace(meta["layers"], _bytes(folder / "trace.bin", MOST_TRACE)) if mode == "trace" else ()
    return _result(project, result, outputs, trace)


MOST_TRACE = 1 << 28
"""Maximum size of the trace: the outputs of all layers, in bytes."""


def _bytes(path: Path, most: int) -> bytes:
    try:
        size = path.stat().st_size
        if size > most:
            raise ToolchainError(Problem("E3011", f"{path.name} has {size:,} bytes, not {most:,}"))
        return path.read_bytes()
    except OSError:
        raise ToolchainError(Problem("E3011", f"the run reported success, but left no {path.name}")) from None


def _result(project: Project, report: Report, outputs: list[list[Array]], trace: tuple[LayerResult, ...]) -> RunResult:
    tick = project.board.tick
    cycles = project.board.counts_cycles
    counted = _count(report.units, tick) if tick is not None and report.units is not None else None
    if tick is not None and report.loop is not None:
        if cycles:
            _check_counter(project.board, report.loop)
        else:
            _check_tick(project.board, tick, report.loop)
    layers = trace
    if tick is not None and report.layers is not None:
        indices = [layer["index"] for layer in project.artifact.metadata["layers"]]
        if len(indices) != len(report.layers):
            raise ToolchainError(Problem("E3011", f"{len(report.layers)} layers reported instead of {len(indices)}"))
        counts = [_count(u, tick) for u in report.layers]
        layers = tuple(
            LayerResult(i, cycles=n) if cycles else LayerResult(i, instructions=n) for i, n in zip(indices, counts, strict=True)
        )
    measured = not project.board.is_host
    return RunResult(
        outputs=outputs,
        instructions=None if cycles else counted,
        cycles=counted if cycles else None,
        stack_bytes=report.stack if measured else None,
        workspace_touched=report.touched,
        workspace_extent=report.extent,
        layers=layers,
        every=None if cycles or counted is None else _every(report, tick),
    )


def _every(report: Report, tick: Fraction | None) -> tuple[int, int] | None:
    """Instructions of all sets: the average and the maximum."""
    if tick is None or report.all is None or report.most is None:
        return None
    return _count(report.all // report.sets, tick), _count(report.most, tick)


CHECK_INSTRUCTIONS = 200_000
"""AOT_CHECK_INSTRUCTIONS of crt/include/aot/systick.h"""
_CHECK_EXTRA = 16
"""Upper bound of the instructions around the loop that the counter may include."""


def _check_counter(board: Board, cycles: int) -> None:
    """Raise UsageError E5024 if the core's counter does not run, or counts fewer cycles for a loop than is possible."""
    if cycles < CHECK_INSTRUCTIONS // 2:
        assert board.gdb is not None
        why = (
            "so the board does not have this counter"
            if not cycles
            else "more than two instructions per cycle, so it does not count the core's cycles"
        )
        other = 'counter = "systick", or ' if board.gdb.counter == "dwt" and not cycles else ""
        message = f"counter {board.gdb.counter}: a loop of {CHECK_INSTRUCTIONS:,} instructions took {cycles:,} cycles, {why}"
        advice = f"use {other}no [cycles] for an emulator, which has no cycles to count"
        raise UsageError(Problem("E5024", f"{message}; {advice}", f"{board.name}/board.toml [cycles]"))


def _check_tick(board: Board, tick: Fraction, units: int) -> None:
    """Raise UsageError E5024 if a loop of known length was counted incorrectly, as the model would be."""
    counted = Fraction(units, tick.denominator)
    if abs(counted - CHECK_INSTRUCTIONS) <= _CHECK_EXTRA:
        return
    advice = ""
    if counted:
        correct = (tick * CHECK_INSTRUCTIONS / counted).limit_denominator(64)
        advice = f"; use [{correct.numerator}, {correct.denominator}]"
    setting = f"instructions_per_tick = [{tick.numerator}, {tick.denominator}]"
    message = f"{setting} is wrong: a loop of {CHECK_INSTRUCTIONS:,} instructions was counted as {int(counted):,}{advice}"
    raise UsageError(Problem("E5024", message, f"{board.name}/board.toml [systick]"))


def _count(units: int, tick: Fraction) -> int:
    """Instructions from the counter's units of 1/denominator."""
    return units // tick.denominator


def encode_inputs(inputs: Sequence[Mapping[str, Any]], arrays: Sequence[Array], number: int) -> list[bytes]:
    """The bytes of each input of set `number`, little-endian (UsageError E5022 for other sizes or types than the model's)."""
    if len(arrays) != len(inputs):
        raise UsageError(Problem("E5022", f"set {number} has {len(arrays)} arrays, but the model has {len(inputs)} inputs"))
    parts = []
    for info, array in zip(inputs, arrays, strict=True):
        dtype = np.dtype(info["dtype"])
        if array.dtype != dtype or array.nbytes != info["size"]:
            message = f"set {number}: got {array.dtype}{list(array.shape)}, expected {dtype}{list(info['shape'])}"
            raise UsageError(Problem("E5022", message, f'input {info["index"]} "{info["name"]}"'))
        parts.append(np.ascontiguousarray(array).astype(dtype.newbyteorder("<"), copy=False).tobytes())
    return parts


def decode_outputs(outputs: Sequence[Mapping[str, Any]], data: bytes, sets: int) -> list[list[Array]]:
    """The outputs of `sets` runs from their concatenated bytes (ToolchainError E3011 for too few or too many)."""
    size = sum(int(o["size"]) for o in outputs)
    if len(data) != size * sets:
        raise ToolchainError(Problem("E3011", f"the outputs have {len(data)} bytes instead of {size * sets}"))
    result, at = [], 0
    for _ in range(sets):
        arrays = []
        for info in outputs:
            arrays.append(_array(info, data[at : at + int(info["size"])]))
            at += int(info["size"])
        result.append(arrays)
    return result


def _array(info: Mapping[str, Any], data: bytes) -> Array:
    dtype = np.dtype(info["dtype"])
    return np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype).reshape(info["shape"])


def _read_trace(layers: Sequence[Mapping[str, Any]], data: bytes) -> tuple[LayerResult, ...]:
    """Records of trace.bin: layer (int32), bytes (uint32), then the bytes."""
    outputs = {layer["index"]: layer["output"] for layer in layers}
    results, at = [], 0
    while at < len(data):
        try:
            index, size = struct.unpack_from("<iI", data, at)
            results.append(LayerResult(index, output=_array(outputs[index], data[at + 8 : at + 8 + size])))
        except (struct.error, KeyError, ValueError):
            raise ToolchainError(Problem("E3011", f"trace.bin is malformed at byte {at}")) from None
        at += 8 + size
    return tuple(results)
