"""A serial port as lines of text with time limits, and the conversation with the application of serial_main.c.j2 over it.

Every line has a CRC-32 of what comes before its last word, so damage is noticed and the line sent again.  The first answer names
the image, so that an old one on the board is told from the one that was built.
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


# ---- the tool's end of the conversation: inputs go over a UART, outputs come back


PROTOCOL = "1"
CHUNK = 48
"""Bytes of a tensor in a line."""
TRIES = 4
ANSWER_SECONDS = 2.0
"""How long an answer that takes no computing may take: at 9600 baud a line is 0.2 seconds."""
HELLO_SECONDS = 15.0
LINE_SECONDS = 0.2
"""How long a line and its answer may take on average, besides the bits on the wire."""
LINE_BYTES = 128
_CRASHED = re.compile(r"FATAL ERROR|\*\*\* Booting|HARD FAULT|Unhandled|ASSERTION FAIL", re.IGNORECASE)


def framed(body: str) -> str:
    """A line with its CRC."""
    return f"{body} {zlib.crc32(body.encode()):08x}"


def unframed(line: str) -> str | None:
    """A line without its CRC; None if that is wrong or missing."""
    body, _, crc = line.rpartition(" ")
    return body if body and crc == f"{zlib.crc32(body.encode('ascii', 'replace')):08x}" else None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a board may say: `kind` is hello, ok, bad, ran or out.

    `words` are those of a hello (protocol, image, nonce), the CRC of a line that was taken, or index and offset of an output;
    `data` its bytes; `status` the model's, 0 or negative.
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
    """A line of the application's, without its CRC; None for all else."""
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
    """How long a conversation may take in all: every line at a slow pace, and every run as long as one may.

    `inputs` and `outputs` are bytes of a set; `timeout` in seconds.
    """
    lines = 2 + sets * (inputs // CHUNK + outputs // CHUNK + 64)
    return HELLO_SECONDS + sets * timeout + lines * (LINE_SECONDS + TRIES * 10 * 2 * LINE_BYTES / baud)


class SerialLink:
    """A board that runs an image; `where` names it in messages."""

    def __init__(self, port: SerialPort, where: str) -> None:
        self._port, self._where = port, where

    def hello(self, image: str, *, seconds: float = HELLO_SECONDS) -> None:
        """Wait until the board says that it runs `image`.

        ToolchainError E5411 if it says nothing, E5412 if what it says makes no sense, E5413 if it runs another image.
        """
        end, number, found = time.monotonic() + seconds, 0, None
        while found is None and time.monotonic() < end:
            number += 1
            nonce = f"{number:04x}{image[:4]}"
            self._port.send(framed(f"? {nonce}"))
            found = self._hello(nonce, min(end, time.monotonic() + 1.0))
        if found is None:
            raise self._silent(seconds)
        if found != [PROTOCOL, image]:
            runs = f"image {printable(found[1])}" if found[0] == PROTOCOL else f"another protocol ({printable(found[0])})"
            message = f"the board runs {runs}, not {image}, which was built: it was not flashed"
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
        said = printable(self._port.seen.decode("ascii", "replace")[-120:])
        message = f"the board does not answer as our application does; the last that came: {said}"
        return ToolchainError(Problem("E5412", message, self._where))

    def run(self, inputs: Sequence[bytes], outputs: Sequence[int], *, timeout: float) -> bytes:
        """One run on the bytes of each input; the bytes of all outputs, whose sizes are given.

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
        """The state gets its initial values."""
        self._command("z")

    def _ran(self, timeout: float) -> int:
        """The status of a run, which is not asked for twice: a state would move on."""
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
        """The answer of that kind and with these words (E5415 if none came whole)."""
        for _ in range(TRIES):
            self._port.send(framed(body))
            end = time.monotonic() + ANSWER_SECONDS
            while (line := self._port.line(end)) is not None:
                found = self._body(line)
                answer = None if found is None else parse_answer(found)
                if answer is not None and (answer.kind, answer.words) == (kind, words):
                    return answer
                if found is None or (answer is not None and answer.kind == "bad"):
                    break
        raise self._damaged(body)

    def _body(self, line: str) -> str | None:
        """A line without its CRC, None if it is damaged (E5416 for one of Zephyr's own about a fault or a start)."""
        body = unframed(line)
        if body is None and _CRASHED.search(line):
            raise ToolchainError(Problem("E5416", f"the board stopped or started anew: {printable(line)[:200]}", self._where))
        return body

    def _damaged(self, body: str) -> ToolchainError:
        said = printable(self._port.seen.decode("ascii", "replace")[-80:])
        what = f"no whole answer to '{body[:14]}' after {TRIES} tries; the last that came: {said}"
        return ToolchainError(Problem("E5415", what, self._where))
