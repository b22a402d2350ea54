"""Executors that run jobs and repeat the jobs of killed processes; the interface is `concurrent.futures.Executor`.

Usually these are processes on this machine.  For larger work, Dask (the extra `cluster`) provides an executor with workers on
other machines: jobs request a resource, and workers announce their resources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor, as_completed
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import Any, TypeVar

from aot.errors import Problem, ToolchainError, UsageError

Job = TypeVar("Job")
Result = TypeVar("Result")
Opener = Callable[[], AbstractContextManager[Executor]]
"""Creates an executor, which is shut down when the context ends."""

ATTEMPTS = 3
"""Maximum number of consecutive pools that end without finishing a job."""

PATIENCE = 10
"""Time limit for a scheduler's answer, in seconds."""


def outcomes(work: Callable[[Job], Result], jobs: Sequence[Job], pool: Opener | None) -> Iterator[tuple[Job, Result]]:
    """Each job with its result, in order of completion; with `pool` None one after the other, in this process.

    Jobs must be repeatable: if a process is killed, its unfinished jobs are started again.  ToolchainError E5508 if processes
    keep ending.
    """
    if pool is None:
        yield from ((job, work(job)) for job in jobs)
        return
    left, attempts = list(range(len(jobs))), 0
    while left:
        before = len(left)
        try:
            with pool() as executor:
                for i, result in _finished(executor, work, jobs, left):
                    left.remove(i)
                    yield jobs[i], result
        except BrokenExecutor as error:
            attempts = 1 if len(left) < before else attempts + 1
            if attempts >= ATTEMPTS:
                message = f"processes end before their jobs do, perhaps out of memory: {type(error).__name__}"
                raise ToolchainError(Problem("E5508", message)) from None


def _finished(
    executor: Executor, work: Callable[[Job], Result], jobs: Sequence[Job], left: Sequence[int]
) -> Iterator[tuple[int, Result]]:  # fmt: skip
    waiting = {executor.submit(work, jobs[i]): i for i in left}
    try:
        for future in as_completed(waiting):
            yield waiting[future], future.result()
    finally:
        for future in waiting:
            future.cancel()


def local(processes: int) -> Opener | None:
    """That many processes on this machine; None for 1, which needs no pool."""
    return None if processes == 1 else lambda: ProcessPoolExecutor(processes)


def dask(address: str, resource: str = "") -> Opener:
    """The workers of a Dask scheduler that announce `resource` ("": all workers); each running job occupies one unit of it.

    UsageError E5505 without the package `distributed`; on opening, E5506 if the scheduler does not answer, E5507 if no worker has
    the resource.
    """
    try:
        distributed: Any = import_module("distributed")
    except ImportError:
        raise UsageError(Problem("E5505", "--scheduler needs Dask: pip install 'aot-micro[cluster]'")) from None

    @contextmanager
    def opened() -> Iterator[Executor]:
        try:
            client = distributed.Client(address, timeout=PATIENCE, set_as_default=False)
        except (OSError, ValueError, TimeoutError) as error:
            reason = " ".join(str(error).split())[:200]
            raise UsageError(Problem("E5506", f"the scheduler at {address} cannot be reached: {reason}")) from None
        with client:
            if resource:
                check_resource(client.scheduler_info(n_workers=-1)["workers"], resource, address)
            try:
                yield client.get_executor(pure=False, resources={resource: 1} if resource else None, retries=ATTEMPTS)
            except distributed.KilledWorker as error:
                raise BrokenExecutor(str(error)) from None

    return opened


def check_resource(workers: dict[str, Any], resource: str, address: str) -> None:
    """Raise E5507 if no worker has a resource, because its jobs would wait forever."""
    if any(worker.get("resources", {}).get(resource) for worker in workers.values()):
        return
    announced = sorted({name for worker in workers.values() for name in worker.get("resources", {})})
    message = (
        f"none of the {len(workers)} workers at {address} announces {resource}=1; announced: {', '.join(announced) or 'nothing'}"
    )
    raise UsageError(Problem("E5507", message))
