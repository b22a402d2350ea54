"""Where a model fits: as requested, or else the first other way to compile it that fits, with its cost."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Any

from aot.driver.build import compile_model
from aot.driver.options import Options
from aot.driver.reading import NamedBytes
from aot.errors import AotError, Problem, TargetError
from aot.executor.artifact import Artifact
from aot.micro.board import Board, board_names, load_board
from aot.micro.build.project import choose_places
from aot.report.figures.limits import over_budget
from aot.support.dataclass import dataclass

RAM = frozenset({"E2010", "E2021"})
FLASH = frozenset({"E2011", "E2022"})


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
    if not options.feed_rows and not options.slide and options.io == "arena" and not options.pooling.pools:
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

    def compiled(self, way: Way) -> Compiled | None:
        """What comes of a way; None if the model cannot be compiled so (its input cannot come by rows)."""
        if way.words not in self.made:
            try:
                found = compile_model(self.source, target=self.target, name=self.name, options=way.options)
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

    def first_fit(self, board: Board | None) -> tuple[Compiled | None, tuple[Problem, ...]]:
        """The first way that has no problem on a board, and the problems that it has as requested.

        Ways that cannot help against these problems are not tried.
        """
        problems = problems_on(board, self.asked.metadata)
        if not problems:
            return self.asked, ()
        codes = {p.code for p in problems}
        for way in ways(self.options):
            hopeless = not codes & way.helps or (not way.options.feed_rows and least_ram(self.asked.metadata) > room(board))
            found = None if hopeless else self.compiled(way)
            if found is not None and not problems_on(board, found.metadata):
                return found, problems
        return None, problems


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


def problems_on(board: Board | None, metadata: Mapping[str, Any]) -> tuple[Problem, ...]:
    """What is over a budget, and what a board has no room for."""
    found = tuple(over_budget(metadata))
    if board is not None and not board.is_host:
        try:
            choose_places(board, metadata)
        except TargetError as error:
            found += error.problems
    return found


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


def fitting_boards(tries: Tries) -> list[dict[str, Any]]:
    """For each board whether the model's workspace and constants fit its memory, as requested or how, and why not."""
    rows = []
    for name in board_names():
        board = load_board(name)
        found, problems = tries.first_fit(board)
        row = {"board": name, "cpu": board.cpu, "fits": found is not None, "problems": [p.message for p in problems]}
        rows.append(row | ({} if found is None else price(found, tries.asked)))
    return rows
