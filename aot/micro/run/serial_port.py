"""A serial port as lines of text with time limits."""

from __future__ import annotations

import math
import os
import re
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from aot.errors import Problem, ToolchainError, UsageError

try:
    import termios as _termios
except ImportError:  # not on Windows
    termios: ModuleType | None = None
else:
    termios = _termios

BAUD = 115200
KEPT = 400
"""Characters of what was read that an error message may show."""
LONGEST = 1 << 10
"""Bytes of a line; ours have 200."""
MOST_BYTES = 1 << 28
"""Bytes that a board may send over the whole conversation, logs and all."""
SEND_SECONDS = 5.0
"""How long a line may wait until the port takes it."""


class SerialPort:
    """Lines of a port, whose descriptor does not block; `seen` is the end of all that was read, `received` how many bytes it had.

    At `end` (of time.monotonic) the whole conversation is over, however lively the other side is; nor may it send without end.
    """

    def __init__(self, fd: int, name: str) -> None:
        self._fd, self._buffer = fd, b""
        self.name, self.seen, self.received = name, b"", 0
        self.end = math.inf

    def send(self, text: str) -> None:
        """Write a line (UsageError E5410 if nobody takes it)."""
        data = text.encode() + b"\n"
        end = min(self.end, time.monotonic() + SEND_SECONDS)
        while data:
            if not select.select([], [self._fd], [], max(0.0, end - time.monotonic()))[1]:
                self._check_time()
                raise UsageError(Problem("E5410", "the port takes no bytes: a handshake holds it, or nobody reads", self.name))
            try:
                data = data[os.write(self._fd, data) :]
            except BlockingIOError:
                continue
            except OSError:
                raise self._gone() from None

    def line(self, until: float) -> str | None:
        """The next whole line, without its end; None at the time `until` (of time.monotonic).

        Of a line longer than ours are, only the end is kept.  Raises ToolchainError E5414 at the `end`, E5412 for too many bytes.
        """
        while b"\n" not in self._buffer:
            self._check_time()
            left = min(until, self.end) - time.monotonic()
            if left <= 0 or not select.select([self._fd], [], [], left)[0]:
                self._check_time()
                return None
            self._receive()
        found, _, self._buffer = self._buffer.partition(b"\n")
        return found[-LONGEST:].decode("ascii", "replace").strip("\r")

    def _receive(self) -> None:
        try:
            more = os.read(self._fd, 4096)
        except BlockingIOError:
            return
        except OSError:
            more = b""
        if not more:
            raise self._gone()
        self.received += len(more)
        if self.received > MOST_BYTES:
            raise ToolchainError(Problem("E5412", f"the board sent more than {MOST_BYTES >> 20} MiB", self.name))
        self._buffer = self._buffer[-LONGEST:] + more
        self.seen = (self.seen + more)[-KEPT:]

    def _check_time(self) -> None:
        if time.monotonic() >= self.end:
            raise ToolchainError(Problem("E5414", "the conversation with the board did not end in time", self.name))

    def _gone(self) -> UsageError:
        return UsageError(Problem("E5410", "the port was closed by the other side: unplugged, or reset", self.name))


def parse_port(text: str) -> tuple[str, int]:
    """`/dev/ttyACM0` or `/dev/ttyACM0:9600` as path and baud (UsageError E5410 for a rate that there is not)."""
    path, colon, baud = text.rpartition(":")
    if not colon or not re.fullmatch("[0-9]+", baud):
        return text, BAUD
    if len(baud) > 9 or int(baud) == 0 or termios is None or not hasattr(termios, f"B{int(baud)}"):
        raise UsageError(Problem("E5410", f"no serial port runs at {baud} baud; {BAUD} is usual", path))
    return path, int(baud)


@contextmanager
def opened(text: str) -> Iterator[SerialPort]:
    """The port that `text` (parse_port) names, raw, eight bits, no handshake (UsageError E5410 if it cannot be used)."""
    path, baud = parse_port(text)
    if termios is None:
        raise UsageError(Problem("E5410", "serial ports need a system with termios (Linux, macOS)", path))
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(Problem("E5410", f"cannot open the serial port: {reason}", path)) from None
    try:
        try:
            _set_raw(termios, fd, baud)
        except termios.error:
            raise UsageError(Problem("E5410", "this is not a serial port", path)) from None
        yield SerialPort(fd, path)
    finally:
        os.close(fd)


def _set_raw(termios: ModuleType, fd: int, baud: int) -> None:
    speed = getattr(termios, f"B{baud}")
    cflag = termios.CS8 | termios.CREAD | termios.CLOCAL
    control = termios.tcgetattr(fd)[6]
    control[termios.VMIN], control[termios.VTIME] = 1, 0
    termios.tcsetattr(fd, termios.TCSANOW, [0, 0, cflag, 0, speed, speed, control])
    termios.tcflush(fd, termios.TCIFLUSH)
