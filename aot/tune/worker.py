"""Preloaded by a Dask worker (`dask worker … --preload aot.tune.worker`): announces the machine's resources for jobs."""

from __future__ import annotations

from typing import Any

from aot.micro.build.toolchain import have_tool

EMULATOR = "emulator"
"""The resource of a machine with the tools that build and run images of emulated boards."""


def resource_of(board: str, *, emulated: bool) -> str:
    """The resource that a job on a board needs: any machine with an emulator, or the one to which the board is connected."""
    return EMULATOR if emulated else f"board:{board}"


def dask_setup(worker: Any) -> None:
    """Announce `emulator` if there are compiler and emulator, unless the command line set the number of jobs."""
    if EMULATOR not in worker.state.total_resources and all(map(have_tool, ("arm-none-eabi-gcc", "qemu-system-arm"))):
        worker.state.total_resources[EMULATOR] = 1
        worker.state.available_resources[EMULATOR] = 1
