"""The tool's end of a conversation with the application of serial_main.c.j2: inputs go over a UART, outputs come back.

Every line has a CRC-32 of what comes before its last word, so damage is noticed and the line sent again.  The first answer names
the image, so that an old one on the board is told from the one that was built.
"""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Sequence

from aot.errors import Problem, ToolchainError, VerificationError
from aot.micro.run.serial_port import SerialPort
from aot.support.text import printable

PROTOCOL = "1"
CHUNK = 48
"""Bytes of a tensor in a line."""
TRIES = 4
ANSWER_SECONDS = 2.0
"""How long an answer that takes no computing may take: at 9600 baud a line is 0.2 seconds."""
HELLO_SECONDS = 15.0
_CRASHED = re.compile(r"FATAL ERROR|\*\*\* Booting|HARD FAULT|Unhandled|ASSERTION FAIL", re.IGNORECASE)


def framed(body: str) -> str:
    """A line with its CRC."""
    return f"{body} {zlib.crc32(body.encode()):08x}"


def unframed(line: str) -> str | None:
    """A line without its CRC; None if that is wrong or missing."""
    body, _, crc = line.rpartition(" ")
    return body if body and crc == f"{zlib.crc32(body.encode('ascii', 'replace')):08x}" else None


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
            words = (unframed(line) or "").split(" ")
            if len(words) == 4 and words[0] == "aot-hello" and words[3] == nonce:
                return words[1:3]
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
        end = time.monotonic() + timeout
        self._port.send(framed("r"))
        while (line := self._port.line(end)) is not None:
            answer = self._checked(line)
            if answer is not None and answer.startswith("aot-bad"):
                self._port.send(framed("r"))
            elif answer is not None and answer.startswith("aot-ran "):
                value = int(answer.rpartition(" ")[2], 16)
                return value - (1 << 32) if value >> 31 else value
            elif answer is None and "aot" in line:
                raise self._damaged("r")
        raise ToolchainError(Problem("E5414", f"the run did not finish within {timeout:g} s", self._where))

    def _command(self, body: str) -> None:
        if self._ask(body, f"aot-ok {zlib.crc32(body.encode()):08x}") is None:
            raise self._damaged(body)

    def _output(self, index: int, at: int, count: int) -> bytes:
        body = f"o {index:02x} {at:08x} {count:02x}"
        answer = self._ask(body, f"aot-out {index:02x} {at:08x} ")
        data = b"" if answer is None else bytes.fromhex(answer)
        if len(data) != count:
            raise self._damaged(body)
        return data

    def _ask(self, body: str, wanted: str) -> str | None:
        """What follows `wanted` in the answer; None if none came whole."""
        for _ in range(TRIES):
            self._port.send(framed(body))
            end = time.monotonic() + ANSWER_SECONDS
            while (line := self._port.line(end)) is not None:
                answer = self._checked(line)
                if answer is not None and answer.startswith(wanted):
                    return answer[len(wanted) :]
                if answer is None or answer.startswith("aot-bad"):
                    break
        return None

    def _checked(self, line: str) -> str | None:
        """A line without its CRC, None if it is damaged (E5416 for one of Zephyr's own about a fault or a start)."""
        answer = unframed(line)
        if answer is None and _CRASHED.search(line):
            raise ToolchainError(Problem("E5416", f"the board stopped or started anew: {printable(line)[:200]}", self._where))
        return answer

    def _damaged(self, body: str) -> ToolchainError:
        said = printable(self._port.seen.decode("ascii", "replace")[-80:])
        what = f"no whole answer to '{body[:14]}' after {TRIES} tries; the last that came: {said}"
        return ToolchainError(Problem("E5415", what, self._where))
