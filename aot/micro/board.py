"""Boards: one folder per board, `boards/<name>/board.toml`, found in a checkout or in an installed package.

To add a board, add a folder; the compiler names no boards.  docs/boards.md describes the file.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from aot.errors import Problem, UsageError
from aot.support.dataclass import dataclass
from aot.support.memory_pool import Pool
from aot.support.names import name_fault
from aot.support.text import did_you_mean, printable
from aot.system.files import data_folder
from aot.target.cpu import CORES

UARTS = ("cmsdk",)
"""Kinds of serial ports with a driver in aot/template/project."""
GPIOS = ("cmsdk",)
"""Kinds of output pins with a driver in aot/template/project."""
MAX_TIMEOUT = 1e6
"""seconds"""
MAX_TEXT = 1 << 20
"""bytes of a board.toml"""
_FLAG = re.compile(r"-[A-Za-z0-9_=+,./:-]*")
_MACHINE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_=+,.-]*")
_TITLE = re.compile(r"[\w +&'(),./:;=@#-]{1,120}")
_WORDS = 1 << 32
CACHES = ("instruction", "data")
"""Caches that the start-up code can enable, on cores that may have them."""


@dataclass(frozen=True, slots=True)
class Memory:
    """One memory region; `origin` and `size` in bytes; `access` as in a linker script: rx or rw."""

    name: str
    access: str
    origin: int
    size: int


@dataclass(frozen=True, slots=True)
class Uart:
    """The serial port that is connected to the host: `kind` names a driver (cmsdk), `base` its registers, `clock` is in Hz."""

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
class Machine:
    """A QEMU machine, QEMU's name of its core, and its instructions per SysTick tick."""

    name: str
    cpu: str
    tick: Fraction | None


EMULATED = "qemu:"
"""Prefix of `--board qemu:NAME`: a board of kind gdb on an emulated machine with its memory map ([qemu] in its board.toml)."""


@dataclass(frozen=True, slots=True)
class Board:
    """Everything needed to build for a board and to run on it.

    `tick` is the number of instructions per SysTick tick (None: the board cannot count).  `constants` and `workspace` list
    regions in order of preference: the first with enough room is used.  `stack` is in bytes, `timeout` in seconds.
    `pools` are the memories that the workspace is spread over (none: it is one array in a region of `workspace`).
    `gdb` is the connection of a board of kind gdb, whose `machine` and `qemu_cpu` are empty.  `like` is the QEMU machine that
    runs such a board's images; a board loaded as `qemu:NAME` has NAME in `emulates`.
    `caches`: the members of CACHES that the start-up code enables.
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
    gdb: GdbLink | None = None
    like: Machine | None = None
    emulates: str = ""
    caches: tuple[str, ...] = ()

    @property
    def cache_bits(self) -> int:
        """AOT_CACHES of crt/src/startup.c: 1 for instructions, 2 for data."""
        return sum(1 << CACHES.index(name) for name in self.caches)

    @property
    def counts_cycles(self) -> bool:
        """Whether its counter counts core cycles; otherwise `tick` converts counts to instructions."""
        return self.gdb is not None and self.gdb.counter != ""

    @property
    def is_host(self) -> bool:
        return self.kind == "host"

    def region(self, name: str) -> Memory:
        return next(m for m in self.memory if m.name == name)


def _tick(table: TableReader) -> Fraction | None:
    pair = table.take("instructions_per_tick", list, None)
    table.finish()
    if len(pair) != 2 or not all(isinstance(v, int) and 0 < v < 1 << 16 for v in pair):
        table.note("instructions_per_tick must be two positive integers below 65536: numerator, denominator")
        return None
    tick = Fraction(pair[0], pair[1])
    if tick.numerator % 7 == 0 or tick.numerator > 256:
        table.note("the counter of crt/src/systick.c needs a numerator of at most 256 that 7 does not divide")
    return tick


def _uart(table: TableReader) -> Uart:
    port = Uart(table.take("kind", str, None), table.below("base", _WORDS, step=4), table.below("clock", _WORDS, least=1))
    table.finish()
    if port.kind not in UARTS:
        table.note(f"kind must be one of {', '.join(UARTS)}")
    return port


def _gpio(table: TableReader) -> Gpio:
    port = Gpio(table.take("kind", str, None), table.below("base", _WORDS, step=4), table.below("pin", 8))
    table.finish()
    if port.kind not in GPIOS:
        table.note(f"kind must be one of {', '.join(GPIOS)}")
    return port


def _memories(top: TableReader, path: str) -> tuple[Memory, ...]:
    regions: list[Memory] = []
    for i, table in enumerate(top.take("memory", list, None)):
        if not isinstance(table, dict):
            top.note("memory must be written [[memory]]")
            continue
        r = TableReader(table, f"{path} [[memory]] {i}", top.problems)
        name, access = r.named("name", symbol=True), r.take("access", str, None)
        region = Memory(name, access, r.take("origin", int, None), r.take("size", int, None))
        r.finish()
        if region.access not in ("rx", "rw"):
            r.note("access must be rx or rw")
        if region.origin < 0 or region.size <= 0 or region.origin + region.size > 1 << 32:
            r.note("origin and size must fit in 32 bits")
        if any(o.origin < region.origin + region.size and region.origin < o.origin + o.size for o in regions):
            r.note(f"{region.name} overlaps another region")
        regions.append(region)
    if len({m.name for m in regions}) != len(regions):
        top.note("two regions have the same name")
    return tuple(regions)


def _pools(top: TableReader, path: str, memory: Sequence[Memory]) -> tuple[Pool, ...]:
    pools: list[Pool] = []
    for i, table in enumerate(top.take("pool", list, [])):
        if not isinstance(table, dict):
            top.note("pool must be written [[pool]]")
            continue
        r = TableReader(table, f"{path} [[pool]] {i}", top.problems)
        name, size = r.take("name", str, None), r.take("size", int, None)
        address, speed = r.take("address", int, -1), r.take("speed", float, 1.0)
        r.finish()
        pool = Pool(name, size, None if "address" not in table else address, speed)
        if pool.fault:
            r.note(pool.fault)
        elif pool.address is not None and not any(
            m.access == "rw" and m.origin <= pool.address and pool.address + size <= m.origin + m.size for m in memory
        ):
            r.note("it is not inside a writable [[memory]]")
        pools.append(pool)
    return tuple(pools)


def _check_places(table: TableReader, memory: Sequence[Memory], places: Mapping[str, Sequence[str]]) -> None:
    by_name = {m.name: m for m in memory}
    for key, names in places.items():
        if not names:
            table.note(f"{key} does not name a region")
        for name in names:
            if name not in by_name:
                table.note(f"{key}: no [[memory]] has the name {name!r}")
            elif key in ("data", "workspace") and by_name[name].access != "rw":
                table.note(f"{key}: {name} is not writable")


def _document(text: str, path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError, or a number of thousands of digits
        raise UsageError(Problem("E5021", f"not TOML: {error}", path)) from None
    except RecursionError:
        raise UsageError(Problem("E5021", "not a board file: its values are nested too deeply", path)) from None


def _caches(top: TableReader, cpu: str) -> tuple[str, ...]:
    caches = top.strings("caches", required=False)
    if set(caches) - set(CACHES) or len(set(caches)) != len(caches):
        top.note(f"caches may only contain {' and '.join(CACHES)}, each at most once")
        return ()
    core = CORES.get(cpu.partition("+")[0])
    if caches and (core is None or not core.caches):
        top.note(f"caches: {cpu} has none; {', '.join(c.name for c in CORES.values() if c.caches)} may have them")
    return caches


def _flags(top: TableReader) -> tuple[str, ...]:
    flags = top.strings("flags", required=True)
    for flag in flags:
        if not _FLAG.fullmatch(flag):
            top.note(f"flags: {flag!r} must begin with - and may contain only letters, digits and _ = + , . / : -")
    return flags


def parse_board(text: str, path: str) -> Board:
    """The Board in the text of a board.toml; `path` is used in messages only.

    Raises UsageError E5021 with every problem of the file.
    """
    document = _document(text, path)
    problems: list[Problem] = []
    top = TableReader(document, path, problems)
    name = top.named("name", symbol=False)
    title = top.matching("title", _TITLE, "a line of at most 120 letters, digits, spaces and + & ' ( ) , . / : ; = @ # - _")
    kind, cpu = top.take("kind", str, None), top.named("cpu", symbol=False)
    flags, caches = _flags(top), _caches(top, cpu)
    if kind not in ("host", "qemu", "gdb"):
        top.note('kind must be "host", "qemu" or "gdb"')
    run = top.sub("run", path, required=True)
    timeout = run.take("timeout_seconds", float, None)
    if "timeout_seconds" in run.table and not 0 < timeout <= MAX_TIMEOUT:
        run.note(f"timeout_seconds must be positive, and at most {MAX_TIMEOUT:.0f}")
    stack = run.take("stack", int, None if kind != "host" else 0)
    run.finish()
    parts = _Parts()
    if kind != "host":
        parts = _parts(top, path, kind)
        if not 0 < stack < _WORDS or stack % 8:
            run.note("stack must be a positive multiple of 8, within 32 bits")
    top.finish()
    if problems:
        raise UsageError(*problems)
    machine = parts.machine if kind == "qemu" else _NONE
    return Board(
        name=name, title=title, kind=kind, cpu=cpu, flags=flags, machine=machine.name, qemu_cpu=machine.cpu, tick=parts.tick,
        memory=parts.memory, code=parts.code, constants=parts.constants, data=parts.data, workspace=parts.workspace, stack=stack,
        timeout=timeout, uart=parts.uart, gpio=parts.gpio, pools=parts.pools, gdb=parts.link,
        like=parts.machine if kind == "gdb" and parts.machine.name else None, caches=caches,
    )  # fmt: skip


_NONE = Machine("", "", None)


@dataclass(frozen=True, slots=True)
class _Parts:
    """The part of the file that applies to all boards but the host."""

    machine: Machine = _NONE
    tick: Fraction | None = None
    link: GdbLink | None = None
    memory: tuple[Memory, ...] = ()
    code: str = ""
    constants: tuple[str, ...] = ()
    data: str = ""
    workspace: tuple[str, ...] = ()
    uart: Uart | None = None
    gpio: Gpio | None = None
    pools: tuple[Pool, ...] = ()


def _parts(top: TableReader, path: str, kind: str) -> _Parts:
    link = read_link(top, path) if kind == "gdb" else None
    cycles = link is not None and link.counter != ""
    machine = _NONE
    if kind == "qemu" or "qemu" in top.table:
        qemu = top.sub("qemu", path, required=True)
        name, cpu = (qemu.matching(k, _MACHINE, "a name that QEMU accepts") for k in ("machine", "cpu"))
        qemu.finish()
        machine = Machine(name, cpu, None)
    if not cycles or machine.name:
        machine = replace(machine, tick=_tick(top.sub("systick", path, required=True)))
    uart = _uart(top.sub("uart", path, required=False)) if "uart" in top.table else None
    gpio = _gpio(top.sub("gpio", path, required=False)) if "gpio" in top.table else None
    memory = _memories(top, path)
    pools = _pools(top, path, memory)
    place = top.sub("placement", path, required=True)
    code, data = place.take("code", str, None), place.take("data", str, None)
    constants = place.strings("constants", required=True)
    workspace = place.strings("workspace", required=True)
    place.finish()
    _check_places(place, memory, {"code": [code], "constants": constants, "data": [data], "workspace": workspace})
    tick = Fraction(1) if cycles else machine.tick
    return _Parts(machine, tick, link, memory, code, constants, data, workspace, uart, gpio, pools)


def emulated(board: Board) -> Board:
    """A board of kind gdb on the machine that its [qemu] names (UsageError E5021 without [qemu])."""
    if board.like is None:
        message = f"{EMULATED}{board.name}: there is no [qemu] to name the emulated machine that runs images of {board.name}"
        raise UsageError(Problem("E5021", message, f"{board.name}/board.toml"))
    machine = board.like
    return replace(
        board, name=f"{board.name}-qemu", title=f"{board.title}, on QEMU's {machine.name}", kind="qemu", machine=machine.name,
        qemu_cpu=machine.cpu, tick=machine.tick, gdb=None, like=None, emulates=board.name,
    )  # fmt: skip


def board_names(folder: Path | None = None) -> list[str]:
    """The names of all boards, sorted; `folder` contains the board folders (default: aot's, and the registered ones)."""
    roots = (folder,) if folder is not None else (data_folder("boards"), *_BOARD_FOLDERS)
    return sorted({p.parent.name for root in roots for p in root.glob("*/board.toml")})


def emulated_names() -> list[str]:
    """The names of the boards of kind qemu, sorted."""
    return [name for name in board_names() if load_board(name).kind == "qemu"]


_BOARD_FOLDERS: list[Path] = []


def register_boards(folder: Path) -> None:
    """Register a folder of board folders for `--board`; UsageError E5112 if it contains none."""
    if not isinstance(folder, Path) or not any(folder.glob("*/board.toml")):
        raise UsageError(
            Problem("E5112", f"register_boards needs a Path of a folder that contains NAME/board.toml, not {folder!r}")
        )
    if folder not in _BOARD_FOLDERS:
        _BOARD_FOLDERS.append(folder)


def load_board(name: str, folder: Path | None = None) -> Board:
    """The board in `<folder>/<name>/board.toml`, or in the folder `name` if that is a path; for `qemu:NAME` see `emulated`.

    Raises UsageError E5020 (no such board) or E5021 (malformed file).
    """
    if name.startswith(EMULATED):
        return emulated(load_board(name.removeprefix(EMULATED), folder))
    root = folder or next((f for f in _BOARD_FOLDERS if _is_file(f / name / "board.toml")), data_folder("boards"))
    path = root / name / "board.toml"
    if "/" in name:
        path = Path(name) / "board.toml"
    if not name or not _is_file(path):
        names = board_names(folder)
        hint = did_you_mean(name, names)
        if "/" not in name and name and _is_file(Path(name) / "board.toml"):
            hint = f" (did you mean ./{printable(name)}, a local folder?)"
        raise UsageError(Problem("E5020", f"there is no board {printable(name)!r}{hint}; known boards: {', '.join(names)}"))
    folder_name = path.parent.name or path.parent.resolve().name  # `./` is the current folder
    where = f"{printable(folder_name)}/board.toml"
    try:
        with path.open("rb") as file:
            text = file.read(MAX_TEXT + 1).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(Problem("E5021", f"cannot be read as text: {error}", where)) from None
    if len(text) > MAX_TEXT:
        raise UsageError(Problem("E5021", f"has more than {MAX_TEXT:,} bytes", where))
    board = parse_board(text, where)
    if board.name != folder_name:
        raise UsageError(Problem("E5021", f"name is {board.name!r}, but the folder is {folder_name!r}", where))
    return board


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name too long for the file system
        return False


# ---- [gdb], [clock] and [cycles] of a board of kind gdb


COUNTERS = ("dwt", "systick")
"""Cycle counters: DWT's CYCCNT (M3, M4, M7, M33, M55), or SysTick at the core's clock (every core)."""

LOADS = ("flash", "ram", "none")
"""Through the server's memory map; with plain writes; or not at all, because another tool loads the image."""

_ADDRESS = re.compile(r"[A-Za-z0-9.:\[\]-]+:[0-9]{1,5}|")


@dataclass(frozen=True, slots=True)
class ClockStep:
    """One register of the clock set-up: the bits in `mask` are set as in `value`."""

    address: int
    value: int
    mask: int


@dataclass(frozen=True, slots=True)
class GdbLink:
    """A server that speaks GDB's remote protocol, and its commands.

    `connect` is HOST:PORT; the command in `server`, if any, is started first, with {port} replaced by a free port.
    `reset` are monitor commands.  `load` is one of LOADS; `command`, if any, loads the image ({elf} is its path).
    `counter`: one of COUNTERS, or "" if the board counts instructions ([systick]).  `hz` is the core's clock (0: unknown) after
    the steps of `init`; `wait_states` are the flash wait states at that clock (-1: unknown).
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
    """The tables [gdb], [clock] and [cycles]; problems are noted (E5021)."""
    gdb = top.sub("gdb", path, required=True)
    server = gdb.strings("server", required=False)
    connect = gdb.take("connect", str, "127.0.0.1:{port}" if server else None)
    fixed = "{port}" not in connect
    if fixed and not (_ADDRESS.fullmatch(connect) and int(connect.rpartition(":")[2] or 0) < 1 << 16):
        gdb.note(f"connect {connect!r}: give HOST:PORT, such as 127.0.0.1:3333")
    if server and not any("{port}" in word for word in server) and "{port}" in connect:
        gdb.note('server: no word contains {port}, the port to listen on; add it, or set connect = "HOST:PORT"')
    reset = gdb.strings("reset", required=False)
    command = gdb.strings("load_command", required=False)
    load = gdb.take("load", str, "none" if command else "flash")
    gdb.finish()
    if load not in LOADS:
        gdb.note(f"load must be one of {', '.join(LOADS)}")
    if command and load != "none":
        gdb.note("load must be none, because load_command loads the image")
    clock = top.sub("clock", path, required=False)
    hz = clock.take("hz", int, 0)
    wait_states = clock.take("wait_states", int, -1)
    init = _steps(clock)
    clock.finish()
    if not 0 <= hz < _WORDS:
        clock.note("hz must be a frequency in Hz")
    if "wait_states" in clock.table and not 0 <= wait_states < 256:
        clock.note("wait_states (of the flash) must be 0 to 255")
    cycles = top.sub("cycles", path, required=False)
    counter = cycles.take("counter", str, "")
    cycles.finish()
    if counter and counter not in COUNTERS:
        cycles.note(f"counter must be one of {', '.join(COUNTERS)}")
    if counter and "systick" in top.table and "qemu" not in top.table:
        cycles.note("a board counts either cycles, or instructions with [systick], not both")
    return GdbLink(connect, server, reset, load, command, hz, init, counter, wait_states)


def _steps(clock: TableReader) -> tuple[ClockStep, ...]:
    steps = []
    for step in clock.take("init", list, []):
        numbers = step if isinstance(step, list) and all(type(n) is int and -1 <= n < _WORDS for n in step) else []
        if len(numbers) not in (2, 3) or numbers[0] % 4:
            clock.note(
                "init must be a list of [address, value] or [address, value, mask], with addresses that are multiples of 4"
            )
            return ()
        steps.append(ClockStep(numbers[0], numbers[1], numbers[2] if len(numbers) == 3 else _WORDS - 1))
    return tuple(steps)


# ---- tables of a TOML file; problems are collected and reported together


class TableReader:
    """One table of the file; `where` names it in messages; problems (E5021) are appended to `problems`."""

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
            return float(max(min(value, 1 << 64), -1 << 64))
        if value is not None and right:
            return value
        if value is not None:
            self.note(f"{key} must be {kind.__name__}, not {type(value).__name__}")
        elif default is None:
            self.note(f"{key} is missing")
        return kind() if default is None else default

    def named(self, key: str, *, symbol: bool) -> str:
        """A required name that `aot.support.names.name_fault` accepts."""
        name: str = self.take(key, str, None)
        wrong = name_fault(name, symbol=symbol) if isinstance(self.table.get(key), str) else ""
        if wrong:
            self.note(f"{key} {name!r} {wrong}")
        return name

    def matching(self, key: str, rule: re.Pattern[str], what: str) -> str:
        """A required string that `rule` matches completely; `what` describes the rule."""
        text: str = self.take(key, str, None)
        if isinstance(self.table.get(key), str) and not rule.fullmatch(text):
            self.note(f"{key} {text!r}: {what}")
        return text

    def below(self, key: str, limit: int, *, least: int = 0, step: int = 1) -> int:
        """A required whole number from `least` to below `limit`, a multiple of `step`."""
        value: int = self.take(key, int, None)
        if isinstance(self.table.get(key), int) and (not least <= value < limit or value % step):
            aligned = f", a multiple of {step}" if step > 1 else ""
            self.note(
                f"{key} must be {least:#x} to {limit - 1:#x}{aligned}" if limit > 256 else f"{key} must be {least} to {limit - 1}"
            )
        return value

    def strings(self, key: str, *, required: bool) -> tuple[str, ...]:
        values = self.take(key, list, None if required else [])
        if not all(isinstance(v, str) for v in values):
            self.note(f"{key} must be a list of strings")
            return ()
        return tuple(values)

    def finish(self) -> None:
        for key in sorted(set(self.table) - self.known):
            self.note(f"unknown key {key!r}{did_you_mean(key, self.known)}")

    def sub(self, key: str, path: str, *, required: bool) -> TableReader:
        """The table `key` of this one; an empty one if there is none."""
        table = self.take(key, dict, None if required else {})
        return TableReader(table, f"{path} [{key}]", self.problems)
