"""Where jobs run: the options of the verbs that have many."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Annotated

import typer

from aot.errors import Problem, UsageError

if TYPE_CHECKING:
    from aot.system.executors import Opener


Jobs = Annotated[int, typer.Option("-j", "--jobs", metavar="N", min=1, help="How many processes work at the same time.")]
Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler", metavar="ADDRESS", help="Let the workers of a Dask scheduler do it, such as tcp://10.0.0.1:8786."
    ),
]


def chosen_pool(jobs: int, scheduler: str | None, resource: str = "") -> Opener | None:
    """The executor that is asked for, None for this process alone; E5017 for two, E5505 without Dask.

    `resource`: what workers must have; "" for jobs that any can do.
    """
    from aot.system.executors import dask, local

    if scheduler is None:
        return local(jobs)
    if jobs != 1:
        raise UsageError(Problem("E5017", "--scheduler and -j are mutually exclusive: the workers say how many jobs they take"))
    return dask(scheduler, resource)


def pool_of_boards(jobs: int, scheduler: str | None, count: int) -> Callable[[str], Opener | None]:
    """The executor of the `count` jobs of a verb by the board that a job is on, as `chosen_pool` says.

    With a scheduler it is that of the workers which reach the board; boards that are emulated share theirs.
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
