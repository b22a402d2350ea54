"""Starting other programs: whatever they do, or fail to do, is a coded error."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from aot.errors import Problem, ToolchainError
from aot.support.dataclass import dataclass

VERSION_SECONDS = 60
TOOL_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Finished:
    """What a program left: its exit code (negative: a signal's number) and what it printed, stray bytes replaced."""

    code: int
    out: str
    err: str


def run_raw(
    command: Sequence[str], *, cwd: Path | None = None, timeout: float = TOOL_SECONDS, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a program to its end, without input; `variables` are added to the environment, the time limit is in seconds.

    Raises ToolchainError E3004 (it cannot be started) and E3005 (it did not end in time, and was killed).
    """
    try:
        return subprocess.run(
            list(command), cwd=cwd, env={**os.environ, **(variables or {})}, stdin=subprocess.DEVNULL, capture_output=True,
            check=False, timeout=timeout,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ToolchainError(Problem("E3005", f"{command[0]} did not end within {timeout:g} s")) from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in an argument
        reason = getattr(error, "strerror", None) or str(error)
        raise ToolchainError(Problem("E3004", f"{command[0]} cannot be started: {reason}")) from None


def run_program(
    command: Sequence[str], *, cwd: Path | None = None, timeout: float = TOOL_SECONDS, variables: Mapping[str, str] | None = None
) -> Finished:
    """As `run_raw`, with what was printed as text."""
    done = run_raw(command, cwd=cwd, timeout=timeout, variables=variables)
    return Finished(done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"))


@cache
def version_of(path: str) -> str:
    """The first line of what a program says to --version (E3004, E3005)."""
    lines = run_program([path, "--version"], timeout=VERSION_SECONDS).out.splitlines()
    return lines[0] if lines else "unknown version"


def require_output(path: Path, program: str, *, magic: bytes = b"") -> None:
    """Raise ToolchainError E3006 if a program said that all went well, but its file is not there, empty or of another kind."""
    try:
        with path.open("rb") as file:
            start = file.read(max(1, len(magic)))
    except OSError:
        start = b""
    if not start or not start.startswith(magic):
        what = "nothing" if not start else "something else"
        raise ToolchainError(Problem("E3006", f"{program} reported success, but wrote {what} where its output should be"))
