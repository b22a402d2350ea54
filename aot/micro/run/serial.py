"""A serial port as lines of text with time limits, and the protocol of the application serial_main.c.j2 over it.

The last word of every line is the CRC-32 of the rest, so that damaged lines are detected and sent again.  The first answer
identifies the image, so that an old image on the board is detected.
"""

from __future__ import annotations

import math
import os
import re
import select
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType

from aot.errors import Problem, ToolchainError, UsageError, VerificationError
from aot.support.dataclass import dataclass
from aot.support.text import printable

try:
    import termios as _termios
except ImportError:  # not on Windows
    termios: ModuleType | None = None
else:
    termios = _termios

BAUD = 115200
KEPT = 400
"""Maximum input that an error message shows, in characters."""
LONGEST = 1 << 10
"""Maximum length of a line in bytes; ours have 200."""
MOST_BYTES = 1 << 28
"""Maximum bytes from a board in a whole session, including logs."""
SEND_SECONDS = 5.0
"""Time limit for the port to accept a line."""


class SerialPort:
    """Lines of a port with a non-blocking descriptor; `seen` is the end of the input, `received` its size in bytes.

    From `end` (in time.monotonic) on, the session is over, even if the board still sends.
    """

    def __init__(self, fd: int, name: str) -> None:
        self._fd, self._buffer = fd, b""
        self.name, self.seen, self.received = name, b"", 0
        self.end = math.inf

    def send(self, text: str) -> None:
        """Write a line (UsageError E5410 if the port does not accept it)."""
        data = text.encode() + b"\n"
        end = min(self.end, time.monotonic() + SEND_SECONDS)
        while data:
            if not select.select([], [self._fd], [], max(0.0, end - time.monotonic()))[1]:
                self._check_time()
                raise UsageError(Problem("E5410", "the port accepts no bytes: flow control stops it, or nobody reads", self.name))
            try:
                data = data[os.write(self._fd, data) :]
            except BlockingIOError:
                continue
            except OSError:
                raise self._gone() from None

    def line(self, until: float) -> str | None:
        """The next complete line, without its end; None if there is none until `until` (in time.monotonic).

        Of a line longer than LONGEST, only the end is kept.  Raises ToolchainError E5414 at `end`, E5412 for too many bytes.
        """
        while b"\n" not in self._buffer:
            self._check_time()
            left = min(until, self.end) - time.monotonic()
            if left <= 0 or not select.select([self._fd], [], [], left)[0]:
                self._check_time()
                return None
            self._receive()
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line[-LONGEST:].decode("ascii", "replace").strip("\r")

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
    """`/dev/ttyACM0` or `/dev/ttyACM0:9600` as path and baud rate (UsageError E5410 for an impossible rate)."""
    path, colon, baud = text.rpartition(":")
    if not colon or not re.fullmatch("[0-9]+", baud):
        return text, BAUD
    if len(baud) > 9 or int(baud) == 0 or termios is None or not hasattr(termios, f"B{int(baud)}"):
        raise UsageError(Problem("E5410", f"no serial port runs at {baud} baud; {BAUD} is usual", path))
    return path, int(baud)


@contextmanager
def opened(text: str) -> Iterator[SerialPort]:
    """The port in `text` (see parse_port), raw, with eight bits and no flow control (UsageError E5410 if it cannot be used)."""
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


# ---- the host's side of the protocol: inputs go over a UART, outputs come back


PROTOCOL = "1"
CHUNK = 48
"""Bytes of a tensor per line."""
TRIES = 4
ANSWER_SECONDS = 2.0
"""Time limit for an answer that needs no computation: at 9600 baud a line takes 0.2 seconds."""
HELLO_SECONDS = 15.0
LINE_SECONDS = 0.2
"""Average time limit for a line and its answer, without the transmission."""
LINE_BYTES = 128
_CRASHED = re.compile(r"FATAL ERROR|\*\*\* Booting|HARD FAULT|Unhandled|ASSERTION FAIL", re.IGNORECASE)


def framed(body: str) -> str:
    """A line with its CRC."""
    return f"{body} {zlib.crc32(body.encode()):08x}"


def unframed(line: str) -> str | None:
    """A line without its CRC; None if the CRC is wrong or missing."""
    body, _, crc = line.rpartition(" ")
    return body if body and crc == f"{zlib.crc32(body.encode('ascii', 'replace')):08x}" else None


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the board: `kind` is hello, ok, bad, ran or out.

    `words`: of a hello, protocol, image and nonce; of an ok, the CRC of the accepted line; of an out, index and offset of the
    output.  `data`: bytes of the output.  `status`: the model's, 0 or negative.
    """

    kind: str
    words: tuple[str, ...] = ()
    data: bytes = b""
    status: int = 0


_FORMS = {
    "hello": re.compile(r"aot-hello (\w{1,8}) ([0-9a-f]{16}) ([0-9a-f]{8})"),
    "ok": re.compile(r"aot-ok ([0-9a-f]{8})"),
    "bad": re.compile(r"aot-bad\b.*"),
    "ran": re.compile(r"aot-ran ([0-9a-f]{8})"),
    "out": re.compile(rf"aot-out ([0-9a-f]{{2,8}}) ([0-9a-f]{{8}}) ((?:[0-9a-f]{{2}}){{1,{CHUNK}}})"),
}


def parse_answer(body: str) -> Answer | None:
    """The answer in a line without its CRC; None for anything else."""
    for kind, form in _FORMS.items():
        match = form.fullmatch(body)
        if match is None:
            continue
        if kind == "out":
            return Answer(kind, match.groups()[:2], bytes.fromhex(match[3]))
        if kind == "ran":
            value = int(match[1], 16)
            return Answer(kind, (), b"", value - (1 << 32)) if value >> 31 else Answer(kind) if value == 0 else None
        return Answer(kind, match.groups())
    return None


def whole_seconds(inputs: int, outputs: int, *, sets: int, baud: int, timeout: float) -> float:
    """Time limit for a whole session: every line at a slow pace, and every run up to its limit.

    `inputs` and `outputs` are bytes per set; `timeout` is the limit of a run, in seconds.
    """
    lines = 2 + sets * (inputs // CHUNK + outputs // CHUNK + 64)
    return HELLO_SECONDS + sets * timeout + lines * (LINE_SECONDS + TRIES * 10 * 2 * LINE_BYTES / baud)


class SerialLink:
    """The connection to a board that runs an image; `where` names it in messages."""

    def __init__(self, port: SerialPort, where: str) -> None:
        self._port, self._where = port, where

    def hello(self, image: str, *, seconds: float = HELLO_SECONDS) -> None:
        """Wait until the board answers that it runs `image`.

        ToolchainError E5411 without any input, E5412 without a valid answer, E5413 if it runs another image.
        """
        end, number, answer = time.monotonic() + seconds, 0, None
        while answer is None and time.monotonic() < end:
            number += 1
            nonce = f"{number:04x}{image[:4]}"
            self._port.send(framed(f"? {nonce}"))
            answer = self._hello(nonce, min(end, time.monotonic() + 1.0))
        if answer is None:
            raise self._silent(seconds)
        if answer != [PROTOCOL, image]:
            runs = f"image {printable(answer[1])}" if answer[0] == PROTOCOL else f"another protocol ({printable(answer[0])})"
            message = f"the board runs {runs}, not the image that was built ({image}): it was not flashed"
            raise ToolchainError(Problem("E5413", message, self._where))

    def _hello(self, nonce: str, until: float) -> list[str] | None:
        while (line := self._port.line(until)) is not None:
            answer = parse_answer(unframed(line) or "")
            if answer is not None and answer.kind == "hello" and answer.words[2] == nonce:
                return list(answer.words[:2])
        return None

    def _silent(self, seconds: float) -> ToolchainError:
        if not self._port.received:
            return ToolchainError(Problem("E5411", f"the board said nothing for {seconds:g} s", self._where))
        text = printable(self._port.seen.decode("ascii", "replace")[-120:])
        message = f"the board does not answer like our application; last input: {text}"
        return ToolchainError(Problem("E5412", message, self._where))

    def run(self, inputs: Sequence[bytes], outputs: Sequence[int], *, timeout: float) -> bytes:
        """Run the model once: `inputs` are the bytes of each input, `outputs` the sizes of the outputs; returns their bytes.

        ToolchainError E5414 if it takes longer than `timeout` seconds, E5415 if lines stay damaged, E5416 if the board restarts
        or reports a fault; VerificationError E4022 for a status other than 0.
        """
        for index, data in enumerate(inputs):
            for at in range(0, len(data), CHUNK):
                self._command(f"i {index:02x} {at:08x} {data[at : at + CHUNK].hex()}")
        status = self._ran(timeout)
        if status:
            raise VerificationError(Problem("E4022", f"the model returned {status} on {self._where}"))
        parts = []
        for index, size in enumerate(outputs):
            parts += [self._output(index, at, min(CHUNK, size - at)) for at in range(0, size, CHUNK)]
        return b"".join(parts)

    def reset(self) -> None:
        """Reset the model's state to its initial values."""
        self._command("z")

    def _ran(self, timeout: float) -> int:
        """Run the model and return its status; a run is not repeated after it started, because it changes the state."""
        end, tries = time.monotonic() + timeout, 1
        self._port.send(framed("r"))
        while (line := self._port.line(end)) is not None:
            body = self._body(line)
            answer = None if body is None else parse_answer(body)
            if answer is not None and answer.kind == "ran":
                return answer.status
            if answer is not None and answer.kind == "bad" and tries < TRIES:
                tries += 1
                self._port.send(framed("r"))
            elif "aot-ran" in line or "aot-bad" in line or (body is None and "aot" in line):
                raise self._damaged("r")
        raise ToolchainError(Problem("E5414", f"the run did not finish within {timeout:g} s", self._where))

    def _command(self, body: str) -> None:
        self._ask(body, "ok", (f"{zlib.crc32(body.encode()):08x}",))

    def _output(self, index: int, at: int, count: int) -> bytes:
        body = f"o {index:02x} {at:08x} {count:02x}"
        data = self._ask(body, "out", (f"{index:02x}", f"{at:08x}")).data
        if len(data) != count:
            raise self._damaged(body)
        return data

    def _ask(self, body: str, kind: str, words: tuple[str, ...]) -> Answer:
        """Send a line and return the answer of this kind with these words (E5415 if none arrived intact)."""
        for _ in range(TRIES):
            self._port.send(framed(body))
            end = time.monotonic() + ANSWER_SECONDS
            while (line := self._port.line(end)) is not None:
                received = self._body(line)
                answer = None if received is None else parse_answer(received)
                if answer is not None and (answer.kind, answer.words) == (kind, words):
                    return answer
                if received is None or (answer is not None and answer.kind == "bad"):
                    break
        raise self._damaged(body)

    def _body(self, line: str) -> str | None:
        """A line without its CRC, None if it is damaged (E5416 if Zephyr reports a fault or a boot)."""
        body = unframed(line)
        if body is None and _CRASHED.search(line):
            raise ToolchainError(Problem("E5416", f"the board crashed or restarted: {printable(line)[:200]}", self._where))
        return body

    def _damaged(self, body: str) -> ToolchainError:
        text = printable(self._port.seen.decode("ascii", "replace")[-80:])
        message = f"no valid answer to '{body[:14]}' after {TRIES} tries; last input: {text}"
        return ToolchainError(Problem("E5415", message, self._where))
