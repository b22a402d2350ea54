"""Starting other programs; every failure becomes an error with a code."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO

from aot.errors import Problem, ToolchainError
from aot.support.dataclass import dataclass

VERSION_SECONDS = 60
TOOL_SECONDS = 600
MOST_OUTPUT = 1 << 26
"""Maximum output of a tool per stream, in bytes; a disassembly of the largest image has a few million."""
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Finished:
    """A program's exit code (negative: a signal's number) and output, with invalid bytes replaced."""

    code: int
    out: str
    err: str


class OutputError(Exception):
    """A program was killed because it printed too much; the argument is the limit in bytes."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of a program: seconds, and bytes of output per stream."""

    seconds: float
    output: int = MOST_OUTPUT


def run_bounded(
    command: Sequence[str],
    bounds: Bounds,
    *,
    cwd: Path | None = None,
    variables: Mapping[str, str] | None = None,
    one: bool = False,
) -> subprocess.CompletedProcess[bytes]:
    """Like subprocess.run without input; kills a program that exceeds its bounds (TimeoutExpired, OutputError).

    `one`: redirect stderr to stdout.  Raises OSError and ValueError if the program cannot be started.
    """
    process = subprocess.Popen(
        list(command), cwd=cwd, env={**os.environ, **(variables or {})}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if one else subprocess.PIPE,
    )  # fmt: skip
    readers = [_Reader(process, stream, bounds.output) for stream in (process.stdout, process.stderr) if stream is not None]
    end = time.monotonic() + bounds.seconds
    try:
        for reader in readers:
            reader.join(max(0.0, end - time.monotonic()))
        if any(reader.is_alive() for reader in readers):
            raise subprocess.TimeoutExpired(list(command), bounds.seconds)
        code = process.wait(max(0.1, end - time.monotonic()))
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if any(reader.overflown for reader in readers):
        raise OutputError(bounds.output)
    return subprocess.CompletedProcess(list(command), code, *(bytes(reader.data) for reader in readers))


class _Reader(threading.Thread):
    """Reads a process's output, so that the process never blocks; kills it if it prints too much."""

    def __init__(self, process: subprocess.Popen[bytes], stream: IO[bytes], most: int) -> None:
        super().__init__(daemon=True)
        self._process, self._stream, self._most = process, stream, most
        self.data, self.overflown = bytearray(), False
        self.start()

    def run(self) -> None:
        with self._stream:
            while part := os.read(self._stream.fileno(), _CHUNK):
                if len(self.data) + len(part) > self._most:
                    self.overflown = True
                    self._process.kill()
                    return
                self.data += part


def run_raw(
    command: Sequence[str], *, cwd: Path | None = None, timeout: float = TOOL_SECONDS, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a program without input; `variables` are added to the environment; `timeout` is in seconds.

    Raises ToolchainError E3004 (it cannot be started) and E3005 (it was killed because it ran too long or printed too much).
    """
    try:
        return run_bounded(command, Bounds(timeout), cwd=cwd, variables=variables)
    except subprocess.TimeoutExpired:
        raise ToolchainError(Problem("E3005", f"{command[0]} did not end within {timeout:g} s")) from None
    except OutputError:
        raise ToolchainError(Problem("E3005", f"{command[0]} printed more than {MOST_OUTPUT >> 20} MiB")) from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in an argument
        reason = getattr(error, "strerror", None) or str(error)
        raise ToolchainError(Problem("E3004", f"{command[0]} cannot be started: {reason}")) from None


def run_program(
    command: Sequence[str], *, cwd: Path | None = None, timeout: float = TOOL_SECONDS, variables: Mapping[str, str] | None = None
) -> Finished:
    """Like `run_raw`, with the output as text."""
    done = run_raw(command, cwd=cwd, timeout=timeout, variables=variables)
    return Finished(done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"))


@cache
def version_of(path: str) -> str:
    """The first line of a program's --version output (E3004, E3005)."""
    lines = run_program([path, "--version"], timeout=VERSION_SECONDS).out.splitlines()
    return lines[0] if lines else "unknown version"


def require_output(path: Path, program: str, *, magic: bytes = b"") -> None:
    """Raise ToolchainError E3006 if a program reported success, but its output file is missing, empty or of another kind."""
    try:
        with path.open("rb") as file:
            start = file.read(max(1, len(magic)))
    except OSError:
        start = b""
    if not start or not start.startswith(magic):
        what = "nothing" if not start else "something else"
        raise ToolchainError(Problem("E3006", f"{program} reported success, but wrote {what} instead of its output"))


@dataclass(slots=True)
class Heard:
    """The captured text, in one line, after the context has ended."""

    text: str = ""


@contextmanager
def heard() -> Iterator[Heard]:
    """Capture this process's standard error, including output of C libraries; not for two threads at once."""
    captured = Heard()
    try:
        saved = os.dup(2)
    except OSError:  # there is no standard error
        yield captured
        return
    with tempfile.TemporaryFile() as stream:
        os.dup2(stream.fileno(), 2)
        try:
            yield captured
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            stream.seek(0)
            captured.text = " ".join(stream.read().decode(errors="replace").split())
