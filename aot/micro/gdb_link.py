"""How a board of kind gdb is reached: the tables [gdb], [clock] and [cycles] of its board.toml."""

from __future__ import annotations

import re

from aot.micro.toml_table import TableReader
from aot.support.dataclass import dataclass

COUNTERS = ("dwt", "systick")
"""Cycle counters: DWT's CYCCNT (M3, M4, M7, M33, M55), or SysTick at the core's clock (every core)."""

LOADS = ("flash", "ram", "none")
"""By the server's memory map; as plain writes; or not at all, as something else loads the image."""

_WORDS = 1 << 32
_ADDRESS = re.compile(r"[A-Za-z0-9.:\[\]-]+:[0-9]{1,5}|")


@dataclass(frozen=True, slots=True)
class ClockStep:
    """One register of the clock's set-up: the bits of `mask` become those of `value`."""

    address: int
    value: int
    mask: int


@dataclass(frozen=True, slots=True)
class GdbLink:
    """A server that speaks GDB's remote protocol, and its commands.

    `connect` is HOST:PORT; where `server` has a command, it is started first, with a free port in the place of {port}.
    `reset` are monitor commands.  `load` is one of LOADS, or with `command` what brings the image there ({elf} in it).
    `counter`: one of COUNTERS, "" where the machine counts instructions ([systick]).  `hz` is the core's clock while it runs
    (0: not known), after the steps of `init` were written; `wait_states` are those of the flash at that clock, -1: not known.
    """

    connect: str
    server: tuple[str, ...]
    reset: tuple[str, ...]
    load: str
    command: tuple[str, ...]
    hz: int
    init: tuple[ClockStep, ...]
    counter: str
    wait_states: int


def read_link(top: TableReader, path: str) -> GdbLink:
    """The three tables; what is wrong with them is noted (E5021)."""
    gdb = top.sub("gdb", path, required=True)
    server = gdb.strings("server", required=False)
    connect = gdb.take("connect", str, "127.0.0.1:{port}" if server else None)
    fixed = "{port}" not in connect
    if fixed and not (_ADDRESS.fullmatch(connect) and int(connect.rpartition(":")[2] or 0) < 1 << 16):
        gdb.note(f"connect {connect!r}: give HOST:PORT, such as 127.0.0.1:3333")
    if server and not any("{port}" in word for word in server) and "{port}" in connect:
        gdb.note('server: no word has {port}, the place of the port to listen on; or give connect = "HOST:PORT"')
    reset = gdb.strings("reset", required=False)
    command = gdb.strings("load_command", required=False)
    load = gdb.take("load", str, "none" if command else "flash")
    gdb.finish()
    if load not in LOADS:
        gdb.note(f"load must be one of {', '.join(LOADS)}")
    if command and load != "none":
        gdb.note("load_command brings the image, so load is none")
    clock = top.sub("clock", path, required=False)
    hz = clock.take("hz", int, 0)
    wait_states = clock.take("wait_states", int, -1)
    init = _steps(clock)
    clock.finish()
    if not 0 <= hz < _WORDS:
        clock.note("hz must be a frequency in Hz")
    if "wait_states" in clock.table and not 0 <= wait_states < 256:
        clock.note("wait_states are those of the flash: 0 to 255")
    cycles = top.sub("cycles", path, required=False)
    counter = cycles.take("counter", str, "")
    cycles.finish()
    if counter and counter not in COUNTERS:
        cycles.note(f"counter must be one of {', '.join(COUNTERS)}")
    if counter and "systick" in top.table and "qemu" not in top.table:
        cycles.note("a board counts cycles, or instructions by [systick], not both")
    return GdbLink(connect, server, reset, load, command, hz, init, counter, wait_states)


def _steps(clock: TableReader) -> tuple[ClockStep, ...]:
    steps = []
    for step in clock.take("init", list, []):
        numbers = step if isinstance(step, list) and all(type(n) is int and -1 <= n < _WORDS for n in step) else []
        if len(numbers) not in (2, 3) or numbers[0] % 4:
            clock.note("init is a list of [address, value] or [address, value, mask], words at multiples of 4")
            return ()
        steps.append(ClockStep(numbers[0], numbers[1], numbers[2] if len(numbers) == 3 else _WORDS - 1))
    return tuple(steps)
