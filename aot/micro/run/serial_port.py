"""A serial port as lines of text with time limits."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from aot.errors import Problem, UsageError

try:
    import termios as _termios
except ImportError:  # not on Windows
    termios: ModuleType | None = None
else:
    termios = _termios

BAUD = 115200
KEPT = 400
"""Characters of what was read that an error message may show."""


class SerialPort:
    """Lines of a port; `seen` is the end of all that was read, `received` how many bytes that were."""

    def __init__(self, fd: int, name: str) -> None:
        self._fd, self._buffer = fd, b""
        self.name, self.seen, self.received = name, b"", 0

    def send(self, text: str) -> None:
        """Write a line."""
        data = text.encode() + b"\n"
        try:
            while data:
                select.select([], [self._fd], [], 1.0)
                data = data[os.write(self._fd, data) :]
        except OSError:
            raise self._gone() from None

    def line(self, until: float) -> str | None:
        """The next whole line, without its end; None at the time `until` (of time.monotonic)."""
        while b"\n" not in self._buffer:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._fd], [], [], left)[0]:
                return None
            try:
                more = os.read(self._fd, 4096)
            except OSError:
                more = b""
            if not more:
                raise self._gone()
            self._buffer += more
            self.seen = (self.seen + more)[-KEPT:]
            self.received += len(more)
        found, _, self._buffer = self._buffer.partition(b"\n")
        return found.decode("ascii", "replace").strip("\r")

    def _gone(self) -> UsageError:
        return UsageError(Problem("E5410", "the port was closed by the other side: unplugged, or reset", self.name))


def parse_port(text: str) -> tuple[str, int]:
    """`/dev/ttyACM0` or `/dev/ttyACM0:9600` as path and baud (UsageError E5410 for a rate that there is not)."""
    path, colon, baud = text.rpartition(":")
    if not colon or not baud.isdecimal():
        return text, BAUD
    if termios is None or not hasattr(termios, f"B{int(baud)}"):
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
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(Problem("E5410", f"cannot open the serial port: {reason}", path)) from None
    try:
        try:
            _set_raw(termios, fd, baud)
        except termios.error:
            raise UsageError(Problem("E5410", "this is not a serial port", path)) from None
        os.set_blocking(fd, True)
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
