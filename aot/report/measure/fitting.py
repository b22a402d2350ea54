"""Where a model fits: as requested, or else the first other way to compile it that fits, with its cost."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Any

from aot.driver.build import Shared, compile_model
from aot.driver.options import Options
from aot.driver.reading import NamedBytes
from aot.errors import AotError, Problem, UsageError
from aot.executor.artifact import Artifact
from aot.micro.board import Board, board_names, load_board
from aot.report.measure.board_fit import Fit, Linker, budget_words, can_feed, fit, if_installed, linker
from aot.support.dataclass import dataclass

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
