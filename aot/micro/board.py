"""Boards: one folder each, `boards/<name>/board.toml`, found in a checkout or in an installed package.

Adding a board is adding a folder; nothing in the compiler names one.  docs/boards.md describes the file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from aot.errors import Problem, UsageError
from aot.support.data import data_folder
from aot.support.pool import Pool

UARTS = ("cmsdk",)
"""Serial ports that aot/template/project has a driver for."""
GPIOS = ("cmsdk",)
"""Output pins that aot/template/project has a driver for."""


@dataclass(frozen=True, slots=True)
class Memory:
    """One memory region; `origin` and `size` in bytes; `access` is the linker's: rx or rw."""

    name: str
    access: str
    origin: int
    size: int


@dataclass(frozen=True, slots=True)
class Uart:
    """The serial port that reaches the host: `kind` names a driver (cmsdk), `base` its registers, `clock` is in Hz."""

    kind: str
    base: int
    clock: int


@dataclass(frozen=True, slots=True)
class Gpio:
    """An output pin: `kind` names a driver (cmsdk), `base` the port's registers, `pin` is 0 to 7."""

    kind: str
    base: int
    pin: int


@dataclass(frozen=True, slots=True)
class Board:
    """What is needed to build for a board and to run on it.

    `tick` is the number of instructions per SysTick tick (None: the board cannot count).  `constants` and `workspace` are
    lists of regions in order of preference: the first with enough room is taken.  `stack` is in bytes, `timeout` in seconds.
    `pools` are the memories that the workspace is spread over (none: it is one array in a region of `workspace`).
    """

    name: str
    title: str
    kind: str
    cpu: str
    flags: tuple[str, ...]
    machine: str
    qemu_cpu: str
    tick: Fraction | None
    memory: tuple[Memory, ...]
    code: str
    constants: tuple[str, ...]
    data: str
    workspace: tuple[str, ...]
    stack: int
    timeout: float
    uart: Uart | None = None
    gpio: Gpio | None = None
    pools: tuple[Pool, ...] = ()

    @property
    def is_host(self) -> bool:
        return self.kind == "host"

    def region(self, name: str) -> Memory:
        return next(m for m in self.memory if m.name == name)


class _Reader:
    """Reads one table of the file and notes every problem, so that all are reported at once."""

    def __init__(self, table: Mapping[str, Any], where: str, problems: list[Problem]) -> None:
        self.table = table
        self.where = where
        self.problems = problems
        self.known: set[str] = set()

    def note(self, message: str) -> None:
        self.problems.append(Problem("E5021", message, self.where))

    def take(self, key: str, kind: type, default: Any) -> Any:
        """The value of `key`; a default of None means that the key is required."""
        self.known.add(key)
        value = self.table.get(key)
        right = isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool)
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if value is not None and right:
            return value
        if value is not None:
            self.note(f"{key} must be {kind.__name__}, not {type(value).__name__}")
        elif default is None:
            self.note(f"{key} is missing")
        return kind() if default is None else default

    def strings(self, key: str, *, required: bool) -> tuple[str, ...]:
        values = self.take(key, list, None if required else [])
        if not all(isinstance(v, str) for v in values):
            self.note(f"{key} must be a list of strings")
            return ()
        return tuple(values)

    def finish(self) -> None:
        for key in sorted(set(self.table) - self.known):
            self.note(f"unknown key {key!r}")


def _sub(top: _Reader, key: str, path: str, *, required: bool) -> _Reader:
    table = top.take(key, dict, None if required else {})
    return _Reader(table, f"{path} [{key}]", top.problems)


def _tick(table: _Reader) -> Fraction | None:
    pair = table.take("instructions_per_tick", list, None)
    table.finish()
    if len(pair) != 2 or not all(isinstance(v, int) and v > 0 for v in pair):
        table.note("instructions_per_tick must be two positive integers: numerator, denominator")
        return None
    tick = Fraction(pair[0], pair[1])
    if tick.numerator % 7 == 0 or tick.numerator > 256:
        table.note("the counter of crt/src/systick.c needs a numerator of at most 256 that 7 does not divide")
    return tick


def _uart(table: _Reader) -> Uart:
    port = Uart(table.take("kind", str, None), table.take("base", int, None), table.take("clock", int, None))
    table.finish()
    if port.kind not in UARTS:
        table.note(f"kind must be one of {', '.join(UARTS)}")
    return port


def _gpio(table: _Reader) -> Gpio:
    port = Gpio(table.take("kind", str, None), table.take("base", int, None), table.take("pin", int, None))
    table.finish()
    if port.kind not in GPIOS:
        table.note(f"kind must be one of {', '.join(GPIOS)}")
    if not 0 <= port.pin <= 7:
        table.note("pin must be 0 to 7")
    return port


def _memories(top: _Reader, path: str) -> tuple[Memory, ...]:
    regions: list[Memory] = []
    for i, table in enumerate(top.take("memory", list, None)):
        if not isinstance(table, dict):
            top.note("memory must be written [[memory]]")
            continue
        r = _Reader(table, f"{path} [[memory]] {i}", top.problems)
        name, access = r.take("name", str, None), r.take("access", str, None)
        region = Memory(name, access, r.take("origin", int, None), r.take("size", int, None))
        r.finish()
        if region.access not in ("rx", "rw"):
            r.note("access must be rx or rw")
        if region.origin < 0 or region.size <= 0 or region.origin + region.size > 1 << 32:
            r.note("origin and size must lie within 32 bits")
        if any(o.origin < region.origin + region.size and region.origin < o.origin + o.size for o in regions):
            r.note(f"{region.name} overlaps another region")
        regions.append(region)
    if len({m.name for m in regions}) != len(regions):
        top.note("two regions have the same name")
    return tuple(regions)


def _pools(top: _Reader, path: str, memory: Sequence[Memory]) -> tuple[Pool, ...]:
    pools: list[Pool] = []
    for i, table in enumerate(top.take("pool", list, [])):
        if not isinstance(table, dict):
            top.note("pool must be written [[pool]]")
            continue
        r = _Reader(table, f"{path} [[pool]] {i}", top.problems)
        name, size = r.take("name", str, None), r.take("size", int, None)
        address, speed = r.take("address", int, -1), r.take("speed", float, 1.0)
        r.finish()
        pool = Pool(name, size, None if "address" not in table else address, speed)
        if pool.fault:
            r.note(pool.fault)
        elif pool.address is not None and not any(
            m.access == "rw" and m.origin <= pool.address and pool.address + size <= m.origin + m.size for m in memory
        ):
            r.note("no writable [[memory]] holds it")
        pools.append(pool)
    return tuple(pools)


def _check_places(table: _Reader, memory: Sequence[Memory], places: Mapping[str, Sequence[str]]) -> None:
    by_name = {m.name: m for m in memory}
    for key, names in places.items():
        if not names:
            table.note(f"{key} names no region")
        for name in names:
            if name not in by_name:
                table.note(f"{key}: no [[memory]] has the name {name!r}")
            elif key in ("data", "workspace") and by_name[name].access != "rw":
                table.note(f"{key}: {name} is not writable")


def parse_board(text: str, path: str) -> Board:
    """A Board from the text of a board.toml; `path` is used in messages only.

    Raises UsageError E5021 with every problem of the file.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(Problem("E5021", f"not TOML: {error}", path)) from None
    problems: list[Problem] = []
    top = _Reader(document, path, problems)
    name, title = top.take("name", str, None), top.take("title", str, None)
    kind, cpu = top.take("kind", str, None), top.take("cpu", str, None)
    flags = top.strings("flags", required=True)
    emulated = kind != "host"
    if kind not in ("host", "qemu"):
        top.note('kind must be "host" or "qemu"')
    run = _sub(top, "run", path, required=True)
    timeout = run.take("timeout_seconds", float, None)
    if "timeout_seconds" in run.table and not timeout > 0:
        run.note("timeout_seconds must be positive")
    stack = run.take("stack", int, None if emulated else 0)
    run.finish()
    machine, qemu_cpu, tick = "", "", None
    uart: Uart | None = None
    gpio: Gpio | None = None
    pools: tuple[Pool, ...] = ()
    memory: tuple[Memory, ...] = ()
    code, data = "", ""
    constants: tuple[str, ...] = ()
    workspace: tuple[str, ...] = ()
    if emulated:
        qemu = _sub(top, "qemu", path, required=True)
        machine, qemu_cpu = qemu.take("machine", str, None), qemu.take("cpu", str, None)
        qemu.finish()
        tick = _tick(_sub(top, "systick", path, required=True))
        uart = _uart(_sub(top, "uart", path, required=False)) if "uart" in document else None
        gpio = _gpio(_sub(top, "gpio", path, required=False)) if "gpio" in document else None
        memory = _memories(top, path)
        pools = _pools(top, path, memory)
        place = _sub(top, "placement", path, required=True)
        code, data = place.take("code", str, None), place.take("data", str, None)
        constants = place.strings("constants", required=True)
        workspace = place.strings("workspace", required=True)
        place.finish()
        _check_places(place, memory, {"code": [code], "constants": constants, "data": [data], "workspace": workspace})
        if stack <= 0 or stack % 8:
            run.note("stack must be a positive multiple of 8")
    top.finish()
    if problems:
        raise UsageError(*problems)
    return Board(
        name=name, title=title, kind=kind, cpu=cpu, flags=flags, machine=machine, qemu_cpu=qemu_cpu, tick=tick,
        memory=memory, code=code, constants=constants, data=data, workspace=workspace, stack=stack, timeout=timeout,
        uart=uart, gpio=gpio, pools=pools,
    )  # fmt: skip


def board_names(folder: Path | None = None) -> list[str]:
    """The names of all boards, sorted; `folder` is the folder of board folders (default: ours)."""
    root = folder or data_folder("boards")
    return sorted(p.parent.name for p in root.glob("*/board.toml"))


def load_board(name: str, folder: Path | None = None) -> Board:
    """The board in `<folder>/<name>/board.toml`, or in the folder that `name` itself is a path to.

    Raises UsageError E5020 (no such board) or E5021 (malformed file).
    """
    root = folder or data_folder("boards")
    path = root / name / "board.toml"
    if "/" in name:
        path = Path(name) / "board.toml"
    if not name or not path.is_file():
        known = ", ".join(board_names(root))
        raise UsageError(Problem("E5020", f"there is no board {name!r}; known boards: {known}"))
    where = f"{path.parent.name}/board.toml"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(Problem("E5021", f"cannot be read as text: {error}", where)) from None
    board = parse_board(text, where)
    if board.name != path.parent.name:
        raise UsageError(Problem("E5021", f"name is {board.name!r}, the folder is {path.parent.name!r}", f"{name}/board.toml"))
    return board
