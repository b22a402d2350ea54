"""A GDB server whose program and answers a test chooses: the conversation is real, the core behind it is not."""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

RAM = 1 << 16
BLOCK, TEXT = 0x8000, 0x9000
SPOT, LOOP = 0x100, 0x200
OPEN, CLOSE, WRITE0, WRITE, READ, SEEK, LENGTH, EXIT = 0x01, 0x02, 0x04, 0x05, 0x06, 0x0A, 0x0C, 0x20


@dataclass(frozen=True)
class Call:
    """A semihosting call: `block` are the words of its parameters, `text` is at TEXT; `everywhere`: what memory holds."""

    operation: int
    block: tuple[int, ...] = ()
    text: bytes = b""
    everywhere: bytes = b""


def printing(line: bytes) -> Call:
    return Call(WRITE0, text=line + b"\0")


def opening(name: bytes, mode: int) -> Call:
    return Call(OPEN, (TEXT, mode, len(name)), name + b"\0")


def run_of(report: bytes) -> list[Call]:
    """A program that writes four bytes of output and reports so."""
    return [opening(b"outputs.bin", 5), Call(WRITE, (1, 0, 4)), Call(CLOSE, (1,)), printing(report), Call(EXIT, (0x20026, 0))]


@dataclass
class Server:
    """Listens on `port` for one client.  `answers` by the start of a packet go before its own; `raw` likewise, without a frame,
    and again and again until the client hangs up."""

    program: Sequence[Call] = ()
    repeat: bool = False
    answers: dict[bytes, bytes] = field(default_factory=dict)
    raw: dict[bytes, bytes] = field(default_factory=dict)
    results: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.memory = bytearray(RAM)
        self.registers: dict[int, int] = {}
        self.everywhere = b""
        self._calls = self._next()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.close()
        self._thread.join(10.0)

    def _next(self) -> Iterator[Call]:
        while True:
            yield from self.program
            if not self.repeat:
                return

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            client, _ = self._listener.accept()
            with client:
                buffer = b""
                while data := client.recv(1 << 16):
                    buffer += data
                    while (match := re.search(rb"\$([^#]*)#..", buffer, re.DOTALL)) is not None:
                        buffer = buffer[match.end() :]
                        self._reply(client, re.sub(rb"\}(.)", lambda m: bytes((m[1][0] ^ 0x20,)), match[1], flags=re.DOTALL))

    def _reply(self, client: socket.socket, packet: bytes) -> None:
        stream = next((text for start, text in self.raw.items() if packet.startswith(start)), None)
        while stream is not None:
            client.sendall(stream)
        own = next((text for start, text in self.answers.items() if packet.startswith(start)), None)
        body = self._answer(packet) if own is None else own
        client.sendall(b"+$" + body + b"#%02x" % (sum(body) & 0xFF))

    def _answer(self, packet: bytes) -> bytes:
        if packet.startswith(b"qSupported"):
            return b"PacketSize=1000;qXfer:memory-map:read+"
        if match := re.match(rb"m([0-9a-f]+),([0-9a-f]+)", packet):
            start, count = (int(n, 16) for n in match.groups())
            return self.everywhere.hex().encode() * count or self.memory[start : start + count].hex().encode()
        if match := re.match(rb"X([0-9a-f]+),[0-9a-f]+:", packet):
            start, data = int(match[1], 16), packet[match.end() :]
            self.memory[start : start + len(data)] = data
            return b"OK"
        if match := re.match(rb"p([0-9a-f]+)", packet):
            return struct.pack("<I", self.registers.get(int(match[1], 16), 0)).hex().encode()
        if match := re.match(rb"P([0-9a-f]+)=([0-9a-f]{8})", packet):
            self.registers[int(match[1], 16)] = struct.unpack("<I", bytes.fromhex(match[2].decode()))[0]
            return b"OK"
        if packet == b"c":
            return self._continue()
        return b"OK" if packet[:1] in b"ZzD" else b"T05" if packet == b"?" else b""

    def _continue(self) -> bytes:
        self.results.append(self.registers.get(0, 0))
        call = next(self._calls, Call(EXIT, (0x20026, 0)))
        self.everywhere = call.everywhere
        block = struct.pack(f"<{len(call.block)}I", *call.block)
        self.memory[BLOCK : BLOCK + len(block)] = block
        self.memory[TEXT : TEXT + len(call.text)] = call.text
        self.registers |= {0: call.operation, 1: TEXT if call.operation == WRITE0 else BLOCK, 15: SPOT}
        return b"T05"
