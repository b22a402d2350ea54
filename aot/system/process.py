"""Starting other programs: whatever they do, or fail to do, is a coded error."""

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
"""Bytes that a tool may print on a stream; a disassembly of the largest image is a few million."""
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Finished:
    """What a program left: its exit code (negative: a signal's number) and what it printed, stray bytes replaced."""

    code: int
    out: str
    err: str


class OutputError(Exception):
    """A program printed more than it may, and was killed; its argument is the limit in bytes."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a program may take: seconds, and bytes of output on each stream."""

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
    """As subprocess.run, without input, and killed where it breaks its bounds (TimeoutExpired, OutputError).

    `one`: what goes to stderr is stdout's.  Raises OSError and ValueError if it cannot be started.
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
    """Takes what a process prints, so that it never waits for us; kills one that prints without end."""

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
    """Run a program to its end, without input; `variables` are added to the environment, the time limit is in seconds.

    Raises ToolchainError E3004 (it cannot be started) and E3005 (it did not end in time or print an end, and was killed).
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


@dataclass(slots=True)
class Heard:
    """`text`: all words in one line, once the work is over."""

    text: str = ""


@contextmanager
def heard() -> Iterator[Heard]:
    """Standard error of this process, as C libraries write to it, goes to `text` instead; not for two threads at once."""
    found = Heard()
    try:
        kept = os.dup(2)
    except OSError:  # there is no standard error
        yield found
        return
    with tempfile.TemporaryFile() as stream:
        os.dup2(stream.fileno(), 2)
        try:
            yield found
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            stream.seek(0)
            found.text = " ".join(stream.read().decode(errors="replace").split())
