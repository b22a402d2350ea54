"""Tuning a model: rounds of jobs on an executor until the tuner has nothing left to measure."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from aot import errors
from aot.driver.plugins import load_file, load_installed
from aot.errors import AotError, Problem, UsageError
from aot.micro.board import Board, load_board
from aot.micro.build.project import compiler
from aot.micro.build.toolchain import short_version
from aot.support.dataclass import dataclass
from aot.system.executors import Opener, outcomes
from aot.target.target import find_target
from aot.tune.measure import MeasureInput, MeasureResult, measure
from aot.tune.record import Record
from aot.tune.task import Pick, Task, next_round
from aot.version import __version__

MOST_KERNELS = 24
"""Kernels per image: they share the start of the compiler and of the emulator, and are lost together if a worker dies."""

MOST_CONSTANTS = 1 << 20
"""Maximum bytes of constants in an image with several tasks."""


@dataclass(frozen=True, slots=True)
class Job:
    """Kernels to measure on a board, in one image if they fit; `version` is that of the compiler that listed them."""

    inputs: tuple[MeasureInput, ...]
    board: str
    plugins: tuple[str, ...] = ()
    version: str = __version__


@dataclass(frozen=True, slots=True)
class Done:
    """The result of a job; `compiler` is the one of the machine that ran it.

    If it failed as a whole, `kind` is the class of the error and `problems` its problems.
    """

    results: tuple[MeasureResult, ...] = ()
    compiler: str = ""
    kind: str = ""
    problems: tuple[Problem, ...] = ()

    def checked(self) -> Done:
        """This result; raises the error if the job ended with one."""
        if not self.kind:
            return self
        error_type = getattr(errors, self.kind, errors.InternalError)
        assert issubclass(error_type, AotError)
        raise error_type(*self.problems)


def jobs_of(picks: Sequence[Pick], board: str, plugins: Sequence[str] = ()) -> list[Job]:
    """The picks as jobs; the same picks give the same jobs, whoever runs them."""
    jobs: list[Job] = []
    inputs: list[MeasureInput] = []
    kernels = constants = 0
    for pick in picks:
        sizes = {c.kernel: c.constants for c in pick.task.choices}
        size = sum(sizes[k] for k in pick.kernels)
        if inputs and (kernels + len(pick.kernels) > MOST_KERNELS or constants + size > MOST_CONSTANTS):
            jobs.append(Job(tuple(inputs), board, tuple(plugins)))
            inputs, kernels, constants = [], 0, 0
        inputs.append(MeasureInput(pick.task.workload, pick.task.func, pick.kernels))
        kernels, constants = kernels + len(pick.kernels), constants + size
    return [*jobs, *([Job(tuple(inputs), board, tuple(plugins))] if inputs else [])]


def run_job(job: Job) -> Done:
    """Measure; errors become values, so that they cross process boundaries intact."""
    try:
        if job.version != __version__:
            message = f"this worker has aot {__version__}, but the job needs {job.version}"
            raise UsageError(Problem("E5503", message, platform.node()))
        load_installed()
        for name in job.plugins:
            load_file(Path(name))
        board = load_board(job.board)
        results = measure(job.inputs, board, find_target(board.cpu))
        return Done(tuple(results), short_version(compiler(board)))
    except AotError as error:
        return Done(kind=type(error).__name__, problems=tuple(error.problems))


Progress = Callable[[Sequence[Record]], None]
"""Called with all records so far after every job."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """The records of the tasks on this board, old and new ones; `measured`: how many are new.

    `wrong`: kernels whose output differs from their meaning; `left_out`: kernels that could not be measured, with the reasons.
    """

    records: tuple[Record, ...]
    measured: int
    wrong: tuple[MeasureResult, ...]
    left_out: tuple[MeasureResult, ...]


def tune(
    tasks: Sequence[Task],
    board: Board,
    *,
    known: Iterable[Record] = (),
    trials: int | None = None,
    pool: Opener | None = None,
    plugins: Sequence[str] = (),
    progress: Progress | None = None,
) -> Tuned:
    """Measure the kernels of all tasks, except those in `known` for this board and compiler.

    `pool`: where jobs run; None: in this process.  `plugins` are files that its processes run first.
    Raises UsageError E5504 for a board that counts nothing, and the errors of jobs.
    """
    if board.tick is None:
        raise UsageError(Problem("E5504", f"board {board.name} counts neither instructions nor cycles"))
    own = short_version(compiler(board))
    unit = "cycles" if board.counts_cycles else "instructions"
    records = {(r.workload, r.kernel): r for r in known if (r.board, r.compiler, r.unit) == (board.name, own, unit)}
    choices = {(t.workload, c.kernel): (t, c) for t in tasks for c in t.choices}
    failed: dict[tuple[str, str], MeasureResult] = {}
    before = len(records)
    while True:
        counted = {key: r.count for key, r in records.items()} | dict.fromkeys(failed)
        jobs = jobs_of(next_round(tasks, counted, trials=trials), board.name, plugins)
        if not jobs:
            break
        for _, done in outcomes(run_job, jobs, pool):
            for result in done.checked().results:
                key = result.workload, result.kernel
                if result.wrong or result.count is None:
                    failed[key] = result
                    continue
                task, choice = choices[key]
                place = (board.cpu, board.name, done.compiler, unit)
                records[key] = Record(task.workload, choice.kernel, *place, result.count, choice.estimate, task.text)
            if progress is not None:
                progress(tuple(records.values()))
    relevant = tuple(r for key, r in records.items() if key in choices)
    bad = tuple(failed[key] for key in sorted(failed))
    return Tuned(
        relevant, len(records) - before, tuple(r for r in bad if r.wrong), tuple(r for r in bad if not r.wrong)
    )  # fmt: skip
