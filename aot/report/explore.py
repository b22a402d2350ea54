"""What flash, RAM and time a model may be traded for: builds with many options, and the best of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from aot.driver.build import compile_model
from aot.driver.options import OPTS, Options
from aot.driver.reading import NamedBytes
from aot.errors import AotError
from aot.executor.lowered import LoweredModule
from aot.micro.board import board_names, load_board
from aot.report.measure.fitting import problems_on
from aot.support.dataclass import dataclass
from aot.system.executors import Opener, outcomes


@dataclass(frozen=True, slots=True)
class Trial:
    """A way to compile: the options, and the words for them on a command line."""

    words: str
    options: Options


@dataclass(frozen=True, slots=True)
class Point:
    """A build: `flash` are its constants and, by estimate, its kernels; `ram` workspace and state; all in bytes.

    `instructions` of one inference, by estimate.  `boards`: those with room for it.
    """

    words: str
    flash: int
    ram: int
    instructions: int
    boards: tuple[str, ...]

    @property
    def figures(self) -> tuple[int, int, int]:
        return self.flash, self.ram, self.instructions


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes that there are; None: no limit."""

    flash: int | None = None
    ram: int | None = None

    def excess(self, point: Point) -> float:
        """By which factor a point is over the worse of the limits; 1 or less for one that fits."""
        pairs = ((point.flash, self.flash), (point.ram, self.ram))
        return max((have / max(limit, 1) for have, limit in pairs if limit is not None), default=0.0)


def explore(
    source: NamedBytes | bytes,
    options: Options,
    *,
    target: str,
    name: str,
    limits: Limits,
    steps: int = 3,
    pool: Opener | None = None,
) -> list[Point]:
    """All points: every mode, rows that are fed, the limits as budgets, and `steps` budgets between the least and the most RAM.

    Builds of equal figures are one, the one with the fewest options; the options of `options` that are not varied hold for all.
    AotError of the model itself where no build is possible.
    """
    first = list(_modes(options, limits))
    points = _made(first, source, target=target, name=name, pool=pool)
    if not any(points):
        compile_model(source, target=target, name=name, options=options)  # raises what is wrong
    rams = [p.ram for p in points if p is not None]
    budgets = [min(rams) + (max(rams) - min(rams)) * k // (steps + 1) for k in range(1, steps + 1)]
    more = [_budget(options, n) for n in dict.fromkeys(budgets) if min(rams) < n < max(rams)]
    more += [_budget(options, min(rams) - n) for n in _fewer_rows(first, source, target=target, name=name) if n < min(rams)]
    points += _made(more, source, target=target, name=name, pool=pool)
    distinct: dict[tuple[int, int, int], Point] = {}
    for point in sorted((p for p in points if p is not None), key=lambda p: (len(p.words), p.words)):
        distinct.setdefault(point.figures, point)
    return sorted(distinct.values(), key=lambda p: (p.instructions, p.ram, p.flash))


def pareto(points: Sequence[Point]) -> list[Point]:
    """The points than which no other is better in one figure and no worse in the rest, the fastest first."""
    return [p for p in points if not any(_beats(q, p) for q in points)]


def fastest(points: Sequence[Point], limits: Limits) -> Point | None:
    """The fastest within the limits."""
    return min((p for p in points if limits.excess(p) <= 1), key=lambda p: (p.instructions, p.ram, p.flash), default=None)


def nearest(points: Sequence[Point], limits: Limits, *, count: int = 3) -> list[Point]:
    """Those that exceed the limits least."""
    return sorted(points, key=lambda p: (limits.excess(p), p.instructions))[:count]


def on_boards(points: Sequence[Point]) -> dict[str, Point | None]:
    """For every board the fastest point that it has room for."""
    return {name: next((p for p in points if name in p.boards), None) for name in board_names()}


def _beats(a: Point, b: Point) -> bool:
    return a.figures != b.figures and all(x <= y for x, y in zip(a.figures, b.figures, strict=True))


def _modes(options: Options, limits: Limits) -> Iterator[Trial]:
    """Every mode, whole and fed by rows, without limits and with them as budgets."""
    budgets: list[dict[str, int]] = [{}]
    given = {"ram_budget": limits.ram, "flash_budget": limits.flash}
    wanted = {k: v for k, v in given.items() if v is not None}
    if wanted:
        budgets.append(wanted)
    fed = not options.slide and options.io == "arena"
    for budget in budgets:
        for feed in (False, True) if fed else (options.feed_rows,):
            for opt in OPTS:
                words = [f"--opt {opt}", *(["--feed-rows"] if feed else [])]
                words += [f"--{k.replace('_', '-')} {v}" for k, v in budget.items()]
                changed = {"opt": opt, "feed_rows": feed, **budget}
                yield Trial(" ".join(words), replace(options, **changed))  # type: ignore[arg-type]


def _budget(options: Options, ram: int) -> Trial:
    return Trial(f"--opt speed --ram-budget {ram}", replace(options, opt="speed", ram_budget=ram))


def _fewer_rows(trials: Sequence[Trial], source: NamedBytes | bytes, *, target: str, name: str) -> list[int]:
    """How many bytes of rows each other plan of a window that moves keeps less: what it is for a budget to compute again."""
    if not trials[0].options.slide:
        return []
    with suppress(AotError):
        made = compile_model(source, target=target, name=name, options=trials[0].options)
        front = made.artifact.metadata["slide"]["front"]
        return [front[0]["rows_bytes"] - way["rows_bytes"] for way in front[1:]]
    return []


def _made(
    trials: Sequence[Trial], source: NamedBytes | bytes, *, target: str, name: str, pool: Opener | None
) -> list[Point | None]:  # fmt: skip
    """What comes of each trial, in their order."""
    work = partial(_make_numbered, source=source, target=target, name=name)
    made = {number: point for (number, _), point in outcomes(work, list(enumerate(trials)), pool)}
    return [made[i] for i in range(len(trials))]


def _make_numbered(job: tuple[int, Trial], *, source: NamedBytes | bytes, target: str, name: str) -> Point | None:
    """`make`, for a job that says which it is."""
    return make(job[1], source, target, name)


def make(trial: Trial, source: NamedBytes | bytes, target: str, name: str) -> Point | None:
    """What comes of a trial; None where the model cannot be compiled so."""
    try:
        found = compile_model(source, target=target, name=name, options=trial.options)
    except AotError:
        return None
    metadata = found.artifact.metadata
    unlimited = {**metadata, "options": {**metadata["options"], "ram_budget": None, "flash_budget": None}}
    boards = tuple(n for n in board_names() if not problems_on(load_board(n), unlimited))
    flash = int(metadata["constants"]["size"]) + code_estimate(found.lowered)
    return Point(trial.words, flash, _ram(metadata), found.lowered.estimate, boards)


def _ram(metadata: Any) -> int:
    return int(metadata["workspace"]["size"]) + int(metadata.get("state", {}).get("size", 0))


def code_estimate(lowered: LoweredModule) -> int:
    """Bytes of the kernels' code as they state it, of those that layers share once."""
    sizes: dict[str, int] = {}
    for call in lowered.calls:
        kernel = lowered.kernel(call).attrs.kernel
        sizes[call.emitted] = next((c.code for c in call.candidates if c.kernel == kernel), 0)
    return sum(sizes.values())


# ---- the points as one HTML file: a plot whose axes can be chosen, and a table; no network


_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""Forbids the browser every request."""


def explore_page(title: str, rows: Sequence[Mapping[str, Any]], boards: Mapping[str, str | None]) -> str:
    """`rows` as `aot explore --json` has them; `boards`: the command of each board's fastest build."""
    data = json.dumps({"rows": list(rows), "boards": dict(boards)}).replace("<", "\\u003c")
    text = (Path(__file__).with_suffix(".html")).read_text(encoding="utf-8")
    parts = {"POLICY": _POLICY, "TITLE": escape(title), "DATA": data}
    return re.sub("@(POLICY|TITLE|DATA)@", lambda place: parts[place[1]], text)  # in one go: a value may hold such a word
