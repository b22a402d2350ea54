"""Standard output and error for verbs: a failed write never changes behaviour or exit code.

A reader that closes the pipe (`| head`), a stream that was closed before the start, a full disk, or a name that the stream's
encoding does not have must neither stop a verb half-way nor replace its exit code.  What cannot be written is dropped and
remembered.  Names come from models: where a CI service reads along, none of them becomes one of its commands.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import field
from typing import Any, TextIO

from aot.errors import Problem
from aot.support.dataclass import dataclass

_CI = ("CI", "GITHUB_ACTIONS", "GITLAB_CI", "TF_BUILD", "TEAMCITY_VERSION")
_COMMAND = re.compile(r"##(?=\w*\[)")
_FIRST_LINE = re.compile(r"((?:^|[\n\r])[^\S\n\r]*):(?=:)")
_LATER_LINE = re.compile(r"([\n\r][^\S\n\r]*):(?=:)")


def in_ci() -> bool:
    """Whether a service may read what is printed: it obeys `::error::` at the start of a line, and `##[error]` anywhere."""
    return any(os.environ.get(name) for name in _CI)


@dataclass(slots=True)
class GuardedStream:
    """A text stream that never raises when it is written to; `lost` is the first error of the stream beneath."""

    inner: TextIO | None
    lost: OSError | None = None
    written: bool = field(default=False)
    at_start: bool = field(default=True)
    answer: Any = None
    """Where the object of --json goes, if all other words written here go elsewhere."""

    def write(self, text: str) -> int:
        """Writes `text`; characters that the encoding lacks become escapes, such as \\udce9 for a byte that is no UTF-8."""
        self.written = self.written or bool(text)
        size = len(text)
        if text and in_ci():
            text = self._tamed(text)
        if self.inner is not None and self.lost is None:
            try:
                self.inner.write(text if text.isascii() else self._encodable(text))
            except (OSError, ValueError) as error:  # ValueError: the stream was closed
                self._lose(error)
        return size

    def _tamed(self, text: str) -> str:
        """With escapes in what would be commands; JSON has the same ones."""
        lines = _FIRST_LINE if self.at_start else _LATER_LINE
        self.at_start = text.rstrip(" \t").endswith(("\n", "\r")) or (self.at_start and not text.strip())
        return lines.sub(r"\1\\u003a:", _COMMAND.sub(r"#\\u0023", text))

    def _encodable(self, text: str) -> str:
        """Whatever the stream itself would do: with LANG=C Python writes stray bytes as they are, and JSON ceases to be UTF-8."""
        encoding = getattr(self.inner, "encoding", None) or "utf-8"
        return text.encode(encoding, "backslashreplace").decode(encoding)

    def writelines(self, lines: Iterator[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        if self.inner is not None and self.lost is None:
            try:
                self.inner.flush()
            except (OSError, ValueError) as error:
                self._lose(error)

    def _lose(self, error: OSError | ValueError) -> None:
        self.lost = error if isinstance(error, OSError) else OSError(errno.EBADF, os.strerror(errno.EBADF))

    def isatty(self) -> bool:
        return self.inner is not None and self.inner.isatty()

    def problem(self) -> Problem | None:
        """E5060 if words were lost; a reader that closed the pipe has what it wanted, so that is not an error."""
        if self.inner is None and self.written:
            return Problem("E5060", "standard output is closed; the output is lost")
        if self.lost is not None and self.lost.errno not in (errno.EPIPE, None):
            return Problem("E5060", f"standard output cannot be written: {self.lost.strerror}; the output is incomplete")
        return None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def answers() -> TextIO:
    """Standard output for the object of --json."""
    found: TextIO = getattr(sys.stdout, "answer", None) or sys.stdout
    return found


@contextmanager
def guarded(*, answer_only: bool = False) -> Iterator[GuardedStream]:
    """sys.stdout and sys.stderr as GuardedStreams; yields the former.

    `answer_only`: nothing but what is written to `answers()` reaches standard output, and what anybody else prints (a plug-in,
    say) goes to standard error: a program reads one JSON object.
    """
    before = sys.stdout, sys.stderr
    out, err = GuardedStream(before[0]), GuardedStream(before[1])
    sys.stdout, sys.stderr = GuardedStream(before[1], answer=out) if answer_only else out, err
    try:
        yield out
    finally:
        out.flush()
        err.flush()
        sys.stdout, sys.stderr = before
        for stream in (out, err):
            if stream.lost is not None:
                _silence(stream)


def _silence(stream: GuardedStream) -> None:
    """Drop what is still in the buffer: Python would complain at exit, and end with 120."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def open_standard_files() -> None:
    """Descriptors 0 to 2 exist from here on: the next file opened must not become the standard output of a program we start."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number
