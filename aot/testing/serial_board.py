"""A board on a pseudo-terminal, for tests and examples: it answers like serial_main.c.j2, or with a fault."""

from __future__ import annotations

import os
import select
import threading
import tty
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress

FAULTS = (
    "", "silent", "garbage", "stale", "slow", "damaged", "damaged once", "crash", "status", "word", "positive", "digits", "short",
    "always bad", "endless", "flood",
)  # fmt: skip


def _framed(body: str) -> bytes:
    return f"{body} {zlib.crc32(body.encode()):08x}\n".encode()


class _Board:
    """A model whose only output is its only input with every bit inverted."""

    def __init__(self, fd: int, image: str, fault: str) -> None:
        self._fd, self._fault = fd, fault
        self._image = "0" * 16 if fault == "stale" else image
        self._data = bytearray(256)
        self._damage = fault == "damaged once"

    def serve(self, stop: threading.Event) -> None:
        buffer = b""
        while not stop.is_set():
            if not select.select([self._fd], [], [], 0.02)[0]:
                continue
            buffer += os.read(self._fd, 4096)
            while b"\n" in buffer:
                line, _, buffer = buffer.partition(b"\n")
                if self._fault != "silent":
                    self._say(self._answer(line.decode()))

    def _say(self, answer: bytes) -> None:
        if self._fault == "endless":
            answer = b"x" * 4000
        if self._fault == "flood" and b"hello" not in answer:
            answer = _framed("x") * 60
        if self._fault == "damaged" or self._damage:
            answer = answer if b"aot-hello" in answer else answer.replace(b"a", b"\xe1", 1)
            self._damage = self._damage and answer.isascii()
        os.write(self._fd, answer)

    def _answer(self, line: str) -> bytes:
        if self._fault == "garbage":
            return b"\x80\xfe uart:~$ command not found\n"
        body, _, crc = line.rpartition(" ")
        right = f"{zlib.crc32(body.encode()):08x}"
        words = body.split(" ")
        if crc != right:
            return _framed(f"aot-bad {right}")
        match words[0]:
            case "?":
                return b"*** Booting Zephyr OS ***\n" + _framed(f"aot-hello 1 {self._image} {words[1]}")
            case "i":
                at, data = int(words[2], 16), bytes.fromhex(words[3])
                self._data[at : at + len(data)] = data
            case "r" if self._fault == "slow":
                return b""
            case "r" if self._fault == "crash":
                return b"[00:00:01.000] <err> os: >>> ZEPHYR FATAL ERROR 0: CPU exception on CPU 0\n"
            case "r":
                status = {"status": "fffffffd", "word": "zz", "positive": "00000001", "short": "0"}
                return _framed(f"aot-ran {status.get(self._fault, '00000000')}" if self._fault != "always bad" else "aot-bad 0")
            case "o" if self._fault == "digits":
                return _framed(f"aot-out {words[1]} {words[2]} 0_ -1")
            case "o":
                at, count = int(words[2], 16), int(words[3], 16)
                data = bytes(b ^ 255 for b in self._data[at : at + count])
                return _framed(f"aot-out {words[1]} {words[2]} {data.hex()}")
        return _framed(f"aot-ok {right}")


@contextmanager
def serial_board(image: str, fault: str = "") -> Iterator[str]:
    """The path of a serial port with such a board, which runs `image`; `fault` is one of FAULTS."""
    ours, theirs = os.openpty()
    tty.setraw(theirs)
    path, stop = os.ttyname(theirs), threading.Event()
    thread = threading.Thread(target=_Board(ours, image, fault).serve, args=(stop,), daemon=True)
    thread.start()
    try:
        yield path
    finally:
        stop.set()
        thread.join(2.0)
        for fd in (ours, theirs):
            with suppress(OSError):
                os.close(fd)
