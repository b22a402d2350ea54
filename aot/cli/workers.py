"""Where jobs run: -j and --scheduler of the verbs that run many."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Annotated

import typer

from aot.errors import Problem, UsageError

if TYPE_CHECKING:
    from aot.system.executors import Opener


Jobs = Annotated[int, typer.Option("-j", "--jobs", metavar="N", min=1, help="Number of processes that run at the same time.")]
Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler", metavar="ADDRESS", help="Run the jobs on the workers of a Dask scheduler, such as tcp://10.0.0.1:8786."
    ),
]


def chosen_pool(jobs: int, scheduler: str | None, resource: str = "") -> Opener | None:
    """The executor for -j or --scheduler, None to use this process only; E5017 for both options, E5505 without Dask.

    `resource`: what workers must provide; "" for jobs that any worker can do.
    """
    from aot.system.executors import dask, local

    if scheduler is None:
        return local(jobs)
    if jobs != 1:
        raise UsageError(Problem("E5017", "--scheduler and -j are mutually exclusive: the workers decide how many jobs they run"))
    return dask(scheduler, resource)


def pool_of_boards(jobs: int, scheduler: str | None, count: int) -> Callable[[str], Opener | None]:
    """A function from a board's name to the executor for its jobs (see `chosen_pool`); a verb has `count` jobs.

    With a scheduler, these are the workers that can reach the board; all emulated boards share one executor.
    """
    from aot.cli.common import find_board
    from aot.tune.worker import resource_of

    if scheduler is None:
        one = chosen_pool(min(jobs, max(1, count)), None)
        return lambda _board: one
    of_resource = cache(lambda resource: chosen_pool(jobs, scheduler, resource))

    def of_board(name: str) -> Opener | None:
        place = find_board(name)
        return of_resource(resource_of(place.name, emulated=place.gdb is None))

    return of_board
