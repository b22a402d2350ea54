"""A GDB server for tests: it stands before QEMU's stub and has the habits of other servers."""

from __future__ import annotations

import contextlib
import queue
import re
import socket
import threading
import time
from dataclasses import dataclass, field


@dataclass
class Habits:
    """What this server does differently: all defaults are as QEMU does it.

    `flash`: (start, size, block) of a region that plain writes do not reach.  `close_after`: packets until it hangs up;
    `close_on`: it does at the second packet that begins so.
    `broken`: packets that begin so get this answer.
    """

    packet_size: int | None = None
    no_binary: bool = False
    split: bool = False
    late: float = 0.0
    console: bool = False
    flash: tuple[int, int, int] | None = None
    close_after: int | None = None
    close_on: bytes | None = None
    broken: dict[bytes, bytes] = field(default_factory=dict)
    garbage: bytes = b""


class Proxy:
    """Listens on `port`; one client, one QEMU."""

    def __init__(self, upstream: int, habits: Habits) -> None:
        self.habits = habits
        self.seen: list[bytes] = []
        self.erased: list[tuple[int, int]] = []
        self._pending: list[tuple[int, bytes]] = []
        self._swallowed: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._upstream = upstream
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            client, _ = self._listener.accept()
            qemu = _dial(self._upstream)
            threading.Thread(target=self._down, args=(qemu, client), daemon=True).start()
            self._up(client, qemu)

    def _down(self, qemu: socket.socket, client: socket.socket) -> None:
        """From QEMU to the client, acknowledgements left out: this server tells them itself."""
        with contextlib.suppress(OSError):
            buffer = b""
            while data := qemu.recv(1 << 16):
                buffer += data
                while (match := re.search(rb"\$([^#]*)#..", buffer, re.DOTALL)) is not None:
                    buffer = buffer[match.end() :]
                    qemu.sendall(b"+")
                    try:
                        self._swallowed.get_nowait()
                    except queue.Empty:
                        self._answer(client, match[1])

    def _answer(self, client: socket.socket, body: bytes) -> None:
        if body.startswith(b"PacketSize="):
            if self.habits.packet_size is not None:
                body = re.sub(rb"PacketSize=[0-9a-f]+", b"PacketSize=%x" % self.habits.packet_size, body)
            if self.habits.flash is not None:
                body += b";qXfer:memory-map:read+"
            body = body.replace(b"QStartNoAckMode+", b"QStartNoAckMode-")
        if self.habits.console and body == b"OK":
            _send(client, b"O" + b"working\n".hex().encode())
        time.sleep(self.habits.late)
        packet = self.habits.garbage + _packet(body)
        for part in [packet[i : i + 1] for i in range(len(packet))] if self.habits.split else [packet]:
            client.sendall(part)

    def _up(self, client: socket.socket, qemu: socket.socket) -> None:
        buffer = b""
        while data := client.recv(1 << 16):
            buffer += data
            while True:
                if buffer.startswith(b"\x03"):
                    qemu.sendall(b"\x03")
                    buffer = buffer[1:]
                match = re.search(rb"\$([^#]*)#..", buffer, re.DOTALL)
                if match is None:
                    break
                buffer = buffer[match.end() :]
                client.sendall(b"+")
                self._packet(client, qemu, match[1])

    def _packet(self, client: socket.socket, qemu: socket.socket, body: bytes) -> None:
        self.seen.append(body)
        habits = self.habits
        late = habits.close_after is not None and len(self.seen) > habits.close_after
        if habits.close_on is not None and sum(p.startswith(habits.close_on) for p in self.seen) > 1:
            late = True
        if late:
            client.shutdown(socket.SHUT_RDWR)
            raise OSError("hangs up")
        own = next((answer for start, answer in habits.broken.items() if body.startswith(start)), None)
        if own is None and habits.no_binary and body.startswith(b"X"):
            own = b""
        if own is None and habits.flash is not None:
            own = self._flash(qemu, body, habits.flash)
        if own is None:
            qemu.sendall(_packet(body))
        else:
            self._answer(client, own)

    def _flash(self, qemu: socket.socket, body: bytes, flash: tuple[int, int, int]) -> bytes | None:
        start, size, block = flash
        if body.startswith(b"qXfer:memory-map:read"):
            xml = (
                f'<memory-map><memory type="flash" start="{start:#x}" length="{size:#x}"><property name="blocksize">{block:#x}'
                '</property></memory><memory type="ram" start="0x20000000" length="0x400000"/></memory-map>'
            ).encode()
            at, count = (int(n, 16) for n in body.rpartition(b":")[2].split(b","))
            return (b"m" if at + count < len(xml) else b"l") + xml[at : at + count]
        if (match := re.match(rb"[XM]([0-9a-f]+),", body)) and start <= int(match[1], 16) < start + size:
            return b"E01"
        if match := re.fullmatch(rb"vFlashErase:([0-9a-f]+),([0-9a-f]+)", body):
            self.erased.append((int(match[1], 16), int(match[2], 16)))
            return b"OK" if int(match[1], 16) % block == 0 else b"E02"
        if match := re.match(rb"vFlashWrite:([0-9a-f]+):", body):
            self._pending.append((int(match[1], 16), body[match.end() :]))
            return b"OK"
        if body == b"vFlashDone":
            for address, data in self._pending:
                raw = re.sub(rb"\}(.)", lambda m: bytes((m[1][0] ^ 0x20,)), data, flags=re.DOTALL)
                for at in range(0, len(raw), 500):
                    part = raw[at : at + 500]
                    self._swallowed.put(None)  # before the packet: its answer may come at once
                    qemu.sendall(_packet(b"M%x,%x:" % (address + at, len(part)) + part.hex().encode()))
            self._pending = []
            return b"OK"
        return None


def _dial(port: int) -> socket.socket:
    for _ in range(200):
        with contextlib.suppress(OSError):
            return socket.create_connection(("127.0.0.1", port))
        time.sleep(0.02)
    raise OSError("QEMU does not listen")


def _packet(body: bytes) -> bytes:
    return b"$" + body + b"#%02x" % (sum(body) & 0xFF)


def _send(client: socket.socket, body: bytes) -> None:
    client.sendall(_packet(body))
