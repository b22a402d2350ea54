"""Tuning a model: rounds of jobs on an executor until the tuner has nothing left to ask."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from aot.errors import Problem, UsageError
from aot.micro.board import Board
from aot.micro.build.project import compiler
from aot.micro.build.toolchain import short_version
from aot.support.dataclass import dataclass
from aot.system.executors import Opener, outcomes
from aot.tune.job import jobs_of, run_job
from aot.tune.measure import MeasureResult
from aot.tune.record import Record
from aot.tune.task import Task
from aot.tune.tuner import next_round

Progress = Callable[[Sequence[Record]], None]
"""Called with all records so far after every job."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """The records of the tasks on this board, old and new ones; `measured`: how many are new.

    `wrong` are kernels whose output was not their meaning, `left_out` those that could not be measured, with the reasons.
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
    """Measure the kernels of all tasks.  What is in `known` for this board and compiler is not measured again.

    `pool`: where jobs run; None: in this process.  `plugins` are files that its processes run first.
    Raises UsageError E5504 for a board that counts nothing, and what a job ends with.
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
    wanted = tuple(r for key, r in records.items() if key in choices)
    bad = tuple(failed[key] for key in sorted(failed))
    return Tuned(
        wanted, len(records) - before, tuple(r for r in bad if r.wrong), tuple(r for r in bad if not r.wrong)
    )  # fmt: skip
