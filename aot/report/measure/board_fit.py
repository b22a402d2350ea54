"""What is built for a board: what was asked for where that fits, else the fewest instructions within the memory that is free.

`aot check --board`, `build`, `compile`, `run`, `verify` and `report` all call `fit`, so what one says the others do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from aot.driver.options import Options
from aot.errors import AotError, Problem, TargetError, ToolchainError
from aot.executor.artifact import Artifact, over_budget
from aot.micro.board import Board
from aot.micro.build.image import inspect_image
from aot.micro.build.project import choose_places, fixed_ram, overflow, prepare
from aot.support.dataclass import dataclass

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
