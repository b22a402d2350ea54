"""Runs an image on a board through a GDB server: OpenOCD, pyOCD, J-Link, probe-rs, Renode, or QEMU's own stub.

The image is the same as for QEMU.  Its semihosting calls all stop at one breakpoint and are handled here, so the server's own
semihosting, which differs between servers, stays off.
"""

from __future__ import annotations

import io
import math
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from pathlib import Path
from typing import IO, BinaryIO

from elftools.elf.elffile import ELFFile

from aot.errors import Problem, ToolchainError, VerificationError
from aot.micro.board import MAX_TIMEOUT, Board, GdbLink
from aot.micro.build.image import symbol_addresses
from aot.micro.run.qemu import Finished, function_at
from aot.micro.run.rsp import ANSWER_SECONDS, FLASH_SECONDS, Client, ClosedError, LateError, NoAnswerError, Region, fault, fitting
from aot.support.dataclass import dataclass
from aot.support.text import printable
from aot.system.process import TOOL_SECONDS, run_program

BKPT = b"\xab\xbe"
"""BKPT 0xAB, the semihosting call."""
R0, R1, SP, LR, PC, XPSR = 0, 1, 13, 14, 15, 25
THUMB = 1 << 24
CFSR = 0xE000ED28
HFSR = 0xE000ED2C
_MOST = 1 << 24
"""Maximum bytes that a call may read or write."""
_TEXT = 1 << 20
"""Maximum bytes that a program may print."""
_HANDLES = 8
ABNORMAL = 255
"""The exit code of a program that ends for another reason, or with an invalid code."""
FILES = {"inputs.bin": False, "outputs.bin": True, "trace.bin": True}
"""File that the harness opens -> whether for writing."""
LOAD_SECONDS = 120.0
LOAD_BYTES_A_SECOND = 2048
"""Time limit for loading the image: these seconds, plus its size at the speed of a slow probe."""
LAST_SECONDS = 5.0
"""Time for finding out where the core is, after a run's time limit."""
LOOP = b"\xfe\xe7"
"""`b .`"""
_FAULTS = (
    (0x01, "instruction access"), (0x02, "data access"), (0x10, "stacking"), (0x100, "bus: instruction"), (0x200, "bus: data"),
    (0x400, "bus: late data"), (0x10000, "undefined instruction"), (0x20000, "no Thumb state"), (0x80000, "no coprocessor"),
    (0x100000, "stack limit"), (0x1000000, "unaligned"), (0x2000000, "division by zero"),
)  # fmt: skip


def execute(board: Board, elf: Path, *, cwd: Path, timeout: float) -> Finished:
    """Load `elf`, run it on the board, and serve its files from `cwd`.

    Raises ToolchainError E3040 (no server), E3041 (invalid answers), E3042, E3043 (the image), E3010 (`timeout` seconds have
    passed), VerificationError E4021 (the core stopped unexpectedly).
    """
    link = board.gdb
    assert link is not None, "a board of kind gdb has [gdb]"
    with connected(board.name, link) as client, _answers(board, elf):
        load = LOAD_SECONDS + elf.stat().st_size / LOAD_BYTES_A_SECOND
        client.end = time.monotonic() + load
        for command in link.reset:
            client.monitor(command)
        client.describe()
        client.ask(b"?")
        bring_image(client, board, elf)
        _set_clock(client, link)
        _enter(client, elf)
        client.end = time.monotonic() + min(timeout, MAX_TIMEOUT)
        return _Session(client, board, elf, cwd, timeout).run()


@contextmanager
def _answers(board: Board, elf: Path) -> Iterator[None]:
    try:
        yield
    except NoAnswerError:
        raise fault(f"does not answer within {ANSWER_SECONDS:g} s") from None
    except LateError:
        raise ToolchainError(Problem("E3010", f"{board.name}: {elf.name} was not loaded in time")) from None


def _set_clock(client: Client, link: GdbLink) -> None:
    for step in link.init:
        old = client.word(step.address) if step.mask != 0xFFFFFFFF else 0
        client.set_word(step.address, (old & ~step.mask) | (step.value & step.mask))


def _enter(client: Client, elf: Path) -> None:
    """Set stack pointer and program counter from the vector table, as the core does at reset."""
    vectors = symbol_addresses(elf).get("aot_vectors")
    if vectors is None:
        raise ToolchainError(Problem("E3011", f"{elf.name} has no symbol aot_vectors: it is not one of aot's images"))
    stack, entry = struct.unpack("<2I", client.read(vectors, 8))
    client.set_register(SP, stack)
    client.set_register(PC, entry & ~1)
    client.set_register(XPSR, THUMB)


def call_spot(elf: Path) -> int:
    """The address of the only semihosting call (E3011 if there is none)."""
    return _instruction(elf, "aot_semihosting_call", BKPT)


def _loop(elf: Path) -> int:
    """The address of the loop in which a program ends (E3011)."""
    return _instruction(elf, "aot_exit", LOOP)


def _instruction(elf: Path, function: str, code_bytes: bytes) -> int:
    start = symbol_addresses(elf).get(function, -1) & ~1
    with elf.open("rb") as stream:
        for section in ELFFile(stream).iter_sections():
            first, data = section["sh_addr"], section.data() if section["sh_type"] == "SHT_PROGBITS" else b""
            if first <= start < first + len(data):
                code = data[start - first : start - first + 64]
                offset = next((i for i in range(0, len(code) - 1, 2) if code[i : i + 2] == code_bytes), None)
                if offset is not None:
                    return int(start + offset)
    raise ToolchainError(Problem("E3011", f"{elf.name} is not one of aot's images: {function} lacks the expected instruction"))


@dataclass(slots=True)
class _Session:
    """One run: `files` are the program's open files by handle; `text` is its output; `running` says whether the core runs."""

    client: Client
    board: Board
    elf: Path
    cwd: Path
    timeout: float
    running: bool = False
    files: dict[int, BinaryIO] = field(default_factory=dict)
    text: bytearray = field(default_factory=bytearray)

    def run(self) -> Finished:
        spot = call_spot(self.elf)
        if not self.client.breakpoint(spot):
            raise fault(f"cannot set a breakpoint at 0x{spot:08x}")
        try:
            while True:
                self._go()
                pc = self.client.register(PC)
                if pc != spot:
                    raise self._stopped(pc)
                code = self._serve()
                if code is not None:
                    return Finished(code, self.text.decode("utf-8", "replace"))
                self.client.set_register(PC, pc + 2)
        except LateError:
            raise self._late() from None
        finally:
            for file in self.files.values():
                file.close()
            self._park(spot)

    def _go(self) -> None:
        """Continue until the core stops."""
        self.client.send(b"c")
        self.running = True
        reply = self.client.answer(seconds=math.inf)
        if reply[:1] not in (b"T", b"S"):
            raise fault(f"sent {printable(reply.decode('utf-8', 'replace')) or 'nothing'} instead of a stop reply")
        self.running = False

    def _halt(self) -> None:
        if self.running:
            self.client.interrupt()
            self.client.answer(seconds=LAST_SECONDS)
            self.running = False

    def _park(self, spot: int) -> None:
        """Leave the core in an endless loop without our breakpoint, where it does no harm."""
        self.client.end = time.monotonic() + LAST_SECONDS
        with suppress(ToolchainError, NoAnswerError, LateError):
            self._halt()
            self.client.no_breakpoint(spot)
            self.client.set_register(PC, _loop(self.elf))
            self.client.parked = True

    def _late(self) -> ToolchainError:
        """The error for a run that takes too long, with the core's position."""
        where = ""
        self.client.end = time.monotonic() + LAST_SECONDS
        with suppress(ToolchainError, NoAnswerError, LateError):
            self._halt()
            pc = self.client.register(PC)
            where = f"; it was at 0x{pc:08x} in {function_at(self.elf, pc)}"
        return ToolchainError(Problem("E3010", f"{self.board.name} did not finish within {self.timeout:g} s{where}"))

    def _stopped(self, pc: int) -> VerificationError:
        """The error for a stop that is not a semihosting call."""
        places = [f"pc 0x{pc:08x} in {function_at(self.elf, pc)}"]
        with suppress(ToolchainError, NoAnswerError, LateError):
            lr = self.client.register(LR)
            places.append(f"lr 0x{lr:08x} in {function_at(self.elf, lr)}")
            places.append(f"sp 0x{self.client.register(SP):08x}")
            cfsr = self.client.word(CFSR)
            named = [name for bit, name in _FAULTS if cfsr & bit]
            places.append(f"cfsr 0x{cfsr:08x}" + (f" ({', '.join(named)})" if named else ""))
            places.append(f"hfsr 0x{self.client.word(HFSR):08x}")
        return VerificationError(Problem("E4021", f"{self.board.name}: the core stopped at {', '.join(places)}"))

    # ---- semihosting (IHI 0203), as used by crt/src/semihosting.c

    def _serve(self) -> int | None:
        """Perform the call in r0 and r1; return the exit code if it is the last one."""
        operation, block = self.client.register(R0), self.client.register(R1)
        if operation == 0x04:
            self.text += self._string(block)
            self.client.set_register(R0, 0)
            return None
        if operation == 0x20:
            reason, code = struct.unpack("<Ii", self.client.read(block, 8))
            return int(code) if reason == 0x20026 and 0 <= code < ABNORMAL else ABNORMAL
        calls: dict[int, Callable[..., int]] = {
            0x01: self._open, 0x02: self._close, 0x05: self._put, 0x06: self._get, 0x0A: self._seek, 0x0C: self._length,
        }  # fmt: skip
        if operation not in calls:
            raise fault(f"stopped at a semihosting call {operation:#x} that aot's images never make")
        count = {0x01: 3, 0x05: 3, 0x06: 3, 0x0A: 2}.get(operation, 1)
        arguments = struct.unpack(f"<{count}I", self.client.read(block, 4 * count))
        self.client.set_register(R0, calls[operation](*arguments))
        return None

    def _string(self, address: int) -> bytes:
        text = bytearray()
        while b"\0" not in text[-32:]:
            if len(self.text) + len(text) > _TEXT:
                raise fault(f"lets the program print more than {_TEXT >> 20} MiB")
            text += self.client.read(address + len(text), 32)
        return bytes(text).split(b"\0")[0]

    def _open(self, name: int, mode: int, length: int) -> int:
        """Open a file; only the harness's files are allowed."""
        path = self.client.read(name, min(length, 32)).decode("utf-8", "replace")
        writes = mode >= 4
        if FILES.get(path) is not writes or len(self.files) == _HANDLES:
            return -1
        try:
            file = (self.cwd / path).open("wb" if writes else "rb")
        except OSError:
            return -1
        handle = max(self.files, default=0) + 1
        self.files[handle] = file
        return handle

    def _close(self, handle: int) -> int:
        file = self.files.pop(handle, None)
        if file is None:
            return -1
        file.close()
        return 0

    def _put(self, handle: int, address: int, size: int) -> int:
        file = self.files.get(handle)
        if file is None or not file.writable() or size > _MOST:
            return size
        file.write(self.client.read(address, size) if size else b"")
        return 0

    def _get(self, handle: int, address: int, size: int) -> int:
        file = self.files.get(handle)
        if file is None or not file.readable() or size > _MOST:
            return size
        data = file.read(size)
        self.client.write(address, data)
        return size - len(data)

    def _seek(self, handle: int, position: int) -> int:
        file = self.files.get(handle)
        if file is None or position > self._length(handle):  # never create a gap
            return -1
        file.seek(position)
        return 0

    def _length(self, handle: int) -> int:
        file = self.files.get(handle)
        if file is None:
            return -1
        here = file.tell()
        size = file.seek(0, io.SEEK_END)
        file.seek(here)
        return size


# ---- load an image into a board's memory, or check that it is there


Segment = tuple[int, bytes]
"""Address and content."""

PROBE = 256
"""Bytes at each segment's start and end that are compared first: other images nearly always differ there."""


def bring_image(client: Client, board: Board, elf: Path) -> None:
    """Load the image unless it is there, then compare (E3042: it cannot be loaded; E3043: the board has another image)."""
    link = board.gdb
    assert link is not None
    parts = segments(elf)
    if link.load == "none":
        if link.command:
            _run_command(board, link.command, elf, seconds=client.end - time.monotonic())
        if not is_there(client, parts):
            how = "load_command loaded" if link.command else "the board has"
            raise ToolchainError(Problem("E3043", f"{board.name}: {how} a different image than {elf.name}"))
        return
    if link.load == "flash" and is_there(client, parts):
        return
    regions = client.memory_map() if link.load == "flash" else []
    flash = [p for p in parts if _flash_of(p, regions) is not None]
    _write_flash(client, flash, regions)
    for address, data in parts:
        if (address, data) not in flash:
            client.write(address, data)
    if not is_there(client, parts):
        hint = " (the server has no memory map, so it cannot write flash: use load_command)" if not regions else ""
        message = f"{board.name}: {elf.name} was written, but reads back differently{hint}"
        raise ToolchainError(Problem("E3042", message))


def segments(elf: Path) -> list[Segment]:
    """The file's segments, sorted by load address."""
    with elf.open("rb") as stream:
        loaded = [s for s in ELFFile(stream).iter_segments() if s["p_type"] == "PT_LOAD" and s["p_filesz"]]
        return sorted((s["p_paddr"], s.data()) for s in loaded)


def is_there(client: Client, parts: Sequence[Segment]) -> bool:
    """Whether the memory contains the segments; compares their ends first, where most other images differ."""
    for address, data in parts:
        head, tail = data[:PROBE], data[-PROBE:]
        if client.read(address, len(head)) != head or client.read(address + len(data) - len(tail), len(tail)) != tail:
            return False
    return all(client.read(address, len(data)) == data for address, data in parts)


def _flash_of(part: Segment, regions: Sequence[Region]) -> Region | None:
    address, data = part
    return next(
        (r for r in regions if r.kind == "flash" and r.start <= address and address + len(data) <= r.start + r.size), None
    )


def _write_flash(client: Client, parts: Sequence[Segment], regions: Sequence[Region]) -> None:
    """Erase the blocks that the segments touch, each once, then write and finish."""
    if not parts:
        return
    blocks: set[tuple[int, int]] = set()
    for address, data in parts:
        region = _flash_of((address, data), regions)
        assert region is not None
        block = region.block or region.size
        first = (address - region.start) // block
        last = (address + len(data) - 1 - region.start) // block
        blocks |= {(region.start + n * block, block) for n in range(first, last + 1)}
    for start, size in sorted(blocks):
        client.must(b"vFlashErase:%x,%x" % (start, size), f"erase flash at 0x{start:08x}", seconds=FLASH_SECONDS)
    for address, data in parts:
        done = 0
        while done < len(data):
            part = data[done : done + fitting(data[done:], client.packet_size - 32)]
            where = address + done
            client.must(b"vFlashWrite:%x:" % where + part, f"write flash at 0x{where:08x}", seconds=FLASH_SECONDS)
            done += len(part)
    client.must(b"vFlashDone", "finish writing flash", seconds=FLASH_SECONDS)


def _run_command(board: Board, command: Sequence[str], elf: Path, *, seconds: float) -> None:
    words = [word.replace("{elf}", str(elf.resolve())) for word in command]
    done = run_program(words, timeout=min(max(seconds, 0.0), TOOL_SECONDS))
    if done.code:
        lines = (done.err or done.out).strip().splitlines()
        raise ToolchainError(Problem("E3042", f"{board.name}: {words[0]} ended with code {done.code}: {' / '.join(lines[-3:])}"))


# ---- the connection: the server in board.toml, if any, is started first and stopped afterwards


START_SECONDS = 20.0
"""Time limit for a server to start listening."""
_HINTS = (
    ("unable to find a matching cmsis-dap", "connect the board by USB"),
    ("waiting for a debug probe", "connect the board by USB"),
    ("no device found", "connect the board by USB"),
    ("no connected debug probes", "connect the board by USB"),
    ("no available debug probes", "connect the board by USB"),
    ("open failed", "connect the board by USB, and check that no other program uses its probe"),
    ("libusb_open() failed", "allow this user to use the probe (udev rules of the server's package)"),
    ("permission denied", "allow this user to use the probe (udev rules of the server's package)"),
    ("address already in use", "stop the other server on this port"),
    ("can't find", "use the server's own name for the board or the interface"),
    ("init mode failed", "check that the board has power and its debug pins are connected"),
    ("unable to connect to the target", "check that the board has power and its debug pins are connected"),
)
"""Server's error message in lower case, and how to fix it."""


@contextmanager
def connected(name: str, link: GdbLink) -> Iterator[Client]:
    """The client of a board's server (ToolchainError E3040 if there is none); a server that aot did not start keeps running."""
    with tempfile.TemporaryFile() as log:
        port = free_port() if "{port}" in link.connect else int(link.connect.rpartition(":")[2])
        host = link.connect.rpartition(":")[0].strip("[]") or "127.0.0.1"
        process = _start(name, link, port, log)
        try:
            client = _client(name, _connect(name, host, port, process, log), process, log)
            try:
                yield client
            finally:
                client.leave()
        finally:
            if process is not None:
                _end(process)


def free_port() -> int:
    """A free port of the loopback address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _start(name: str, link: GdbLink, port: int, log: IO[bytes]) -> subprocess.Popen[bytes] | None:
    if not link.server:
        return None
    command = [word.replace("{port}", str(port)) for word in link.server]
    try:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        message = f"{name}: the server {printable(command[0])} cannot be started: {reason}"
        raise ToolchainError(Problem("E3040", message)) from None


def _connect(
    name: str, host: str, port: int, process: subprocess.Popen[bytes] | None, log: IO[bytes]
) -> socket.socket:  # fmt: skip
    end = time.monotonic() + (START_SECONDS if process is not None else 2.0)
    while True:
        try:
            stream = socket.create_connection((host, port), timeout=2.0)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return stream
        except OSError as error:
            if process is not None and process.poll() is not None:
                raise _ended(name, process, log) from None
            if time.monotonic() > end:
                reason = error.strerror or str(error)
                message = f"{name}: no GDB server at {host}:{port} ({reason}): start one, or set [gdb] server in board.toml"
                if process is not None:
                    text = _last_lines(log)
                    message = f"{name}: the server does not listen at {host}:{port}: {text or 'it printed nothing'}{_hint(text)}"
                raise ToolchainError(Problem("E3040", message)) from None
            time.sleep(0.02)


def _client(name: str, stream: socket.socket, process: subprocess.Popen[bytes] | None, log: IO[bytes]) -> Client:
    try:
        return Client(stream)
    except (ToolchainError, NoAnswerError) as error:
        stream.close()
        if process is not None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(2.0)
                raise _ended(name, process, log) from None
        if process is None and isinstance(error, NoAnswerError | ClosedError):
            what = "accepts the connection, but does not answer" if isinstance(error, NoAnswerError) else "closes the connection"
            raise fault(f"{what}: perhaps another client is attached (a debugger, an IDE, another aot); close it first") from None
        raise error if isinstance(error, ToolchainError) else fault("does not answer") from None


def _ended(name: str, process: subprocess.Popen[bytes], log: IO[bytes]) -> ToolchainError:
    text = _last_lines(log)
    message = f"{name}: the server exited with code {process.returncode}: {text or 'it printed nothing'}{_hint(text)}"
    return ToolchainError(Problem("E3040", message))


def _hint(text: str) -> str:
    return next((f"; {advice}" for message, advice in _HINTS if message in text.lower()), "")


def _last_lines(log: IO[bytes]) -> str:
    """The last lines of a server's output; if there are lines with errors, the last of these."""
    log.seek(max(0, log.seek(0, io.SEEK_END) - (1 << 16)))
    lines = [printable(text.strip()) for text in log.read(1 << 16).decode("utf-8", "replace").splitlines() if text.strip()]
    errors = [text for text in lines if any(word in text.lower() for word in ("error", "fail", "unable", "no "))]
    return " / ".join((errors or lines)[-3:])


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(5.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
