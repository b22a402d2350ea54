"""A connection to a GDB server, which is started first where the board says how, and ended afterwards."""

from __future__ import annotations

import io
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

from aot.errors import Problem, ToolchainError
from aot.micro.gdb_link import GdbLink
from aot.micro.run.rsp import Client, ClosedError, NoAnswerError, fault
from aot.support.text import printable

START_SECONDS = 20.0
"""How long a server may take until it listens."""
_HINTS = (
    ("unable to find a matching cmsis-dap", "connect the board by USB"),
    ("waiting for a debug probe", "connect the board by USB"),
    ("no device found", "connect the board by USB"),
    ("no connected debug probes", "connect the board by USB"),
    ("no available debug probes", "connect the board by USB"),
    ("open failed", "connect the board by USB, and see that no other program has its probe"),
    ("libusb_open() failed", "allow this user to use the probe (udev rules of the server's package)"),
    ("permission denied", "allow this user to use the probe (udev rules of the server's package)"),
    ("address already in use", "end the other server on this port"),
    ("can't find", "give the server's own name of the board or the interface"),
    ("init mode failed", "see that the board has power and its debug pins are connected"),
    ("unable to connect to the target", "see that the board has power and its debug pins are connected"),
)
"""What servers print when they cannot work, in lower case, and what a person can do."""


@contextmanager
def connected(name: str, link: GdbLink) -> Iterator[Client]:
    """The client of a board's server (ToolchainError E3040 if none is reached); a server that aot did not start lives on."""
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
    """A port of the loopback address that nothing listens on."""
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
                message = f"{name}: no GDB server at {host}:{port} ({reason}): start it, or give [gdb] server in board.toml"
                if process is not None:
                    said = _last_lines(log)
                    message = f"{name}: the server does not listen at {host}:{port}: {said or 'it printed nothing'}{_hint(said)}"
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
            said = "accepts the connection, but does not answer" if isinstance(error, NoAnswerError) else "closes the connection"
            raise fault(f"{said}: perhaps another client is attached (a debugger, an IDE, another aot); end it first") from None
        raise error if isinstance(error, ToolchainError) else fault("does not answer") from None


def _ended(name: str, process: subprocess.Popen[bytes], log: IO[bytes]) -> ToolchainError:
    said = _last_lines(log)
    message = f"{name}: the server ended with code {process.returncode}: {said or 'it printed nothing'}{_hint(said)}"
    return ToolchainError(Problem("E3040", message))


def _hint(said: str) -> str:
    return next((f"; {what}" for sign, what in _HINTS if sign in said.lower()), "")


def _last_lines(log: IO[bytes]) -> str:
    """The last lines that a server printed, those that speak of errors before others."""
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
