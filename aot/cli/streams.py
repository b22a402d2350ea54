"""Standard output and error for verbs: a failed write never changes behaviour or exit code.

A reader that closes the pipe (`| head`), a stream that was closed before the start, a full disk, or a name that the stream's
encoding cannot represent must neither stop a verb halfway nor replace its exit code.  What cannot be written is dropped, and the
error is kept.  Names come from models: in CI, none of them may act as a workflow command.
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
    """Whether a CI service may read the output: these obey `::error::` at the start of a line, and `##[error]` anywhere."""
    return any(os.environ.get(name) for name in _CI)


@dataclass(slots=True)
class GuardedStream:
    """A text stream whose writes never raise; `lost` is the first error of the underlying stream."""

    inner: TextIO | None
    lost: OSError | None = None
    written: bool = field(default=False)
    at_start: bool = field(default=True)
    answer: Any = None
    """The stream for the --json object, if everything else written here goes elsewhere."""

    def write(self, text: str) -> int:
        """Write `text`; characters that the encoding lacks become escapes, such as \\udce9 for a byte that is not UTF-8."""
        self.written = self.written or bool(text)
        size = len(text)
        if text and in_ci():
            text = self._defused(text)
        if self.inner is not None and self.lost is None:
            try:
                self.inner.write(text if text.isascii() else self._encodable(text))
            except (OSError, ValueError) as error:  # ValueError: the stream was closed
                self._lose(error)
        return size

    def _defused(self, text: str) -> str:
        """`text` with CI commands escaped; the escapes are valid in JSON too."""
        lines = _FIRST_LINE if self.at_start else _LATER_LINE
        self.at_start = text.rstrip(" \t").endswith(("\n", "\r")) or (self.at_start and not text.strip())
        return lines.sub(r"\1\\u003a:", _COMMAND.sub(r"#\\u0023", text))

    def _encodable(self, text: str) -> str:
        """`text` with escapes for what the encoding lacks.  (With LANG=C Python writes stray bytes: JSON would not be UTF-8.)"""
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
        """E5060 if output was lost; a closed pipe is no error, as the reader has what it wanted."""
        if self.inner is None and self.written:
            return Problem("E5060", "standard output is closed; the output is lost")
        if self.lost is not None and self.lost.errno not in (errno.EPIPE, None):
            return Problem("E5060", f"standard output cannot be written: {self.lost.strerror}; the output is incomplete")
        return None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def answers() -> TextIO:
    """Standard output for the --json object."""
    stream: TextIO = getattr(sys.stdout, "answer", None) or sys.stdout
    return stream


@contextmanager
def guarded(*, answer_only: bool = False) -> Iterator[GuardedStream]:
    """Replace sys.stdout and sys.stderr by GuardedStreams; yields the former.

    `answer_only`: only what is written to `answers()` reaches standard output, so that programs read one JSON object; all other
    output (of a plug-in, say) goes to standard error.
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
    """Drop what is still buffered: otherwise Python complains at exit and exits with 120."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def open_standard_files() -> None:
    """Open descriptors 0 to 2 if they are closed: the next file we open must not become a child process's standard output."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number
