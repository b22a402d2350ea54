"""Executors: where jobs run, and what becomes of those whose process ended; `concurrent.futures.Executor` is the interface.

Processes of this machine are the usual ones.  Where the work outgrows it, Dask (the extra `cluster`) hands out an executor whose
workers are on other machines: jobs ask for a resource, and workers say which they have.
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
"""Makes an executor, which ends with the context."""

ATTEMPTS = 3
"""How often in a row a pool may end before any job of it has."""

PATIENCE = 10
"""Seconds in which a scheduler has to answer."""


def outcomes(work: Callable[[Job], Result], jobs: Sequence[Job], pool: Opener | None) -> Iterator[tuple[Job, Result]]:
    """Each job with its result, in the order in which they end; `pool` None: one after the other, in this process.

    A job may run more than once, so it must be one that can: where a process is killed, what it had not finished is begun again.
    ToolchainError E5508 where processes keep ending.
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
                message = f"processes end before their jobs do, out of memory perhaps: {type(error).__name__}"
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
    """So many processes of this machine; None for 1, which needs none."""
    return None if processes == 1 else lambda: ProcessPoolExecutor(processes)


def dask(address: str, resource: str = "") -> Opener:
    """The workers of a Dask scheduler that announce a resource, all of them for ""; a job takes one of it while it runs.

    UsageError E5505 without the package `distributed`; when it is opened, E5506 for a scheduler that does not answer, E5507 where
    no worker has the resource.
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
    """E5507 where no worker has a resource: its jobs would wait for ever."""
    if any(worker.get("resources", {}).get(resource) for worker in workers.values()):
        return
    there = sorted({name for worker in workers.values() for name in worker.get("resources", {})})
    message = (
        f"none of the {len(workers)} workers at {address} announces {resource}=1; announced: {', '.join(there) or 'nothing'}"
    )
    raise UsageError(Problem("E5507", message))
