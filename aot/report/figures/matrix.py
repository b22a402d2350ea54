"""Many models on many boards: what fails is kept as data and hides nothing of the rest."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aot.driver.reading import NamedBytes
from aot.errors import AotError, Problem, internal
from aot.report.figures.report import Report


@dataclass(frozen=True, slots=True)
class Job:
    """A model, as it was read, on a board, by name as the user gave it; `options` are the worker's own."""

    model: NamedBytes
    board: str
    options: Mapping[str, Any]


Work = Callable[[Job], Report]
Done = Callable[[Job, bool], None]
"""Told (job, whether it succeeded) as jobs end."""


def run_jobs(work: Work, jobs: Sequence[Job], *, processes: int, done: Done) -> tuple[list[Report], list[dict[str, Any]]]:
    """The reports and the failures of all jobs, in the order of the jobs; `work` must be a function of a module."""
    if processes <= 1 or len(jobs) <= 1:
        outcomes = []
        for job in jobs:
            outcomes.append(_attempt(work, job))
            done(job, outcomes[-1][0] is not None)
    else:
        outcomes = _in_parallel(work, jobs, processes=processes, done=done)
    return [r for r, _ in outcomes if r is not None], [f for _, f in outcomes if f is not None]


Outcome = tuple[Report | None, dict[str, Any] | None]


def _in_parallel(work: Work, jobs: Sequence[Job], *, processes: int, done: Done) -> list[Outcome]:
    """Largest models first, so that the last process to end does not start last."""
    found: dict[int, Outcome] = {}
    order = sorted(range(len(jobs)), key=lambda i: (-len(jobs[i].model.data), i))
    with ProcessPoolExecutor(min(processes, len(jobs))) as pool:
        futures: dict[Future[Outcome], int] = {pool.submit(_attempt, work, jobs[i]): i for i in order}
        for future in as_completed(futures):
            i = futures[future]
            try:
                found[i] = future.result()
            except Exception as error:  # the process died: out of memory, a signal
                found[i] = None, failure(jobs[i], internal(f"the process ended: {error}"))
            done(jobs[i], found[i][0] is not None)
    return [found[i] for i in range(len(jobs))]


def _attempt(work: Work, job: Job) -> Outcome:
    try:
        return work(job), None
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
