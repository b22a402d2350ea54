"""Jobs in processes of this machine: all are done once to the outside, whatever happens to a process."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from aot.errors import ToolchainError, UsageError
from aot.system.executors import check_resource, local, outcomes


def test_in_this_process() -> None:
    assert local(1) is None
    assert list(outcomes(abs, [-2, 3], None)) == [(-2, 2), (3, 3)]


def dies_once(path: str) -> str:
    """The process is killed the first time that it is asked for this file."""
    if not os.path.exists(path):
        Path(path).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return path


def test_a_killed_process_loses_nothing(tmp_path: Path) -> None:
    jobs = [str(tmp_path / f"{i}") for i in range(4)]
    Path(jobs[0]).touch()
    Path(jobs[3]).touch()
    found = list(outcomes(dies_once, jobs, local(2)))
    assert sorted(found) == [(job, job) for job in jobs]


def fails(_job: int) -> None:
    raise KeyError("its own")


def test_errors_of_a_job_are_its_own() -> None:
    with pytest.raises(KeyError, match="its own"):
        list(outcomes(fails, [1, 2, 3], local(2)))


def test_processes_that_always_end() -> None:
    with pytest.raises(ToolchainError, match="E5508"):
        list(outcomes(os._exit, [9], local(2)))


def test_workers_without_the_resource() -> None:
    workers = {"a": {"resources": {"board:x": 1}}, "b": {}}
    check_resource(workers, "board:x", "tcp://s")
    with pytest.raises(UsageError, match="E5507 none of the 2 workers at tcp://s announces emulator=1; announced: board:x"):
        check_resource(workers, "emulator", "tcp://s")
