"""Whether a model fits a board: as requested, with narrower budgets, or compiled with other options; and what each costs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, field, replace
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
"""Number of budgets tried: the other contents of a memory depend a little on the plan."""

CODE_ROOM = 12 << 10
"""Bytes that code may need beside constants in their own memory, before the linker has measured it."""

Compiler = Callable[[Options], Artifact]
"""Compiles with options; the artifact may be over a budget."""

Linker = Callable[[Artifact], tuple[int, int] | None]
"""Builds the image and returns its bytes of code and constants, if known; AotError if it does not link."""


@dataclass(frozen=True, slots=True)
class Fit:
    """`artifact` is built with `options`: those requested, or with narrower budgets; `problems`: why it cannot be built.

    If it exceeds a board's memory, `artifact` is the smallest one found.  `budgets`: the added budgets as options, such as
    `--ram-budget 15008`.
    """

    options: Options
    artifact: Artifact
    problems: tuple[Problem, ...] = ()
    budgets: str = ""

    @property
    def text(self) -> str:
        """What was chosen instead of the request, and why; "" if the request fits."""
        chosen = self.artifact.metadata.get("board_fit")
        return "" if chosen is None else str(chosen["text"])

    def built(self) -> Artifact:
        """The artifact, or its problems as TargetError."""
        if self.problems:
            raise TargetError(*self.problems)
        return self.artifact


def fit(asked: Options, board: Board | None, compiled: Compiler, link: Linker | None = None) -> Fit:
    """Build for a board.

    As requested, if that fits.  Else with the board's free RAM and flash as budgets, if these are smaller than the requested
    ones. Without a board, or on the host, only the requested budgets count."""
    first = artifact = compiled(asked)
    before = problems = _problems(asked, board, artifact, link)
    options = asked
    for _ in range(TRIES if board is not None and not board.is_host else 0):
        narrower = _narrower(board, options, artifact, problems) if board is not None and problems else None
        if narrower is None:
            break
        options, artifact = narrower, compiled(narrower)
        problems = _problems(asked, board, artifact, link)
    if options is asked or board is None:
        return Fit(asked, first, before)
    words = budget_words(options, asked)
    if problems:
        return Fit(options, artifact, tuple(_with_reached(before, asked, board, artifact, compiled)), words)
    board_fit = {"board": board.name, "options": words, "text": _text(board, words, first.metadata, artifact.metadata)}
    return Fit(options, replace(artifact, metadata={**artifact.metadata, "board_fit": board_fit}), (), words)


def linker(board: Board, folder: Path | None = None) -> Linker:
    """Builds the measuring image in a folder, or where `verify` and `run` look for it, and measures the model's own image."""

    def link(artifact: Artifact) -> tuple[int, int] | None:
        if board.is_host:
            return None
        project = prepare(artifact, board, folder=folder)
        project.image("measure")
        if artifact.metadata["options"]["flash_budget"] is None:
            return None
        image = inspect_image(project)
        return image.code, image.constants

    return link


def if_installed(link: Linker) -> Linker:
    """The same linker, but without an installed compiler (E3001) everything counts as linked."""

    def tried(artifact: Artifact) -> tuple[int, int] | None:
        try:
            return link(artifact)
        except ToolchainError as error:
            if {p.code for p in error.problems} != {"E3001"}:
                raise
            return None

    return tried


def _problems(asked: Options, board: Board | None, artifact: Artifact, link: Linker | None) -> tuple[Problem, ...]:
    """Which requested budgets are exceeded, and what does not fit the board."""
    budgets = dict.fromkeys(("ram_budget", "flash_budget"))
    if not asked.force_over_budget:
        budgets = {"ram_budget": asked.ram_budget, "flash_budget": asked.flash_budget}
    meta = {**artifact.metadata, "options": {**artifact.metadata["options"], **budgets}}
    problems = problems_on(board, meta)
    if problems or link is None or board is None or board.is_host:
        return problems
    try:
        sizes = link(artifact)
    except TargetError as error:
        return error.problems
    return () if sizes is None else tuple(over_budget(meta, code_bytes=sizes[0], constant_bytes=sizes[1]))


def _narrower(board: Board, options: Options, artifact: Artifact, problems: Sequence[Problem]) -> Options | None:
    """The options with budgets that may solve these problems; None if there are none, or nothing smaller was found."""
    ram, flash, meta = options.ram_budget, options.flash_budget, artifact.metadata
    if {p.code for p in problems} - {"E2010", "E2011", "E2012"} or meta["workspace"].get("pools"):
        return None
    over_ram, over_flash = [p for p in problems if p.code == "E2010"], [p for p in problems if p.code == "E2011"]
    for p in problems:
        if p.code == "E2012":
            region, size = overflow(p)
            if region in (board.code, *board.constants):
                flash = (_flash_of(meta) if flash is None else flash) - size
            else:
                ram = ram_of(meta) - size
    if over_ram:
        ram = ram_room(board, meta)
    if over_flash:
        most = max(board.region(name).size for name in board.constants)
        room = most if board.code in board.constants else most + CODE_ROOM
        flash = room if flash is None else min(room, flash - (int(meta["constants"]["size"]) - most))
    smaller_ram = ram is not None and (options.ram_budget is None or ram < options.ram_budget)
    smaller_flash = flash is not None and (options.flash_budget is None or flash < options.flash_budget)
    missed = options.ram_budget is not None and ram != options.ram_budget and ram_of(meta) > options.ram_budget
    missed |= options.flash_budget is not None and flash != options.flash_budget and _flash_of(meta) > options.flash_budget
    if not (smaller_ram or smaller_flash) or missed or min(n for n in (ram, flash) if n is not None) <= 0:
        return None
    return replace(options, ram_budget=ram if smaller_ram else options.ram_budget,
                   flash_budget=flash if smaller_flash else options.flash_budget)  # fmt: skip


def ram_room(board: Board, metadata: Mapping[str, Any]) -> int:
    """Bytes for workspace and state in the region with the most room, besides the stack and everything else in RAM."""
    state = int(metadata.get("state", {}).get("size", 0))
    fixed = fixed_ram(board, metadata)
    return max(board.region(name).size - (fixed if name == board.data else 0) for name in board.workspace) + state


def ram_of(metadata: Mapping[str, Any]) -> int:
    """Bytes of workspace and state."""
    return int(metadata["workspace"]["size"]) + int(metadata.get("state", {}).get("size", 0))


def _flash_of(metadata: Mapping[str, Any]) -> int:
    """Constants, and code by the estimates that the flash budget uses."""
    code = sum(c["code"] for row in metadata["layers"] for c in row["candidates"] if c["kernel"] == row["kernel"])
    return int(metadata["constants"]["size"]) + int(code)


def can_feed(options: Options) -> bool:
    """Whether feeding rows is a possible alternative."""
    return not (options.feed_rows or options.slide) and options.io == "arena"


def problems_on(board: Board | None, metadata: Mapping[str, Any]) -> tuple[Problem, ...]:
    """Exceeded budgets, and what does not fit the board, without linking."""
    problems = tuple(over_budget(metadata))
    if board is not None and not board.is_host:
        try:
            choose_places(board, metadata)
        except TargetError as error:
            problems += error.problems
    return problems


def budget_words(options: Options, asked: Options) -> str:
    """`--ram-budget 15008`: the budgets of `options` that differ from those of `asked`."""
    pairs = (("ram", options.ram_budget, asked.ram_budget), ("flash", options.flash_budget, asked.flash_budget))
    return " ".join(f"--{name}-budget {new}" for name, new, old in pairs if new != old)


def _text(board: Board, words: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """`with --ram-budget 15008, all that b16 has free: workspace 14,992 B instead of 35,208 B`."""
    both = [name for name in ("workspace", "state", "constants") if name in new and name in old]
    sizes = [(name, new[name]["size"], old[name]["size"]) for name in both]
    a, b = old["selection"], new["selection"]
    times = b["total"] / a["total"] if a["minimised"] == b["minimised"] == "instructions" and a["total"] else None
    return f"with {words}, all that {board.name} has free: {_instead(sizes, times)}"


def _instead(sizes: Iterable[tuple[str, int, int]], times: float | None) -> str:
    """`workspace 29,658 B instead of 48,568 B, 1.04 times the instructions (estimated)`; (name, new, old) of what has a size."""
    parts = [f"{name} {new:,} B instead of {old:,} B" for name, new, old in sizes if new != old]
    return ", ".join(parts + ([] if times is None else [f"{times:.2f} times the instructions (estimated)"]))


def _with_reached(
    problems: Sequence[Problem], asked: Options, board: Board, least: Artifact, compiled: Compiler
) -> list[Problem]:
    """The problems of the request; those of RAM with the smallest workspace found, also with fed rows."""
    if not any(p.code == "E2010" for p in problems):
        return list(problems)
    text = f"the smallest workspace found in any mode has {int(least.metadata['workspace']['size']):,}"
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
class Variant:
    """`words`: the command-line options that must be added to the request; `helps`: codes of problems that it may solve."""

    words: str
    options: Options
    helps: frozenset[str]


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled variant; `estimate` in instructions."""

    variant: Variant
    artifact: Artifact
    estimate: int

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self.artifact.metadata


def variants(options: Options) -> Iterator[Variant]:
    """As requested, then what costs speed, then what costs the caller work."""
    yield Variant("", options, RAM | FLASH)
    modes = {"balanced": RAM | FLASH, "size": FLASH, "ram": RAM}
    for opt, helps in modes.items():
        if opt != options.opt:
            yield Variant(f"--opt {opt}", replace(options, opt=opt), helps)
    if can_feed(options):
        yield Variant("--feed-rows", replace(options, feed_rows=True), RAM)
        if options.opt != "ram":
            yield Variant("--opt ram --feed-rows", replace(options, opt="ram", feed_rows=True), RAM)
    if options.opt != "size":
        yield Variant("--opt size", replace(options, opt="size"), RAM)


@dataclass(frozen=True, slots=True)
class Tries:
    """Variants of compiling `source` for a core, as `options` request and otherwise; each is compiled on first use."""

    source: NamedBytes | bytes
    target: str
    name: str | None
    options: Options
    made: dict[str, Compiled | None] = field(default_factory=dict)
    fits: dict[tuple[str, str, bool], tuple[Compiled, Fit] | None] = field(default_factory=dict)
    shared: Shared = field(default_factory=dict)

    def compiled(self, variant: Variant) -> Compiled | None:
        """The compiled variant; None if the model cannot be compiled so (for example, if its input cannot come by rows)."""
        if variant.words not in self.made:
            try:
                compiled = compile_model(
                    self.source, target=self.target, name=self.name, options=variant.options, shared=self.shared
                )
            except AotError:
                if not variant.words:
                    raise
                self.made[variant.words] = None
            else:
                self.made[variant.words] = Compiled(variant, compiled.artifact, compiled.lowered.estimate)
        return self.made[variant.words]

    @property
    def asked(self) -> Compiled:
        """The build as requested."""
        compiled = self.compiled(next(variants(self.options)))
        assert compiled is not None, "its errors are raised"
        return compiled

    def fit(self, variant: Variant, board: Board | None, *, linked: bool = False) -> tuple[Compiled, Fit] | None:
        """A variant as `aot build --board` builds it, or as `aot compile` does if not `linked`; None as for `compiled`."""
        key = (variant.words, "" if board is None else board.name, linked)
        if key not in self.fits:
            link = if_installed(linker(board)) if linked and board is not None and not board.is_host else None
            self.fits[key] = None if self.compiled(variant) is None else self._fit(variant, board, link)
        return self.fits[key]

    def _fit(self, variant: Variant, board: Board | None, link: Linker | None) -> tuple[Compiled, Fit]:
        by_artifact: dict[int, Compiled] = {}

        def compiled(options: Options) -> Artifact:
            words = " ".join(w for w in (variant.words, budget_words(options, variant.options)) if w)
            if options.feed_rows and not variant.options.feed_rows:
                words += " --feed-rows"
            build = self.compiled(Variant(words, options, variant.helps))
            if build is None:
                raise UsageError(Problem("E5054", "the input cannot come by rows"))
            by_artifact[id(build.artifact)] = build
            return build.artifact

        result = fit(variant.options, board, compiled, link)
        last = next((m for m in by_artifact.values() if m.variant.options == result.options), self.compiled(variant))
        assert last is not None, "it was compiled"
        return replace(last, artifact=result.artifact), result

    def first_fit(self, board: Board | None, *, linked: bool = False) -> tuple[Compiled | None, tuple[Problem, ...]]:
        """The first variant that fits a board, within its free memory, and the problems of the build as requested.

        Variants that cannot solve these problems are not tried.
        """
        result = self.fit(next(variants(self.options)), board, linked=linked)
        assert result is not None, "its errors are raised"
        compiled, outcome = result
        if not outcome.problems:
            return compiled, ()
        codes = {p.code for p in outcome.problems}
        for variant in variants(self.options):
            hopeless = not codes & variant.helps or (
                not variant.options.feed_rows and least_ram(self.asked.metadata) > room(board)
            )
            other = None if hopeless else self.fit(variant, board, linked=linked)
            if other is not None and not other[1].problems:
                return other[0], outcome.problems
        return None, outcome.problems


def least_ram(metadata: Mapping[str, Any]) -> int:
    """Bytes that every workspace with the inputs in it needs, whatever the mode."""
    if metadata["io"] != "arena" or metadata.get("feed") or metadata["workspace"].get("pools"):
        return 0
    return sum(int(t["size"]) for t in metadata["inputs"])


def room(board: Board | None) -> int:
    """Bytes of the largest region for the workspace."""
    if board is None or board.is_host:
        return sys.maxsize
    return max(board.region(name).size for name in board.workspace)


def price(compiled: Compiled, asked: Compiled) -> dict[str, Any]:
    """The cost of a variant: bytes, and estimated instructions as a multiple of the request's."""
    return {
        "options": compiled.variant.words,
        "workspace_bytes": compiled.metadata["workspace"]["size"],
        "constant_bytes": compiled.metadata["constants"]["size"],
        "instructions": round(compiled.estimate / asked.estimate, 3) if asked.estimate else None,
    }


def price_text(compiled: Compiled, asked: Compiled) -> str:
    """`with --opt ram: workspace 29,658 B instead of 48,568 B, 1.04 times the instructions (estimated)`."""
    new, old = price(compiled, asked), price(asked, asked)
    sizes = [(name, new[k], old[k]) for name, k in (("workspace", "workspace_bytes"), ("constants", "constant_bytes"))]
    return f"with {compiled.variant.words}: {_instead(sizes, new['instructions'])}"


def fitting_boards(tries: Tries, place: Board | None = None) -> list[dict[str, Any]]:
    """For each board: whether workspace and constants fit its memory, as requested or with which options, and why not.

    For `place` the image is linked too.
    """
    rows = []
    for name in board_names():
        board = load_board(name)
        compiled, problems = tries.first_fit(board, linked=place is not None and name == place.name)
        row = {"board": name, "cpu": board.cpu, "fits": compiled is not None, "problems": [p.message for p in problems]}
        rows.append(row | ({} if compiled is None else price(compiled, tries.asked)))
    return rows


# ---- a model's demand on a board in one mode: of a product, and of the measuring image


_ROOM = 1 << 28
"""Bytes of flash and of RAM with which a model that does not fit is linked, to measure it."""


@dataclass(frozen=True, slots=True)
class ModeFit:
    """Bytes.  `flash` and `ram` are the product's: code, constants, initial values; workspace, state, variables, stack, and
    constants that are copied from flash.  `pooled`: the regions that hold the copies.

    `image_flash` and `image_ram` belong to the measuring image, with start-up, harness and the whole stack that board.toml
    reserves.  `image_fault`: why that image does not link for the board, "" if it does.
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
        return {name: value for name, value in asdict(self).items() if name != "pooled"}


def mode_fit(artifact: Artifact, board: Board, *, fault: str) -> ModeFit:
    """Link the model with ample memory; `fault` is why building it for the board itself failed."""
    with_pools = bool(artifact.metadata["workspace"].get("pools") or artifact.metadata["constants"].get("pools"))
    project = prepare(artifact, board if with_pools else roomy(board))  # pools have addresses in the board's memory
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
    """A board with this core and stack, and two memories large enough for any model."""
    memory = (Memory("ROM", "rx", 0, _ROOM), Memory("RAM", "rw", 0x20000000, _ROOM))
    return replace(
        board, memory=memory, code="ROM", constants=("ROM",), data="RAM", workspace=("RAM",), pools=(), kind="qemu", gdb=None,
        like=None, uart=None, gpio=None,
    )  # fmt: skip


def room_for_flash(board: Board) -> int:
    return sum(board.region(name).size for name in {board.code, *board.constants})


def room_for_ram(board: Board, pooled: Iterable[str] = ()) -> int:
    """Bytes of the memories of data and workspace, and of the `pooled` ones that the board has."""
    names = {board.data, *board.workspace, *pooled}
    return sum(m.size for m in board.memory if m.name in names)


def shortage(fit: ModeFit, board: Board) -> dict[str, int]:
    """Bytes of flash and RAM that a board lacks for the product; 0 if it has enough.  A workspace occupies one region."""
    other_ram = fit.ram - fit.workspace
    over = [fit.workspace + (other_ram if name == board.data else 0) - board.region(name).size for name in board.workspace]
    over_data = max(0, other_ram - board.region(board.data).size)
    together = board.pools or fit.pooled
    ram = max(0, fit.ram - room_for_ram(board, fit.pooled)) if together else max(over_data, min(over), 0)
    return {"flash": max(0, fit.flash - room_for_flash(board)), "ram": ram}


def next_smaller(board: Board, others: Iterable[Board]) -> Board | None:
    """The largest of the boards with less RAM, or equal RAM and less flash; emulators of other boards are excluded."""

    def size(b: Board) -> tuple[int, int]:
        return room_for_ram(b), room_for_flash(b)

    smaller = [b for b in others if not b.is_host and b.name not in (board.name, board.emulates) and size(b) < size(board)]
    return max(smaller, key=lambda b: (*size(b), b.name), default=None)


def shortage_text(lacking: Mapping[str, int]) -> str:
    """`flash 1,024 B and RAM 2,000 B short`; "fits"."""
    names = {"flash": "flash", "ram": "RAM"}
    parts = [f"{names[k]} {n:,} B" for k, n in lacking.items() if n]
    return f"{' and '.join(parts)} short" if parts else "fits"


def modes(options: Options) -> Iterator[tuple[str, Variant]]:
    """Every --opt by name, and the smallest RAM of all: fed rows."""
    for opt in OPTS:
        yield opt, Variant("" if opt == options.opt else f"--opt {opt}", replace(options, opt=opt), RAM | FLASH)
    yield from (("ram, rows fed", variant) for variant in variants(options) if variant.words == "--opt ram --feed-rows")


def mode_rows(tries: Tries, board: Board, smaller: Board | None) -> list[dict[str, Any]]:
    """Each mode's demand on a board and shortage, for product and measuring image, and the shortage on a smaller board."""
    rows = []
    for name, variant in modes(tries.options):
        attempt = tries.fit(variant, board, linked=True)
        if attempt is not None:
            compiled, outcome = attempt
            fit = mode_fit(outcome.artifact, board, fault=outcome.problems[0].message if outcome.problems else "")
            row = {
                "mode": name,
                "options": compiled.variant.words,
                "budgets": outcome.budgets,
                **fit.to_json(),
                "short": shortage(fit, board),
            }
            rows.append(row | ({} if smaller is None else {"short_on_smaller": shortage(fit, smaller)}))
    return rows


# ---- constants in tightly coupled memory: what a board has free there, and which of a model's constants fit
# A proposal, not a default: whether it pays depends on clock, wait states and caches, and only the board can tell.

NAME = "HOT"
"""Name of the proposed pool."""

_NAMES = ("TCM", "CCM")
"""Parts of names of memories that a core reads without wait states and caches."""

_SPEED = 4.0
"""Relative to flash: only the order matters, as each pool is filled with what is read most per byte."""

_STEP = 1024
"""Sizes and addresses are multiples of this."""


def fast_constants(tries: Tries, board: Board) -> dict[str, Any] | None:
    """The proposal: `region`, `free` bytes there, the options `words`, `bytes` of constants that would move there, the number of
    `layers` (`of_layers` have constants) with all their constants there, and their share `macs` of the multiply-accumulates.

    None if the board has no such memory for constants, or no room in it; if the options name pools for constants; and on a board
    that does not count cycles (QEMU), where no difference would be visible.
    """
    options = tries.options
    if not board.counts_cycles or options.pooling.constants or problems_on(board, tries.asked.metadata):
        return None
    # constants would be copied there from flash for faster reads
    fast = [m for m in board.memory if any(part in m.name.upper() for part in _NAMES) and copied_to(board, m.name)]
    most = max(((*_free(board, m, tries.asked.metadata), m) for m in fast), default=None)
    if most is None or most[0] < _STEP:
        return None
    size, address, region = most
    flash = board.region(choose_places(board, tries.asked.metadata).constants)
    if any(p.name in (NAME, flash.name) for p in options.pooling.pools):
        return None
    old, pools = options.pooling, (Pool(NAME, size, address, _SPEED), Pool(flash.name, flash.size))
    words = f"--const-pool {NAME}={size}@{address:#x}:{_SPEED:g} --const-pool {flash.name}={flash.size}"
    compiled = tries.compiled(Variant(words, replace(options, pooling=Pooling(old.pools, old.pins, pools)), frozenset()))
    if compiled is None or problems_on(board, compiled.metadata):
        return None
    hot = next((p for p in compiled.metadata["constants"]["pools"] if p["name"] == NAME), None)
    if hot is None:
        return None
    return {
        "region": region.name,
        "free": size,
        "words": words,
        "bytes": hot["used"],
        **_layers(compiled.metadata, hot["arrays"]),
    }


def fast_constants_text(row: Mapping[str, Any]) -> str:
    """`DTCM has 16,384 B free: 15,824 B of constants, all those of 5 of 8 layers with 41 % of the multiply-accumulates`."""
    what = f"{row['bytes']:,} B of constants, all of {row['layers']} of {row['of_layers']} layers"
    return f"{row['region']} has {row['free']:,} B free: {what} with {100 * row['macs']:.0f} % of the multiply-accumulates"


def _free(board: Board, memory: Memory, metadata: Mapping[str, Any]) -> tuple[int, int]:
    """Free bytes between the contents at the bottom of a memory and the board's pools in it, and their address."""
    low, high = memory.origin, memory.origin + memory.size
    if memory.name == board.data:
        low += fixed_ram(board, metadata)
    pools = [p.address for p in board.pools if p.address is not None and low <= p.address < high]
    if not metadata["workspace"].get("pools") and choose_places(board, metadata).workspace == memory.name:
        low += int(metadata["workspace"]["size"])
        pools = []
    start, end = -(-low // _STEP) * _STEP, min([high, *pools]) // _STEP * _STEP
    return max(0, end - start), start


def _layers(metadata: Mapping[str, Any], arrays: list[str]) -> dict[str, Any]:
    """The layers with all constants among `arrays`, and their share of the work of all layers with constants."""
    rows = [row for row in metadata["layers"] if row.get("arrays")]
    inside = [row for row in rows if set(row["arrays"]) <= set(arrays)]
    work = sum(int(row["macs"]) for row in rows)
    return {"layers": len(inside), "of_layers": len(rows), "macs": sum(int(row["macs"]) for row in inside) / max(1, work)}


# ---- advice: other ways to compile a model, each with its estimated gain and cost


MAX_LAYERS = 200
"""With more layers, a compilation takes too long to try others for advice."""

_LEAST = 0.02
"""The smallest gain, as a share of the figure, that is worth a line."""


def advice(tries: Tries, *, board: Board) -> list[dict[str, Any]]:
    """Variants that improve something by at least 2 %: `command`, and the changes `ram`, `flash` (bytes), `time` (share).

    The best gain of RAM, of flash and of time comes first; sizes are workspace and constants, time is estimated.  The last entry,
    with its own `text`, says what tightly coupled memory could hold.
    """
    asked = tries.asked
    if len(asked.metadata["layers"]) > MAX_LAYERS:
        return []
    plain = [v for v in variants(tries.options) if v.words.count("--") == 1]
    if tries.options.opt != "speed":
        plain.append(Variant("--opt speed", replace(tries.options, opt="speed"), frozenset()))
    rows: list[dict[str, Any]] = []
    for variant in {v.words: v for v in plain}.values():
        compiled = tries.compiled(variant)
        row = None if compiled is None else _row(compiled, asked, board=board.name)
        if row is not None and not any(all(row[k] == other[k] for k in ("ram", "flash", "time")) for other in rows):
            rows.append(row)
    rows.sort(key=lambda r: (r["ram"] + r["flash"], r["time"]))
    hot = fast_constants(tries, board)
    if hot is None:
        return rows
    text = f"{fast_constants_text(hot)}; measure cycles to see whether it pays"
    return [*rows, {"words": hot["words"], "command": _command("verify", asked, board.name, hot["words"]), "text": text}]


def _row(made: Compiled, asked: Compiled, *, board: str) -> dict[str, Any] | None:
    new, old = price(made, asked), price(asked, asked)
    ram = new["workspace_bytes"] - old["workspace_bytes"]
    flash = new["constant_bytes"] - old["constant_bytes"]
    time = (new["instructions"] or 1.0) - 1.0
    gains = (-ram / max(1, old["workspace_bytes"]), -flash / max(1, old["constant_bytes"]), -time)
    if max(gains) < _LEAST:
        return None
    command = _command("report", asked, board, made.variant.words)
    return {"words": made.variant.words, "command": command, "ram": ram, "flash": flash, "time": round(time, 4)}


def _command(verb: str, asked: Compiled, board: str, words: str) -> str:
    file = asked.metadata["model"]["file"] or f"{asked.metadata['name']}.tflite"
    return f"aot {verb} {file} --board {board} {words}"


def advice_text(row: Mapping[str, Any]) -> str:
    """`−3,120 B RAM, +8 % time`: what changes; or the row's own text."""
    if "text" in row:
        return str(row["text"])
    parts: Sequence[str] = [f"{row[k]:+,} B {word}" for k, word in (("ram", "RAM"), ("flash", "constants")) if row[k]]
    time = [f"{100 * row['time']:+.0f} % time" if abs(row["time"]) >= 0.005 else "same time"]
    return ", ".join([*parts, *time]).replace("-", "\N{MINUS SIGN}")
