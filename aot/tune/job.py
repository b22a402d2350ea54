"""A job: what one process measures at a time, on this machine or on another one, and its results as plain values."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path

from aot import errors
from aot.driver.plugins import load_file, load_installed
from aot.errors import AotError, Problem, UsageError
from aot.micro.board import load_board
from aot.micro.build.project import compiler
from aot.micro.build.toolchain import short_version
from aot.support.dataclass import dataclass
from aot.target.target import find_target
from aot.tune.measure import MeasureInput, MeasureResult, measure
from aot.tune.tuner import Pick
from aot.version import __version__

MOST_KERNELS = 24
"""In an image: so many share the start of the compiler and of the emulator, and are lost if a worker is."""

MOST_CONSTANTS = 1 << 20
"""Bytes of constants in an image with several tasks."""


@dataclass(frozen=True, slots=True)
class Job:
    """Kernels to measure on a board, in one image if they fit; `version` is the compiler's that lists them."""

    inputs: tuple[MeasureInput, ...]
    board: str
    plugins: tuple[str, ...] = ()
    version: str = __version__


@dataclass(frozen=True, slots=True)
class Done:
    """What a job found; `compiler` is the one of the machine that ran it.

    Where it failed as a whole, `kind` is the class of the error and `problems` what it says.
    """

    results: tuple[MeasureResult, ...] = ()
    compiler: str = ""
    kind: str = ""
    problems: tuple[Problem, ...] = ()

    def checked(self) -> Done:
        """This, or the error that the job ended with."""
        if not self.kind:
            return self
        found = getattr(errors, self.kind, errors.InternalError)
        assert issubclass(found, AotError)
        raise found(*self.problems)


def jobs_of(picks: Sequence[Pick], board: str, plugins: Sequence[str] = ()) -> list[Job]:
    """The picks as jobs; the same picks make the same jobs, whoever runs them."""
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
    """Measure; errors are values, so that they cross the border of a process whole."""
    try:
        if job.version != __version__:
            message = f"this worker has aot {__version__}, and is asked for the kernels of {job.version}"
            raise UsageError(Problem("E5503", message, platform.node()))
        load_installed()
        for name in job.plugins:
            load_file(Path(name))
        board = load_board(job.board)
        results = measure(job.inputs, board, find_target(board.cpu))
        return Done(tuple(results), short_version(compiler(board)))
    except AotError as error:
        return Done(kind=type(error).__name__, problems=tuple(error.problems))
