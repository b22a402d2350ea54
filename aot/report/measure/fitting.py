"""Where a model fits: as requested, with narrower budgets, or compiled another way; what each costs, and what else would help."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from aot.driver.build import Shared, compile_model
from aot.driver.options import OPTS, Options
from aot.driver.reading import NamedBytes
from aot.errors import AotError, Problem, TargetError, ToolchainError, UsageError
from aot.executor.artifact import Artifact, over_budget
from aot.memory.memory_pools import Pooling
from aot.micro.board import Board, Memory, board_names, load_board
from aot.micro.build.image import POOLED, inspect_image, section_sizes
from aot.micro.build.project import choose_places, copied_to, fixed_ram, overflow, prepare
from aot.support.dataclass import dataclass
from aot.support.memory_pool import Pool

TRIES = 6
"""Budgets that are tried: what stands beside the workspace and the constants depends on the plan a little."""

CODE_ROOM = 12 << 10
"""Bytes that code may take beside constants in a memory of their own, before the linker tells."""

Compiler = Callable[[Options], Artifact]
"""An artifact for options, also where it is over a budget."""

Linker = Callable[[Artifact], tuple[int, int] | None]
"""Builds the image, and returns its bytes of code and constants where they are known; AotError where it does not link."""


@dataclass(frozen=True, slots=True)
class Fit:
    """`artifact` is what `options` make, which are those asked for or have narrower budgets; `problems`: why it is not built.

    Where it is over a board's memory, `artifact` is the smallest that was found.  `budgets`: the words of the budgets that were
    added, as `--ram-budget 15008`.
    """

    options: Options
    artifact: Artifact
    problems: tuple[Problem, ...] = ()
    budgets: str = ""

    @property
    def text(self) -> str:
        """What was chosen in place of what was asked for, and why; "" where nothing was."""
        chosen = self.artifact.metadata.get("board_fit")
        return "" if chosen is None else str(chosen["text"])

    def built(self) -> Artifact:
        """The artifact, or its problems as TargetError."""
        if self.problems:
            raise TargetError(*self.problems)
        return self.artifact


def fit(asked: Options, board: Board | None, compiled: Compiler, link: Linker | None = None) -> Fit:
    """What is built for a board.

    As asked for, if that fits.  Else with what the board has free as budgets, for RAM and for flash, where these are smaller
    than those that were asked for.  Without a board, or on this machine, only the given budgets count.
    """
    first = made = compiled(asked)
    before = problems = _problems(asked, board, made, link)
    options = asked
    for _ in range(TRIES if board is not None and not board.is_host else 0):
        narrower = _narrower(board, options, made, problems) if board is not None and problems else None
        if narrower is None:
            break
        options, made = narrower, compiled(narrower)
        problems = _problems(asked, board, made, link)
    if options is asked or board is None:
        return Fit(asked, first, before)
    words = budget_words(options, asked)
    if problems:
        return Fit(options, made, tuple(_with_reached(before, asked, board, made, compiled)), words)
    told = {"board": board.name, "options": words, "text": _text(board, words, first.metadata, made.metadata)}
    return Fit(options, replace(made, metadata={**made.metadata, "board_fit": told}), (), words)


def linker(board: Board, folder: Path | None = None) -> Linker:
    """Builds the measuring image in a folder, or where `verify` and `run` look for it, and measures the model's own."""

    def link(artifact: Artifact) -> tuple[int, int] | None:
        if board.is_host:
            return None
        project = prepare(artifact, board, folder=folder)
        project.image("measure")
        if artifact.metadata["options"]["flash_budget"] is None:
            return None
        found = inspect_image(project)
        return found.code, found.constants

    return link


def if_installed(link: Linker) -> Linker:
    """The same, but what cannot be linked for lack of a compiler (E3001) counts as linked."""

    def tried(artifact: Artifact) -> tuple[int, int] | None:
        try:
            return link(artifact)
        except ToolchainError as error:
            if {p.code for p in error.problems} != {"E3001"}:
                raise
            return None

    return tried


def _problems(asked: Options, board: Board | None, made: Artifact, link: Linker | None) -> tuple[Problem, ...]:
    """What is over a budget that was asked for, and what a board has no room for."""
    budgets = dict.fromkeys(("ram_budget", "flash_budget"))
    if not asked.force_over_budget:
        budgets = {"ram_budget": asked.ram_budget, "flash_budget": asked.flash_budget}
    meta = {**made.metadata, "options": {**made.metadata["options"], **budgets}}
    found = problems_on(board, meta)
    if found or link is None or board is None or board.is_host:
        return found
    try:
        sizes = link(made)
    except TargetError as error:
        return error.problems
    return () if sizes is None else tuple(over_budget(meta, code_bytes=sizes[0], constant_bytes=sizes[1]))


def _narrower(board: Board, options: Options, made: Artifact, problems: Sequence[Problem]) -> Options | None:
    """The options with budgets that may solve these problems; None where there are no such, or nothing smaller was found."""
    ram, flash, meta = options.ram_budget, options.flash_budget, made.metadata
    if {p.code for p in problems} - {"E2010", "E2011", "E2012"} or meta["workspace"].get("pools"):
        return None
    over_ram, over_flash = [p for p in problems if p.code == "E2010"], [p for p in problems if p.code == "E2011"]
    for p in problems:
        if p.code == "E2012":
            region, size = overflow(p)
            if region in (board.code, *board.constants):
                flash = (_flash_of(meta) if flash is None else flash) - size
            else:
                ram = _ram_of(meta) - size
    if over_ram:
        ram = ram_room(board, meta)
    if over_flash:
        most = max(board.region(name).size for name in board.constants)
        room = most if board.code in board.constants else most + CODE_ROOM
        flash = room if flash is None else min(room, flash - (int(meta["constants"]["size"]) - most))
    smaller_ram = ram is not None and (options.ram_budget is None or ram < options.ram_budget)
    smaller_flash = flash is not None and (options.flash_budget is None or flash < options.flash_budget)
    missed = options.ram_budget is not None and ram != options.ram_budget and _ram_of(meta) > options.ram_budget
    missed |= options.flash_budget is not None and flash != options.flash_budget and _flash_of(meta) > options.flash_budget
    if not (smaller_ram or smaller_flash) or missed or min(n for n in (ram, flash) if n is not None) <= 0:
        return None
    return replace(options, ram_budget=ram if smaller_ram else options.ram_budget,
                   flash_budget=flash if smaller_flash else options.flash_budget)  # fmt: skip


def ram_room(board: Board, metadata: Mapping[str, Any]) -> int:
    """Bytes for workspace and state in the region with the most room, beside the stack and all else that an image has in RAM."""
    state = int(metadata.get("state", {}).get("size", 0))
    fixed = fixed_ram(board, metadata)
    return max(board.region(name).size - (fixed if name == board.data else 0) for name in board.workspace) + state


def _ram_of(metadata: Mapping[str, Any]) -> int:
    return int(metadata["workspace"]["size"]) + int(metadata.get("state", {}).get("size", 0))


def _flash_of(metadata: Mapping[str, Any]) -> int:
    """Constants, and code by the estimates that a budget for flash is compared with."""
    code = sum(c["code"] for row in metadata["layers"] for c in row["candidates"] if c["kernel"] == row["kernel"])
    return int(metadata["constants"]["size"]) + int(code)


def can_feed(options: Options) -> bool:
    """Whether rows that are fed are another way to compile."""
    return not (options.feed_rows or options.slide) and options.io == "arena"


def problems_on(board: Board | None, metadata: Mapping[str, Any]) -> tuple[Problem, ...]:
    """What is over a budget, and what a board has no room for, without linking."""
    found = tuple(over_budget(metadata))
    if board is not None and not board.is_host:
        try:
            choose_places(board, metadata)
        except TargetError as error:
            found += error.problems
    return found


def budget_words(options: Options, asked: Options) -> str:
    """`--ram-budget 15008`: the budgets that the one has in place of the other's."""
    pairs = (("ram", options.ram_budget, asked.ram_budget), ("flash", options.flash_budget, asked.flash_budget))
    return " ".join(f"--{name}-budget {new}" for name, new, old in pairs if new != old)


def _text(board: Board, words: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """`with --ram-budget 15008, which is what b16 has free: workspace 14,992 B instead of 35,208 B`."""
    parts = [
        f"{name} {new[name]['size']:,} B instead of {old[name]['size']:,} B"
        for name in ("workspace", "state", "constants")
        if name in new and name in old and new[name]["size"] != old[name]["size"]
    ]
    a, b = old["selection"], new["selection"]
    if a["minimised"] == b["minimised"] == "instructions" and a["total"]:
        parts.append(f"{b['total'] / a['total']:.2f} times the instructions by estimate")
    return f"with {words}, as {board.name} has no more free: {', '.join(parts)}"


def _with_reached(
    problems: Sequence[Problem], asked: Options, board: Board, least: Artifact, compiled: Compiler
) -> list[Problem]:
    """The problems of what was asked for, those of RAM with what was reached, by rows that are fed too."""
    if not any(p.code == "E2010" for p in problems):
        return list(problems)
    text = f"the smallest workspace that was found in any mode has {int(least.metadata['workspace']['size']):,}"
    if can_feed(asked):
        fed = None
        with suppress(AotError):  # more than one input, for example
            fed = fit(replace(asked, feed_rows=True), board, compiled)
        if fed is not None:
            size = int(fed.artifact.metadata["workspace"]["size"])
            words = " ".join(w for w in ("--feed-rows", fed.budgets) if w)
            text += f"; {words} fits, with {size:,}" if not fed.problems else f", with --feed-rows {size:,}"
    return [replace(p, message=f"{p.message}; {text}") if p.code == "E2010" else p for p in problems]


RAM = frozenset({"E2010", "E2021"})
FLASH = frozenset({"E2011", "E2012", "E2022"})


@dataclass(frozen=True, slots=True)
class Way:
    """`words`: the options that the command line would need beside those given; `helps`: codes of problems that it may solve."""

    words: str
    options: Options
    helps: frozenset[str]


@dataclass(frozen=True, slots=True)
class Compiled:
    """What came of a way; `estimate` in instructions."""

    way: Way
    artifact: Artifact
    estimate: int

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self.artifact.metadata


def ways(options: Options) -> Iterator[Way]:
    """As asked for, then what costs speed, then what costs the caller work."""
    yield Way("", options, RAM | FLASH)
    modes = {"balanced": RAM | FLASH, "size": FLASH, "ram": RAM}
    for opt, helps in modes.items():
        if opt != options.opt:
            yield Way(f"--opt {opt}", replace(options, opt=opt), helps)
    if can_feed(options):
        yield Way("--feed-rows", replace(options, feed_rows=True), RAM)
        if options.opt != "ram":
            yield Way("--opt ram --feed-rows", replace(options, opt="ram", feed_rows=True), RAM)
    if options.opt != "size":
        yield Way("--opt size", replace(options, opt="size"), RAM)


@dataclass(frozen=True, slots=True)
class Tries:
    """The ways to compile `source` for a core, as `options` ask and otherwise, each compiled when it is first asked for."""

    source: NamedBytes | bytes
    target: str
    name: str | None
    options: Options
    made: dict[str, Compiled | None] = field(default_factory=dict)
    fits: dict[tuple[str, str, bool], tuple[Compiled, Fit] | None] = field(default_factory=dict)
    shared: Shared = field(default_factory=dict)

    def compiled(self, way: Way) -> Compiled | None:
        """What comes of a way; None if the model cannot be compiled so (its input cannot come by rows)."""
        if way.words not in self.made:
            try:
                found = compile_model(self.source, target=self.target, name=self.name, options=way.options, shared=self.shared)
            except AotError:
                if not way.words:
                    raise
                self.made[way.words] = None
            else:
                self.made[way.words] = Compiled(way, found.artifact, found.lowered.estimate)
        return self.made[way.words]

    @property
    def asked(self) -> Compiled:
        """As asked for."""
        found = self.compiled(next(ways(self.options)))
        assert found is not None, "its errors are raised"
        return found

    def fit(self, way: Way, board: Board | None, *, linked: bool = False) -> tuple[Compiled, Fit] | None:
        """What `aot build --board` makes of a way, or `aot compile` where it is not to be linked; None as for `compiled`."""
        key = (way.words, "" if board is None else board.name, linked)
        if key not in self.fits:
            link = if_installed(linker(board)) if linked and board is not None and not board.is_host else None
            self.fits[key] = None if self.compiled(way) is None else self._fit(way, board, link)
        return self.fits[key]

    def _fit(self, way: Way, board: Board | None, link: Linker | None) -> tuple[Compiled, Fit]:
        made: dict[int, Compiled] = {}

        def compiled(options: Options) -> Artifact:
            words = " ".join(w for w in (way.words, budget_words(options, way.options)) if w)
            if options.feed_rows and not way.options.feed_rows:
                words += " --feed-rows"
            found = self.compiled(Way(words, options, way.helps))
            if found is None:
                raise UsageError(Problem("E5054", "the input cannot come by rows"))
            made[id(found.artifact)] = found
            return found.artifact

        result = fit(way.options, board, compiled, link)
        last = next((m for m in made.values() if m.way.options == result.options), self.compiled(way))
        assert last is not None, "it was compiled"
        return replace(last, artifact=result.artifact), result

    def first_fit(self, board: Board | None, *, linked: bool = False) -> tuple[Compiled | None, tuple[Problem, ...]]:
        """The first way that is built for a board, within what it has free, and the problems that it has as requested.

        Ways that cannot help against these problems are not tried.
        """
        result = self.fit(next(ways(self.options)), board, linked=linked)
        assert result is not None, "its errors are raised"
        found, outcome = result
        if not outcome.problems:
            return found, ()
        codes = {p.code for p in outcome.problems}
        for way in ways(self.options):
            hopeless = not codes & way.helps or (not way.options.feed_rows and least_ram(self.asked.metadata) > room(board))
            other = None if hopeless else self.fit(way, board, linked=linked)
            if other is not None and not other[1].problems:
                return other[0], outcome.problems
        return None, outcome.problems


def least_ram(metadata: Mapping[str, Any]) -> int:
    """Bytes that every workspace has in which the inputs lie, whatever the mode."""
    if metadata["io"] != "arena" or metadata.get("feed") or metadata["workspace"].get("pools"):
        return 0
    return sum(int(t["size"]) for t in metadata["inputs"])


def room(board: Board | None) -> int:
    """Bytes of the largest region for the workspace."""
    if board is None or board.is_host:
        return sys.maxsize
    return max(board.region(name).size for name in board.workspace)


def price(found: Compiled, asked: Compiled) -> dict[str, Any]:
    """What a way takes: bytes, and instructions as a multiple of those as requested, by the estimates."""
    return {
        "options": found.way.words,
        "workspace_bytes": found.metadata["workspace"]["size"],
        "constant_bytes": found.metadata["constants"]["size"],
        "instructions": round(found.estimate / asked.estimate, 3) if asked.estimate else None,
    }


def price_text(found: Compiled, asked: Compiled) -> str:
    """`with --opt ram: workspace 29,658 B instead of 48,568 B, 1.04 times the instructions by estimate`."""
    new, old = price(found, asked), price(asked, asked)
    names = {"workspace_bytes": "workspace", "constant_bytes": "constants"}
    parts = [f"{name} {new[k]:,} B instead of {old[k]:,} B" for k, name in names.items() if new[k] != old[k]]
    if new["instructions"] is not None:
        parts.append(f"{new['instructions']:.2f} times the instructions by estimate")
    return f"with {found.way.words}: {', '.join(parts)}"


def fitting_boards(tries: Tries, place: Board | None = None) -> list[dict[str, Any]]:
    """For each board whether the model's workspace and constants fit its memory, as requested or how, and why not.

    For `place` the image was linked too.
    """
    rows = []
    for name in board_names():
        board = load_board(name)
        found, problems = tries.first_fit(board, linked=place is not None and name == place.name)
        row = {"board": name, "cpu": board.cpu, "fits": found is not None, "problems": [p.message for p in problems]}
        rows.append(row | ({} if found is None else price(found, tries.asked)))
    return rows


# ---- what a model needs of a board in one mode: what a product would link, and what the measuring image adds


_ROOM = 1 << 28
"""Bytes of flash and of RAM with which a model that does not fit is linked, to see what it takes."""


@dataclass(frozen=True, slots=True)
class ModeFit:
    """Bytes.  `flash` and `ram` are the product's: code, constants, initial values; workspace, state, variables, stack, and
    constants that are copied from flash.  `pooled` are the regions that those are in.

    `image_flash` and `image_ram` are those of the image that measures, with start-up, harness and the whole stack that board.toml
    reserves.  `image_fault`: why that one does not link for the board, "" where it does.
    """

    flash: int
    ram: int
    workspace: int
    stack: int
    image_flash: int
    image_ram: int
    image_fault: str
    pooled: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        names = ("flash", "ram", "workspace", "stack", "image_flash", "image_ram", "image_fault")
        return {name: getattr(self, name) for name in names}


def mode_fit(artifact: Artifact, board: Board, *, fault: str) -> ModeFit:
    """Link the model with room enough; `fault` is what building it for the board itself ended in."""
    with_pools = bool(artifact.metadata["workspace"].get("pools") or artifact.metadata["constants"].get("pools"))
    project = prepare(artifact, board if with_pools else roomy(board))  # pools have their addresses in the board's memory
    image = inspect_image(project)
    whole = section_sizes(project.image("measure"))
    pools = {name: n for name, n in whole.items() if name.startswith((".pool_", POOLED))}
    flash = sum(whole.get(name, 0) for name in (".text", ".ARM.exidx", ".rodata", ".data"))
    ram = sum(whole.get(name, 0) for name in (".stack", ".data", ".bss", ".workspace"))
    return ModeFit(
        flash=image.flash, ram=image.ram + image.stack_bound, workspace=image.workspace, stack=image.stack_bound,
        image_flash=flash + sum(n for name, n in pools.items() if name.startswith(POOLED)),
        image_ram=ram + sum(n for name, n in pools.items() if name.startswith(".pool_")) + sum(image.copied.values()),
        image_fault=fault,
        pooled=tuple(image.copied),
    )  # fmt: skip


def roomy(board: Board) -> Board:
    """A board with this core and stack whose two memories hold any model."""
    memory = (Memory("ROM", "rx", 0, _ROOM), Memory("RAM", "rw", 0x20000000, _ROOM))
    return replace(
        board, memory=memory, code="ROM", constants=("ROM",), data="RAM", workspace=("RAM",), pools=(), kind="qemu", gdb=None,
        like=None, uart=None, gpio=None,
    )  # fmt: skip


def room_for_flash(board: Board) -> int:
    return sum(board.region(name).size for name in {board.code, *board.constants})


def room_for_ram(board: Board, pooled: Iterable[str] = ()) -> int:
    """Bytes of the memories of data and workspace, and of those of `pooled` that the board has."""
    names = {board.data, *board.workspace, *pooled}
    return sum(m.size for m in board.memory if m.name in names)


def shortage(fit: ModeFit, board: Board) -> dict[str, int]:
    """Bytes that the product lacks of flash and RAM on a board; 0 where it has enough.  A workspace lies in one region."""
    rest = fit.ram - fit.workspace
    over = [fit.workspace + (rest if name == board.data else 0) - board.region(name).size for name in board.workspace]
    over_data = max(0, rest - board.region(board.data).size)
    together = board.pools or fit.pooled
    ram = max(0, fit.ram - room_for_ram(board, fit.pooled)) if together else max(over_data, min(over), 0)
    return {"flash": max(0, fit.flash - room_for_flash(board)), "ram": ram}


def next_smaller(board: Board, others: Iterable[Board]) -> Board | None:
    """Of the boards with less RAM, or as much and less flash, the one with the most; emulators of other boards are none."""

    def size(b: Board) -> tuple[int, int]:
        return room_for_ram(b), room_for_flash(b)

    smaller = [b for b in others if not b.is_host and b.name not in (board.name, board.emulates) and size(b) < size(board)]
    return max(smaller, key=lambda b: (*size(b), b.name), default=None)


def shortage_text(lacking: Mapping[str, int]) -> str:
    """`flash 1,024 B and RAM 2,000 B short`; "fits"."""
    names = {"flash": "flash", "ram": "RAM"}
    parts = [f"{names[k]} {n:,} B" for k, n in lacking.items() if n]
    return f"{' and '.join(parts)} short" if parts else "fits"


def modes(options: Options) -> Iterator[tuple[str, Way]]:
    """Every --opt by name, and the least RAM of all: rows that are fed."""
    for opt in OPTS:
        yield opt, Way("" if opt == options.opt else f"--opt {opt}", replace(options, opt=opt), RAM | FLASH)
    yield from (("ram, rows fed", way) for way in ways(options) if way.words == "--opt ram --feed-rows")


def mode_rows(tries: Tries, board: Board, smaller: Board | None) -> list[dict[str, Any]]:
    """What each mode takes of a board and lacks, product and measuring image apart, and lacks on a smaller one."""
    rows = []
    for name, way in modes(tries.options):
        made = tries.fit(way, board, linked=True)
        if made is not None:
            found, outcome = made
            fit = mode_fit(outcome.artifact, board, fault=outcome.problems[0].message if outcome.problems else "")
            row = {
                "mode": name,
                "options": found.way.words,
                "budgets": outcome.budgets,
                **fit.to_json(),
                "short": shortage(fit, board),
            }
            rows.append(row | ({} if smaller is None else {"short_on_smaller": shortage(fit, smaller)}))
    return rows


# ---- constants in tightly coupled memory: what a board has free there, and which of a model's constants fit
# A proposal, not a default: whether it pays depends on clock, wait states and caches, which only the board can tell.


NAME = "HOT"
"""Of the proposed pool."""

_NAMES = ("TCM", "CCM")
"""Parts of the names of memories that a core reads without wait states and past its caches."""

_SPEED = 4.0
"""Beside flash: only the order counts, as each pool is filled by what is read most for a byte."""

_STEP = 1024
"""Sizes and addresses are multiples of it."""


def fast_constants(tries: Tries, board: Board) -> dict[str, Any] | None:
    """The proposal: `region`, `free` bytes there, the options `words`, `bytes` of constants that would go there, the `layers`
    (`of_layers` have constants) that would have all of theirs there, and their share `macs` of the multiply-accumulates.

    None where a board has no such memory for constants, or no room in it, where the options name pools for constants, and on
    a board that does not count cycles (QEMU), where no difference would be seen.
    """
    options = tries.options
    if not board.counts_cycles or options.pooling.constants or problems_on(board, tries.asked.metadata):
        return None
    found = max(((*_free(board, m, tries.asked.metadata), m) for m in board.memory if _is_fast(board, m)), default=None)
    if found is None or found[0] < _STEP:
        return None
    size, address, region = found
    flash = board.region(choose_places(board, tries.asked.metadata).constants)
    if any(p.name in (NAME, flash.name) for p in options.pooling.pools):
        return None
    way = _way(options, Pool(NAME, size, address, _SPEED), Pool(flash.name, flash.size))
    made = tries.compiled(way)
    if made is None or problems_on(board, made.metadata):
        return None
    hot = next((p for p in made.metadata["constants"]["pools"] if p["name"] == NAME), None)
    if hot is None:
        return None
    return {
        "region": region.name,
        "free": size,
        "words": way.words,
        "bytes": hot["used"],
        **_layers(made.metadata, hot["arrays"]),
    }


def fast_constants_text(row: Mapping[str, Any]) -> str:
    """`DTCM has 16,384 B free: 15,824 B of constants, those of 5 of 8 layers with 41 % of the multiply-accumulates`."""
    what = f"{row['bytes']:,} B of constants, all those of {row['layers']} of {row['of_layers']} layers"
    return f"{row['region']} has {row['free']:,} B free: {what} with {100 * row['macs']:.0f} % of the multiply-accumulates"


def _is_fast(board: Board, memory: Memory) -> bool:
    """Whether constants would be copied there from flash, to be read faster."""
    return any(part in memory.name.upper() for part in _NAMES) and copied_to(board, memory.name)


def _free(board: Board, memory: Memory, metadata: Mapping[str, Any]) -> tuple[int, int]:
    """Bytes between what lies at the bottom of a memory and the board's pools in it, and their address."""
    low, high = memory.origin, memory.origin + memory.size
    if memory.name == board.data:
        low += fixed_ram(board, metadata)
    pools = [p.address for p in board.pools if p.address is not None and low <= p.address < high]
    if not metadata["workspace"].get("pools") and choose_places(board, metadata).workspace == memory.name:
        low += int(metadata["workspace"]["size"])
        pools = []
    start, end = -(-low // _STEP) * _STEP, min([high, *pools]) // _STEP * _STEP
    return max(0, end - start), start


def _way(options: Options, hot: Pool, flash: Pool) -> Way:
    """The options with the two pools for constants."""
    words = f"--const-pool {hot.name}={hot.size}@{hot.address:#x}:{hot.speed:g} --const-pool {flash.name}={flash.size}"
    old = options.pooling
    return Way(words, replace(options, pooling=Pooling(old.pools, old.pins, (hot, flash))), frozenset())


def _layers(metadata: Mapping[str, Any], arrays: list[str]) -> dict[str, Any]:
    """The layers all of whose constants are among `arrays`, and their share of the work of all layers with constants."""
    rows = [row for row in metadata["layers"] if row.get("arrays")]
    inside = [row for row in rows if set(row["arrays"]) <= set(arrays)]
    work = sum(int(row["macs"]) for row in rows)
    return {"layers": len(inside), "of_layers": len(rows), "macs": sum(int(row["macs"]) for row in inside) / max(1, work)}


# ---- what to do next: other ways to compile a model, each with what it would gain and cost by the compiler's figures


MAX_LAYERS = 200
"""Beyond this many layers a compilation takes too long to try others for advice."""

_LEAST = 0.02
"""A gain below this share of the figure is not worth a line."""


def advice(tries: Tries, *, board: Board) -> list[dict[str, Any]]:
    """Ways that make something at least 2 % better: `command`, and the changes `ram`, `flash` (bytes), `time` (share).

    The best gain of RAM, of flash and of time comes first; sizes are workspace and constants, time is by estimate.  Last
    comes, with its own `text`, what tightly coupled memory could hold.
    """
    asked = tries.asked
    if len(asked.metadata["layers"]) > MAX_LAYERS:
        return []
    found: list[dict[str, Any]] = []
    for way in _ways(tries):
        made = tries.compiled(way)
        if made is not None:
            row = _row(made, asked, board=board.name)
            if row is not None and not any(_same(row, other) for other in found):
                found.append(row)
    return [*sorted(found, key=lambda r: (r["ram"] + r["flash"], r["time"])), *_fast(tries, board)]


def _fast(tries: Tries, board: Board) -> list[dict[str, Any]]:
    """Constants that would go into tightly coupled memory, if there is any for them."""
    row = fast_constants(tries, board)
    if row is None:
        return []
    text = f"{fast_constants_text(row)}; cycles tell whether it pays"
    return [{"words": row["words"], "command": _command("verify", tries.asked, board.name, row["words"]), "text": text}]


def _ways(tries: Tries) -> list[Way]:
    """Each single other way, speed included."""
    from dataclasses import replace

    plain = [w for w in ways(tries.options) if w.words and w.words.count("--") == 1]
    if tries.options.opt != "speed":
        plain.append(Way("--opt speed", replace(tries.options, opt="speed"), frozenset()))
    return list({w.words: w for w in plain}.values())


def _row(made: Compiled, asked: Compiled, *, board: str) -> dict[str, Any] | None:
    new, old = price(made, asked), price(asked, asked)
    ram = new["workspace_bytes"] - old["workspace_bytes"]
    flash = new["constant_bytes"] - old["constant_bytes"]
    time = (new["instructions"] or 1.0) - 1.0
    gains = (-ram / max(1, old["workspace_bytes"]), -flash / max(1, old["constant_bytes"]), -time)
    if max(gains) < _LEAST:
        return None
    command = _command("report", asked, board, made.way.words)
    return {"words": made.way.words, "command": command, "ram": ram, "flash": flash, "time": round(time, 4)}


def _command(verb: str, asked: Compiled, board: str, words: str) -> str:
    file = asked.metadata["model"]["file"] or f"{asked.metadata['name']}.tflite"
    return f"aot {verb} {file} --board {board} {words}"


def _same(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return all(a[k] == b[k] for k in ("ram", "flash", "time"))


def advice_text(row: Mapping[str, Any]) -> str:
    """`−3,120 B RAM, +8 % time` of what changes; the row's own text where it has one."""
    if "text" in row:
        return str(row["text"])
    parts: Sequence[str] = [f"{row[k]:+,} B {word}" for k, word in (("ram", "RAM"), ("flash", "constants")) if row[k]]
    time = [f"{100 * row['time']:+.0f} % time" if abs(row["time"]) >= 0.005 else "same time"]
    return ", ".join([*parts, *time]).replace("-", "\N{MINUS SIGN}")
