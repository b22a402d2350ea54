"""One model on one board as a report: the verdict, what it depends on, and every byte and instruction with its owner.

A report is plain data in the form of schema/aot-report-3.schema.json.  It contains no time, no path and no figure of the host
machine: the same model, options and tools give the same bytes.
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from aot.driver.reading import NamedBytes
from aot.errors import AotError, Problem, ToolchainError, UsageError, internal
from aot.executor.artifact import Artifact
from aot.ir.op import Array
from aot.micro.board import Board, emulated
from aot.micro.build.image import ImageReport, check_image, copied_constants
from aot.micro.build.project import Project, prepare
from aot.micro.run.runner import RunResult, run
from aot.report.figures.attribution import attribute, berkeley, by_layer, group_sizes, sections_of, variables
from aot.report.figures.cycles import Profile, listings, profile_cycles
from aot.report.figures.size import load_of, next_faster, plan_data, state_figures
from aot.report.measure.divergence import compare_sets, explain
from aot.report.measure.inputs import Sets, as_windows, moves
from aot.report.measure.verify import expected_outputs, fingerprint
from aot.support.dataclass import dataclass
from aot.support.text import does_of, printable
from aot.system.executors import Opener, outcomes
from aot.version import __version__

SCHEMA = "aot-report/3"

Report = Mapping[str, Any]
"""A report of one model on one board."""

EXTRAS = "extras"
"""The key of the data for the page only (aot.report.figures.cycles, aot.report.measure.fitting); `bundle` leaves it out."""


def make_report(
    model: bytes, artifact: Artifact, project: Project, sets: Sets, *, accept_known_faults: bool = True,
    timeout: float | None = None, folder: Path | None = None, on_target: OnTarget | None = None, clock: int | None = None,
) -> Report:  # fmt: skip
    """Build, run `sets`, compare, attribute.  Raises what `verify` raises; outputs that differ are a verdict, not an error.

    `on_target`: cycles counted by the user's firmware; they replace the board's own counts.  `clock` in hertz is for the load of
    a chain.

    The verdict is accepted if the outputs are equal, or differ only because of a known fault of the reference (unless
    `accept_known_faults` is False).  If they differ, files that reproduce it are written to `folder`, if given.
    """
    meta = artifact.metadata
    expected, by = expected_outputs(model, as_windows(sets, meta), oracle=meta["oracle"], outputs=len(meta["outputs"]))
    image = None if project.board.is_host else check_image(project)
    result = run(project, sets.inputs, timeout=timeout)
    comparison = compare_sets(expected, result.outputs)
    flash = None if image is None else _contents(project, project.model_image(), product=True)
    ram = _ram(project, result, image)
    spent = _spent(project, flash, sets.inputs[:1], timeout=timeout)
    if on_target is not None:
        spent = replace(spent, cycles=dict(enumerate(on_target.cycles)))
    counted = _counted(project.board, result, on_target)
    pushes: dict[str, Any] = {}
    if moves(meta) and result.every is not None:  # instructions per push over all sets; for a chain with a rate, also its load
        load = load_of(meta, result.every, clock)
        pushes = {"pushes": {"average": result.every[0], "most": result.every[1]}, **({} if load is None else {"load": load})}
    verdict = {
        "exact": comparison.exact,
        "accepted": comparison.exact,
        "reference": by,
        "sets": comparison.sets,
        "sets_exact": comparison.sets - len(comparison.bad_sets),
        "max_abs_diff": comparison.max_abs,
        **dict.fromkeys(("first_divergence", "divergence", "known_fault")),
    }
    if not comparison.exact and not moves(meta):  # with moving windows, layers compute only some rows
        verdict |= explain(
            model, project, sets, comparison, expected=expected, actual=result.outputs, timeout=timeout, folder=folder
        )
        verdict["accepted"] = accept_known_faults and verdict["known_fault"] is not None
    return {
        "name": artifact.name,
        "board": project.board.name,
        "cpu": project.board.cpu,
        "verdict": verdict,
        "fingerprint": fingerprint(project, sets, result.outputs),
        "totals": _totals(meta, result, image=image, ram=ram) | _time(result, spent, counted, on_target),
        **({"board_fit": meta["board_fit"]} if "board_fit" in meta else {}),
        **({} if counted is None else {"counted": counted}),
        **pushes,
        "flash": flash,
        "firmware": None if image is None else _contents(project, project.image("measure")),
        "ram": ram,
        "memory": [] if image is None else _memory(project),
        "layers": _layers(meta, spent, flash),
        "plan": plan_data(meta["workspace"], meta["layers"]),
        "state": state_figures(meta),
        EXTRAS: listings(model, project, spent.estimates),
    }


def bundle(reports: Sequence[Report], failures: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """The content of report.json: reports and failures, each by model and board."""
    return {
        "schema": SCHEMA,
        "reports": sorted(({k: v for k, v in r.items() if k != EXTRAS} for r in reports), key=lambda r: (r["name"], r["board"])),
        "failures": sorted(failures, key=lambda f: (f["model"], f["board"])),
    }


def to_text(data: Mapping[str, Any]) -> str:
    """Plain data as the text of a .json file."""
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def key_of(report: Report) -> str:
    """`kws@mps2-an386`: identifies a report in baselines and budgets."""
    return f"{report['name']}@{report['board']}"


def _contents(project: Project, elf: Path, *, product: bool = False) -> dict[str, Any]:
    """What is in the flash of an image: of a `product`, which is the model's own, or of the one that runs, with its harness."""
    symbols = attribute(project, elf)
    groups = group_sizes(symbols)
    if product:
        del groups["startup"]
    layers = by_layer(symbols, project.artifact.metadata["layers"])
    return {
        "bytes": sum(s.bytes for s in symbols),
        "groups": groups,
        **({"layers": layers, "symbols": [s.to_json() for s in symbols]} if product else {}),
        "size": berkeley(sections_of(elf)),
    }


def _memory(project: Project) -> list[dict[str, Any]]:
    """The board's regions that the model's image uses, including the reserved stack, without start-up and harness."""
    sections = sections_of(project.model_image())
    copied = sum(copied_constants(project.model_image(), project.board).values())
    rows = []
    for region in project.board.memory:
        inside = [s for s in sections if region.origin <= s.address < region.origin + region.size]
        used = sum(s.size for s in inside)
        if region.name == project.board.code:  # initial values of variables and copied constants follow the code
            used += copied + sum(s.size for s in sections if s.in_flash and s.writable and s not in inside)
        if used:
            rows.append({"region": region.name, "size": region.size, "used": used, "sections": [s.name for s in inside]})
    return rows


def _ram(project: Project, result: RunResult, image: ImageReport | None) -> dict[str, Any]:
    workspace = project.artifact.metadata["workspace"]
    used = {"state": 0, "runtime": 0} if image is None else variables(project, image)
    copied = 0 if image is None else sum(image.copied.values())
    return {
        "bytes": None if image is None else image.ram + image.stack_bound,
        "workspace": {
            "region": None if project.places is None else project.places.workspace,
            "bytes": workspace["size"],
            "liveness_bound": workspace["liveness_bound"],
            "touched": result.workspace_touched,
            "extent": result.workspace_extent,
        },
        **used,
        **({"copied": copied} if copied else {}),
        "stack": {
            "measured": result.stack_bytes,
            "bound": None if image is None else image.stack_bound,
            "path": [] if image is None else list(image.stack_path),
        },
        "heap": 0 if image is not None else None,
    }


def _totals(
    meta: Mapping[str, Any], result: RunResult, *, image: ImageReport | None, ram: Mapping[str, Any]
) -> dict[str, int | None]:
    """The figures for budgets and baselines, flash as in `aot verify`; None if the board cannot measure a figure."""
    return {
        "instructions": result.instructions,
        "macs": meta["macs"],
        "macs_nominal": meta["macs_nominal"],
        "flash": None if image is None else image.flash,
        "code": None if image is None else image.flash - image.constants,
        "constants": meta["constants"]["size"] if image is None else image.constants,
        "ram": ram["bytes"],
        "workspace": ram["workspace"]["bytes"],
        "stack": ram["stack"]["measured"],
        "stack_bound": ram["stack"]["bound"],
        "heap": ram["heap"],
    }


@dataclass(frozen=True, slots=True)
class _Spent:
    """Cost of each layer, by index: instructions, cycles of the board's own counter, and estimated cycles.

    `total`: instructions of a run, if a twin of the board counted them.
    """

    instructions: Mapping[int, int | None]
    cycles: Mapping[int, int | None]
    estimates: Profile | None
    total: int | None = None


def _spent(
    project: Project, flash: Mapping[str, Any] | None, sets: Sequence[Sequence[Array]], *, timeout: float | None
) -> _Spent:
    """A profile of the board, and of its QEMU twin (`qemu:BOARD`) if the board counts cycles."""
    board = project.board
    timed = run(project, sets, mode="profile", timeout=timeout).layers if board.tick else ()
    cycles = {layer.index: layer.cycles for layer in timed} if board.counts_cycles else {}
    if board.like is not None and cycles:
        twin = prepare(project.artifact, emulated(board))
        counted = run(twin, sets, mode="profile", timeout=timeout)
        estimates = None if flash is None else _cycles(twin, flash, sets[0], timeout=timeout)
        return _Spent({x.index: x.instructions for x in counted.layers}, cycles, estimates, counted.instructions)
    estimates = None if flash is None or not board.machine else _cycles(project, flash, sets[0], timeout=timeout)
    return _Spent({layer.index: layer.instructions for layer in timed}, cycles, estimates)


def _counted(board: Board, result: RunResult, on_target: OnTarget | None) -> dict[str, Any] | None:
    """The conditions under which cycles were counted; None if none were."""
    if on_target is not None:
        return {"by": "firmware", "runs": on_target.runs, "clock_hz": on_target.hz or None, "wait_states": None, "caches": None}
    if result.cycles is None or board.gdb is None:
        return None
    waits = board.gdb.wait_states
    conditions = {"clock_hz": board.gdb.hz or None, "wait_states": waits if waits >= 0 else None, "caches": list(board.caches)}
    return {"by": "board", "runs": 1, **conditions}


def _time(
    result: RunResult, spent: _Spent, counted: Mapping[str, Any] | None, on_target: OnTarget | None
) -> dict[str, int | None]:
    """Totals of time; `cycles` and `clock_hz` only if a core's own counter counted cycles."""
    estimated: dict[str, int | None] = {"estimated_cycles": None if spent.estimates is None else spent.estimates.total}
    if counted is None:
        return estimated
    if on_target is not None:
        return {**estimated, "cycles": on_target.total, "clock_hz": counted["clock_hz"]}
    return {"instructions": spent.total, **estimated, "cycles": result.cycles, "clock_hz": counted["clock_hz"]}


def _cycles(project: Project, flash: Mapping[str, Any], inputs: Sequence[Array], *, timeout: float | None) -> Profile | None:
    """A profile of the layers' functions, with what they call, and of the main function."""
    steps = ("feed_begin", "feed_row", "feed_end") if project.artifact.metadata.get("feed") else ("run",)
    main = {f"{project.artifact.name}_{step}" for step in steps}
    code = ("kernels", "runtime")
    functions = {s["name"] for s in flash["symbols"] if s["name"] in main or (s["group"] in code and s["layers"])}
    limit = project.board.timeout if timeout is None else timeout
    return profile_cycles(project, project.image("measure"), inputs, functions=frozenset(functions), timeout=limit)


def _layers(meta: Mapping[str, Any], spent: _Spent, flash: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    symbols = () if flash is None else [s for s in flash["symbols"] if s["group"] in ("kernels", "runtime")]
    sizes = {} if flash is None else {row["layer"]: row for row in flash["layers"]}
    rows = []
    for layer in meta["layers"]:
        count, macs = spent.instructions.get(layer["index"]), layer["macs"]
        size = sizes.get(layer["index"])
        functions = [s["name"] for s in symbols if layer["index"] in s["layers"]]
        rows.append(
            {
                **{k: layer[k] for k in ("index", "op", "does", "ops", "name", "function", "kernel", "macs")},
                "instructions": count,
                "instructions_per_mac": round(count / macs, 4) if count is not None and macs else None,
                **({"cycles": spent.cycles.get(layer["index"])} if spent.cycles else {}),
                "estimated_cycles": spent.estimates and spent.estimates.of(functions, count),
                **{k: None if size is None else size[k] for k in ("code", "weights", "tables", "shared")},
                "scratch": layer["scratch"],
                "output": {k: layer["output"][k] for k in ("shape", "dtype")},
                "next_faster": next_faster(layer),
            }
        )
    return rows


# ---- cycles per layer counted by the user's firmware: the text of crt/src/layer_profile.c, found in a log
# Its lines may follow time stamps or other text of the log, with other lines in between.


MOST_BYTES = 1 << 26
"""of a log"""
_HEAD = re.compile(r"aot-profile 1 (\w{1,31}) layers ([0-9]{1,9}) runs ([0-9]{1,10}) hz ([0-9]{1,10})")
_LAYER = re.compile(r"aot-layer ([0-9]{1,9}) ([0-9]{1,20}) ([0-9]{1,10}) ([0-9]{1,10})")
_END = re.compile(r"aot-profile-end ([0-9]{1,10})")
_NAME = 31
"""characters of a model's name that the text holds"""


@dataclass(frozen=True, slots=True)
class OnTarget:
    """`cycles[i]`: cycles of layer i per run, averaged over `runs`; `hz` is the core's clock, 0 if unknown."""

    runs: int
    hz: int
    cycles: tuple[int, ...]

    @property
    def total(self) -> int:
        """Cycles of all layers."""
        return sum(self.cycles)


@dataclass(frozen=True, slots=True)
class _Text:
    """One profile of the log; `whole`: it is complete, and the checksum is right."""

    name: str
    runs: int
    hz: int
    layers: tuple[tuple[int, int, int], ...]
    whole: bool


def read_on_target(log: str, metadata: Mapping[str, Any]) -> OnTarget:
    """The last profile in `log` of the model with this `metadata`.

    Raises UsageError E5417 (no profile, or one without runs), E5418 (lines are missing or damaged), E5419 (the profile is of a
    model of that name compiled from another file or with other options)."""
    name = str(metadata["name"])
    profiles = list(_profiles(log.splitlines()))
    own_profiles = [text for text in profiles if text.name == name[:_NAME]]
    if not own_profiles:
        others = ", ".join(sorted({text.name for text in profiles}))
        held = f"it has profiles of {others}" if others else "no line starts with aot-profile 1"
        raise UsageError(Problem("E5417", f"the log has no profile of {name}: {held}"))
    last = own_profiles[-1]
    if not last.whole:
        raise UsageError(Problem("E5418", f"the profile of {name} is incomplete: lines are missing or damaged"))
    if last.runs == 0:
        raise UsageError(
            Problem("E5417", f"the profile of {name} covers no run: call aot_profile_run() before running the model")
        )
    _check_model(last, metadata)
    return OnTarget(last.runs, last.hz, tuple((cycles + last.runs // 2) // last.runs for cycles, _, _ in last.layers))


def _profiles(lines: Sequence[str]) -> Iterator[_Text]:
    """All profiles in the order of the log; one that another interrupts is not whole."""
    head: re.Match[str] | None = None
    rows: list[re.Match[str]] = []
    for line in lines:
        begun, row, end = (pattern.search(line) for pattern in (_HEAD, _LAYER, _END))
        if head is not None and (begun is not None or end is not None):
            yield _text(head, rows, end if begun is None else None)
            head = None
        if begun is not None:
            head, rows = begun, []
        elif row is not None:
            rows.append(row)
    if head is not None:
        yield _text(head, rows, None)


def _text(head: re.Match[str], rows: Sequence[re.Match[str]], end: re.Match[str] | None) -> _Text:
    layers = tuple((int(r[2]), int(r[3]), int(r[4])) for r in rows)
    complete = len(layers) == int(head[2]) and [int(r[1]) for r in rows] == list(range(len(rows)))
    whole = complete and end is not None and int(end[1]) == checksum([head[0], *(r[0] for r in rows)])
    return _Text(head[1], int(head[3]), int(head[4]), layers, whole)


def checksum(lines: Sequence[str]) -> int:
    """FNV-1a (32 bits) over the lines, each with a line feed."""
    value = 2166136261
    for byte in "".join(f"{line}\n" for line in lines).encode():
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return value


def _check_model(text: _Text, metadata: Mapping[str, Any]) -> None:
    """Raise E5419 unless the profile has the model's layers: the same number, and results of the same size if they ran."""
    layers = metadata["layers"]
    if len(text.layers) != len(layers):
        raise UsageError(Problem("E5419", f"the profile has {len(text.layers)} layers, the model {len(layers)}"))
    for layer, (_, calls, size) in zip(layers, text.layers, strict=True):
        output = layer["output"]
        expected = math.prod(output["shape"]) * np.dtype(output["dtype"]).itemsize
        if calls and size != expected:
            where = f'layer {layer["index"]} {does_of(layer)} "{printable(str(layer["name"]))}"'
            raise UsageError(Problem("E5419", f"the profile's result has {size:,} bytes, the model's {expected:,}", where))


# ---- many models on many boards: failures are kept as data and do not affect other jobs


@dataclass(frozen=True, slots=True)
class Job:
    """A model, as it was read, on a board, named as the user did; `options` are for the worker."""

    model: NamedBytes
    board: str
    options: Any


Work = Callable[[Job], Report]
Done = Callable[[Job, bool], None]
"""Called with (job, whether it succeeded) as jobs end."""

PoolOf = Callable[[str], Opener | None]
"""The executor for the jobs of a board; boards may share one."""


def run_jobs(work: Work, jobs: Sequence[Job], *, pool: PoolOf | None, done: Done) -> tuple[list[Report], list[dict[str, Any]]]:
    """The reports and the failures of all jobs, in the order of the jobs; `work` must be a module's function.

    `pool`: the executor per board; without one, jobs run in this process.  Jobs of one executor run together, largest models
    first, so that the longest job does not start last."""
    outcomes_by_job: dict[int, Outcome] = {}
    by_board = {job.board: None if pool is None else pool(job.board) for job in jobs}
    for opener in dict.fromkeys(by_board.values()):
        indices = [i for i, job in enumerate(jobs) if by_board[job.board] is opener]
        if opener is not None:
            indices.sort(key=lambda i: (-len(jobs[i].model.data), i))
        attempt = partial(_attempt, work=work, version=__version__)
        try:
            for (i, job), outcome in outcomes(attempt, [(i, jobs[i]) for i in indices], opener):
                outcomes_by_job[i] = outcome
                done(job, outcome[0] is not None)
        except ToolchainError as error:  # processes keep dying: out of memory, a signal
            for i in indices:
                if i not in outcomes_by_job:
                    outcomes_by_job[i] = None, failure(jobs[i], error)
                    done(jobs[i], False)
    ordered = [outcomes_by_job[i] for i in range(len(jobs))]
    return [r for r, _ in ordered if r is not None], [f for _, f in ordered if f is not None]


Outcome = tuple[Report | None, dict[str, Any] | None]


def _attempt(numbered: tuple[int, Job], *, work: Work, version: str) -> Outcome:
    """The outcome of a job; `version` of the compiler that submitted it."""
    _, job = numbered
    try:
        if version != __version__:
            message = f"this worker has aot {__version__}, but the report needs {version}"
            raise UsageError(Problem("E5503", message, platform.node()))
        return work(job), None
    except AotError as error:
        return None, failure(job, error)
    except Exception as error:  # one model's fault must not affect the others
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{os.path.basename(frame.filename)}:{frame.lineno}"
        return None, failure(job, internal(f"{type(error).__name__}: {error} at {place}"))


def failure(job: Job, error: AotError) -> dict[str, Any]:
    """An entry of `failures`; the model by file name only, as a report must not contain paths."""
    problems: Sequence[Problem] = error.problems
    return {
        "model": job.model.path.name,
        "board": Path(job.board).name,
        "exit_code": error.exit_code,
        "problems": [{"code": p.code, "where": p.where, "message": p.message} for p in problems],
    }
