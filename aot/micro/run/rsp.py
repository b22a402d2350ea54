"""A client of GDB's remote serial protocol: memory, registers, breakpoints, flash and monitor commands of any server.

Packets are `$data#checksum`; see "GDB Remote Serial Protocol" in GDB's manual.  Servers differ, so optional features (X,
acknowledgements, packet size, memory map) are requested or tried, with a fallback.
"""

from __future__ import annotations

import math
import re
import socket
import struct
import time
from contextlib import suppress
from xml.etree import ElementTree

from aot.errors import Problem, ToolchainError
from aot.support.dataclass import dataclass
from aot.support.text import printable

ANSWER_SECONDS = 20.0
"""Time limit for an answer; erasing flash has the longer limit below."""
FLASH_SECONDS = 120.0
LARGEST = 1 << 20
"""Maximum size of a packet in bytes."""
MEMORY = 1 << 28
"""Maximum bytes from a server in a whole session, run lengths expanded; the largest image and trace need far fewer."""
MOST_TAGS = 4096
"""Maximum number of tags in a memory map."""
LEAST_PACKET = 64
_ADDRESSES = 1 << 32
_ESCAPED = b"$#}*"
_STOP = re.compile(rb"S[0-9a-fA-F]{2}|T[0-9a-fA-F]{2}([^;:]*:[^;]*;)*")


class NoAnswerError(Exception):
    """No answer arrived in time."""


class LateError(Exception):
    """The whole session took too long (`Client.end`), though the server answers."""


class ClosedError(ToolchainError):
    """The server closed the connection, or broke it (E3041)."""


@dataclass(frozen=True, slots=True)
class Region:
    """A region of the memory map: `kind` is ram, rom or flash; `block` is the erase size of flash, in bytes."""

    kind: str
    start: int
    size: int
    block: int = 0


def fault(message: str) -> ToolchainError:
    return ToolchainError(Problem("E3041", f"the GDB server {message}"))


class Client:
    """One connection.  Methods raise ToolchainError E3041 for invalid answers, and NoAnswerError without an answer.

    From `end` (in time.monotonic) on, every method raises LateError.
    """

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._buffer = bytearray()
        self._left = MEMORY
        self.end = math.inf
        self.parked = False
        """Whether the core is in a loop where it can safely run after we disconnect."""
        self._acknowledge = True
        self._binary = True
        self.console = bytearray()
        """The server's output, such as answers to monitor commands."""
        self.packet_size = 400
        answer = self.ask(b"qSupported:hwbreak+;swbreak+;vContSupported+")
        self.features = _features(answer)
        size = self.features.get("PacketSize", "")
        if re.fullmatch(r"[0-9a-fA-F]{1,8}", size):
            self.packet_size = max(LEAST_PACKET, min(int(size, 16), LARGEST))
        if self.features.get("QStartNoAckMode") == "+" and self.ask(b"QStartNoAckMode") == b"OK":
            self._acknowledge = False

    # ---- packets

    def ask(self, packet: bytes, *, seconds: float = ANSWER_SECONDS) -> bytes:
        """Send a packet and wait for its answer, which is empty if the server does not support it.

        Unexpected stop replies are skipped: a server reports one if the core was running when we connected.
        """
        self.send(packet)
        end = time.monotonic() + seconds
        while True:
            got = self.answer(seconds=end - time.monotonic())
            if packet == b"?" or not _STOP.fullmatch(got):
                return got

    def must(self, packet: bytes, what: str, *, seconds: float = ANSWER_SECONDS) -> None:
        """Ask, and raise E3041 unless the answer is OK."""
        got = self.ask(packet, seconds=seconds)
        if got != b"OK":
            raise fault(f"refuses to {what}: {_shown(got)}")

    def send(self, packet: bytes) -> None:
        body = bytearray()
        for byte in packet:
            body += bytes((0x7D, byte ^ 0x20)) if byte in _ESCAPED else bytes((byte,))
        self._write(b"$" + body + b"#%02x" % (sum(body) & 0xFF))

    def answer(self, *, seconds: float) -> bytes:
        """The next answer; console output on the way is kept in `console`."""
        end = time.monotonic() + seconds
        while True:
            packet = self._packet(end)
            if packet[:1] == b"O" and packet != b"OK":
                self.console += _unhex(packet[1:])
                continue
            return packet

    def interrupt(self) -> None:
        """Ask the core to stop; a stop reply follows."""
        self._write(b"\x03")

    def leave(self) -> None:
        """Resume a parked core, and disconnect.

        Other cores stay halted: an emulated core that hits a breakpoint without a debugger crashes the emulator.
        """
        if self.parked:
            self.end = math.inf
            with suppress(ToolchainError, NoAnswerError):
                self.ask(b"D", seconds=2.0)
        self._stream.close()

    def _write(self, data: bytes) -> None:
        try:
            self._stream.settimeout(self._wait(time.monotonic() + ANSWER_SECONDS))
            self._stream.sendall(data)
        except OSError as error:
            raise ClosedError(*fault(f"closed the connection ({error.strerror or error})").problems) from None

    def _packet(self, end: float) -> bytes:
        while True:
            start = self._buffer.find(b"$")
            stop = self._buffer.find(b"#", start + 1) if start >= 0 else -1
            if stop >= 0 and len(self._buffer) >= stop + 3:
                body, check = bytes(self._buffer[start + 1 : stop]), bytes(self._buffer[stop + 1 : stop + 3])
                del self._buffer[: stop + 3]
                right = re.fullmatch(rb"[0-9a-fA-F]{2}", check) is not None and int(check, 16) == sum(body) & 0xFF
                if self._acknowledge:
                    self._write(b"+" if right else b"-")
                if right or not self._acknowledge:
                    whole = _expanded(body)
                    self._count(len(whole))
                    return whole
                continue
            if len(self._buffer) > LARGEST:
                raise fault("sent something that is not a packet")
            self._receive(end)

    def _wait(self, end: float) -> float | None:
        """Seconds until `end` or the end of the session, None for infinity; LateError or NoAnswerError if it has passed."""
        now = time.monotonic()
        if now >= self.end:
            raise LateError
        if now >= end:
            raise NoAnswerError
        left = min(end, self.end) - now
        return None if left == math.inf else left

    def _count(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise fault(f"sent more than {MEMORY >> 20} MiB")

    def _receive(self, end: float) -> None:
        try:
            self._stream.settimeout(self._wait(end))
            data = self._stream.recv(1 << 16)
        except TimeoutError:
            self._wait(end)
            raise NoAnswerError from None
        except OSError as error:
            raise ClosedError(*fault(f"broke the connection ({error.strerror or error})").problems) from None
        if not data:
            raise ClosedError(*fault("closed the connection").problems)
        self._count(len(data))
        self._buffer += data

    # ---- memory and registers

    def read(self, address: int, size: int) -> bytes:
        data = bytearray()
        step = (self.packet_size - 8) // 2
        while len(data) < size:
            count = min(step, size - len(data))
            got = self.ask(b"m%x,%x" % (address + len(data), count))
            part = _unhex(got)
            if not part or len(part) > count or _is_error(got):
                raise fault(f"cannot read {count} bytes at 0x{address + len(data):08x}: {_shown(got)}")
            data += part
        return bytes(data)

    def write(self, address: int, data: bytes) -> None:
        done = 0
        while done < len(data):
            done += self._write_some(address + done, data[done:])

    def _write_some(self, address: int, data: bytes) -> int:
        room = self.packet_size - 32
        if self._binary:
            part = data[: fitting(data, room)]
            got = self.ask(b"X%x,%x:" % (address, len(part)) + part)
            if got:
                if got != b"OK":
                    raise fault(f"cannot write {len(part)} bytes at 0x{address:08x}: {_shown(got)}")
                return len(part)
            self._binary = False
        part = data[: room // 2]
        self.must(b"M%x,%x:" % (address, len(part)) + part.hex().encode(), f"write {len(part)} bytes at 0x{address:08x}")
        return len(part)

    def word(self, address: int) -> int:
        return int(struct.unpack("<I", self.read(address, 4))[0])

    def set_word(self, address: int, value: int) -> None:
        self.write(address, struct.pack("<I", value & 0xFFFFFFFF))

    def register(self, number: int) -> int:
        got = _unhex(self.ask(b"p%x" % number))
        if len(got) < 4:
            raise fault(f"did not return register {number}")
        return int(struct.unpack("<I", got[:4])[0])

    def set_register(self, number: int, value: int) -> None:
        self.must(b"P%x=" % number + struct.pack("<I", value & 0xFFFFFFFF).hex().encode(), f"write register {number}")

    # ---- breakpoints, monitor commands and the memory map

    def breakpoint(self, address: int) -> bool:
        """Set a breakpoint at a Thumb instruction, in hardware if the server can; returns whether it worked."""
        return any(self.ask(b"Z%d,%x,2" % (kind, address)) == b"OK" for kind in (1, 0))

    def no_breakpoint(self, address: int) -> None:
        """Remove the breakpoint at `address`, of either kind."""
        for kind in (1, 0):
            self.ask(b"z%d,%x,2" % (kind, address))

    def monitor(self, command: str) -> None:
        """Run a command of the server (E3041 with its output if it fails)."""
        before = len(self.console)
        got = self.ask(b"qRcmd," + command.encode().hex().encode(), seconds=FLASH_SECONDS)
        if got not in (b"OK", b"") and not _is_error(got):
            self.console += _unhex(got)
            got = b"OK"
        if got != b"OK":
            text = printable(bytes(self.console[before:]).decode("utf-8", "replace").strip())
            raise fault(f"refuses `monitor {printable(command)}`: {text or _shown(got)}")

    def memory_map(self) -> list[Region]:
        """The server's memory regions; empty if it does not provide any."""
        if self.features.get("qXfer:memory-map:read") != "+":
            return []
        return parse_memory_map(self._object(b"memory-map"))

    def describe(self) -> None:
        """Request the register description: some servers give access to registers only afterwards."""
        if self.features.get("qXfer:features:read") == "+":
            self._object(b"features", b"target.xml")

    def _object(self, kind: bytes, name: bytes = b"") -> bytes:
        data = bytearray()
        while len(data) <= LARGEST:
            got = self.ask(b"qXfer:%s:read:%s:%x,%x" % (kind, name, len(data), self.packet_size // 2))
            if got[:1] not in (b"m", b"l"):
                return b""
            data += got[1:]
            if got[:1] == b"l" or len(got) == 1:
                break
        return bytes(data)


def parse_memory_map(text: bytes) -> list[Region]:
    """The regions in a memory map's XML; none if it is malformed or has impossible addresses."""
    if b"<!ENTITY" in text or text.count(b"<") > MOST_TAGS:
        return []
    try:
        regions = []
        for memory in ElementTree.fromstring(text.decode("utf-8")).iter("memory"):
            block = next((p.text for p in memory.iter("property") if p.get("name") == "blocksize"), None)
            start, size, least = (int(n or "0", 0) for n in (memory.get("start"), memory.get("length"), block))
            if not (0 <= start < _ADDRESSES and 0 < size <= _ADDRESSES and 0 <= least <= size):
                return []
            regions.append(Region(memory.get("type", "ram"), start, size, least))
        return regions
    except (ElementTree.ParseError, ValueError, TypeError):
        return []


def _features(answer: bytes) -> dict[str, str]:
    features = {}
    for part in answer.decode("ascii", "replace").split(";"):
        name, equals, value = part.partition("=")
        if equals:
            features[name] = value
        elif part:
            features[part[:-1]] = part[-1]
    return features


def _expanded(body: bytes) -> bytes:
    """The body with escapes (} x) and run lengths (x * n) expanded."""
    out, i = bytearray(), 0
    while i < len(body):
        byte = body[i]
        if byte == 0x7D and i + 1 < len(body):
            out.append(body[i + 1] ^ 0x20)
            i += 2
        elif byte == 0x2A and out and i + 1 < len(body) and body[i + 1] >= 29:
            out += bytes((out[-1],)) * (body[i + 1] - 29)
            i += 2
        else:
            out.append(byte)
            i += 1
        if len(out) > LARGEST:
            raise fault("sent a packet that does not end")
    return bytes(out)


def fitting(data: bytes, room: int) -> int:
    """How many bytes of `data` fit into `room` after escaping; at least one."""
    used = 0
    for n, byte in enumerate(data):
        used += 2 if byte in _ESCAPED else 1
        if used > room:
            return max(n, 1)
    return len(data)


def _unhex(text: bytes) -> bytes:
    try:
        return bytes.fromhex(text.decode("ascii"))
    except ValueError:
        return b""


def _is_error(answer: bytes) -> bool:
    return re.fullmatch(rb"E[0-9a-fA-F]{2}|E\..*", answer) is not None


def _shown(answer: bytes) -> str:
    return printable(answer.decode("utf-8", "replace")) if answer else "not supported"
