"""Many models on many boards: what fails is kept as data and hides nothing of the rest."""

from __future__ import annotations

import os
import platform
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aot.driver.reading import NamedBytes
from aot.errors import AotError, Problem, ToolchainError, UsageError, internal
from aot.report.figures.report import Report
from aot.support.dataclass import dataclass
from aot.system.executors import Opener, outcomes
from aot.version import __version__


@dataclass(frozen=True, slots=True)
class Job:
    """A model, as it was read, on a board, by name as the user gave it; `options` are the worker's own."""

    model: NamedBytes
    board: str
    options: Mapping[str, Any]


Work = Callable[[Job], Report]
Done = Callable[[Job, bool], None]
"""Told (job, whether it succeeded) as jobs end."""

PoolOf = Callable[[str], Opener | None]
"""The executor of the jobs on a board: the same object for boards that may share one."""


def run_jobs(work: Work, jobs: Sequence[Job], *, pool: PoolOf | None, done: Done) -> tuple[list[Report], list[dict[str, Any]]]:
    """The reports and the failures of all jobs, in the order of the jobs; `work` must be a function of a module.

    `pool`: where the jobs on a board run; None, or where it says None: in this process.  Jobs of one executor run together,
    those of the largest models first, so that the last to end does not start last.
    """
    found: dict[int, Outcome] = {}
    by_board = {job.board: None if pool is None else pool(job.board) for job in jobs}
    for opener in dict.fromkeys(by_board.values()):
        own = [i for i, job in enumerate(jobs) if by_board[job.board] is opener]
        if opener is not None:
            own.sort(key=lambda i: (-len(jobs[i].model.data), i))
        tasks = [_Task(i, work, jobs[i], __version__) for i in own]
        try:
            for task, outcome in outcomes(_attempt, tasks, opener):
                found[task.number] = outcome
                done(task.job, outcome[0] is not None)
        except ToolchainError as error:  # processes keep ending: out of memory, a signal
            for i in own:
                if i not in found:
                    found[i] = None, failure(jobs[i], error)
                    done(jobs[i], False)
    ordered = [found[i] for i in range(len(jobs))]
    return [r for r, _ in ordered if r is not None], [f for _, f in ordered if f is not None]


Outcome = tuple[Report | None, dict[str, Any] | None]


@dataclass(frozen=True, slots=True)
class _Task:
    """A job with its number, and the version of the compiler that asks for it."""

    number: int
    work: Work
    job: Job
    version: str


def _attempt(task: _Task) -> Outcome:
    job = task.job
    try:
        if task.version != __version__:
            message = f"this worker has aot {__version__}, and is asked for the report of {task.version}"
            raise UsageError(Problem("E5503", message, platform.node()))
        return task.work(job), None
    except AotError as error:
        return None, failure(job, error)
    except Exception as error:  # one model's fault must not hide what the others do
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{os.path.basename(frame.filename)}:{frame.lineno}"
        return None, failure(job, internal(f"{type(error).__name__}: {error} at {place}"))


def failure(job: Job, error: AotError) -> dict[str, Any]:
    """An entry of `failures`; the model by its file's name, as a report must not hold paths."""
    problems: Sequence[Problem] = error.problems
    return {
        "model": job.model.path.name,
        "board": Path(job.board).name,
        "exit_code": error.exit_code,
        "problems": [{"code": p.code, "where": p.where, "message": p.message} for p in problems],
    }
