"""Trade-offs between flash, RAM and time: builds with many options, and the best of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from html import escape
from operator import le
from pathlib import Path
from typing import Any

from aot.driver.build import compile_model
from aot.driver.options import OPTS, Options
from aot.driver.reading import NamedBytes
from aot.errors import AotError
from aot.executor.lowered import LoweredModule
from aot.micro.board import board_names, load_board
from aot.report.measure.fitting import problems_on, ram_of
from aot.support.dataclass import dataclass
from aot.system.executors import Opener, outcomes


@dataclass(frozen=True, slots=True)
class Trial:
    """A candidate build: the options, and the same options as command-line words."""

    words: str
    options: Options


@dataclass(frozen=True, slots=True)
class Point:
    """A build: `flash` is constants plus estimated kernel code, `ram` is workspace plus state; all in bytes.

    `instructions` of one inference, estimated.  `boards`: those with room for it.
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
    """Available bytes; None: no limit."""

    flash: int | None = None
    ram: int | None = None

    def excess(self, point: Point) -> float:
        """The factor by which a point exceeds the worse of the limits; 1 or less if it fits."""
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
    """All points: every mode, fed rows, the limits as budgets, and `steps` budgets between the smallest and the largest RAM.

    Of builds with equal figures, the one with the fewest options is kept; options that are not varied apply to all.  Raises the
    model's own AotError if no build is possible.
    """
    first = list(_modes(options, limits))
    points = _points(first, source, target=target, name=name, pool=pool)
    if not any(points):
        compile_model(source, target=target, name=name, options=options)  # raises the problem
    rams = [p.ram for p in points if p is not None]
    budgets = [min(rams) + (max(rams) - min(rams)) * k // (steps + 1) for k in range(1, steps + 1)]
    more = [_budget(options, n) for n in dict.fromkeys(budgets) if min(rams) < n < max(rams)]
    more += [_budget(options, min(rams) - n) for n in _fewer_rows(first, source, target=target, name=name) if n < min(rams)]
    points += _points(more, source, target=target, name=name, pool=pool)
    distinct: dict[tuple[int, int, int], Point] = {}
    for point in sorted((p for p in points if p is not None), key=lambda p: (len(p.words), p.words)):
        distinct.setdefault(point.figures, point)
    return sorted(distinct.values(), key=lambda p: (p.instructions, p.ram, p.flash))


def pareto(points: Sequence[Point]) -> list[Point]:
    """The Pareto-optimal points, the fastest first."""
    return [p for p in points if not any(q.figures != p.figures and all(map(le, q.figures, p.figures)) for q in points)]


def fastest(points: Sequence[Point], limits: Limits) -> Point | None:
    """The fastest point within the limits."""
    return min((p for p in points if limits.excess(p) <= 1), key=lambda p: (p.instructions, p.ram, p.flash), default=None)


def nearest(points: Sequence[Point], limits: Limits, *, count: int = 3) -> list[Point]:
    """The points that exceed the limits least."""
    return sorted(points, key=lambda p: (limits.excess(p), p.instructions))[:count]


def on_boards(points: Sequence[Point]) -> dict[str, Point | None]:
    """For every board the fastest point that fits it."""
    return {name: next((p for p in points if name in p.boards), None) for name in board_names()}


def _modes(options: Options, limits: Limits) -> Iterator[Trial]:
    """Every mode, with whole inputs and fed rows, without limits and with the limits as budgets."""
    limit_options = {"ram_budget": limits.ram, "flash_budget": limits.flash}
    budgets: list[dict[str, int]] = [{}, {k: v for k, v in limit_options.items() if v is not None}]
    fed = not options.slide and options.io == "arena"
    for budget in budgets if budgets[1] else budgets[:1]:
        for feed in (False, True) if fed else (options.feed_rows,):
            for opt in OPTS:
                words = [f"--opt {opt}", *(["--feed-rows"] if feed else [])]
                words += [f"--{k.replace('_', '-')} {v}" for k, v in budget.items()]
                changed = {"opt": opt, "feed_rows": feed, **budget}
                yield Trial(" ".join(words), replace(options, **changed))  # type: ignore[arg-type]


def _budget(options: Options, ram: int) -> Trial:
    return Trial(f"--opt speed --ram-budget {ram}", replace(options, opt="speed", ram_budget=ram))


def _fewer_rows(trials: Sequence[Trial], source: NamedBytes | bytes, *, target: str, name: str) -> list[int]:
    """Bytes of kept rows that each other plan of a sliding window saves: budgets at which it recomputes rows."""
    if not trials[0].options.slide:
        return []
    with suppress(AotError):
        compiled = compile_model(source, target=target, name=name, options=trials[0].options)
        front = compiled.artifact.metadata["slide"]["front"]
        return [front[0]["rows_bytes"] - plan["rows_bytes"] for plan in front[1:]]
    return []


def _points(
    trials: Sequence[Trial], source: NamedBytes | bytes, *, target: str, name: str, pool: Opener | None
) -> list[Point | None]:  # fmt: skip
    """The point of each trial, in their order."""
    points = dict(outcomes(partial(make, source=source, target=target, name=name), trials, pool))
    return [points[trial] for trial in trials]


def make(trial: Trial, source: NamedBytes | bytes, target: str, name: str) -> Point | None:
    """The point of a trial; None if the model cannot be compiled with these options."""
    try:
        compiled = compile_model(source, target=target, name=name, options=trial.options)
    except AotError:
        return None
    metadata = compiled.artifact.metadata
    unlimited = {**metadata, "options": {**metadata["options"], "ram_budget": None, "flash_budget": None}}
    boards = tuple(n for n in board_names() if not problems_on(load_board(n), unlimited))
    flash = int(metadata["constants"]["size"]) + code_estimate(compiled.lowered)
    return Point(trial.words, flash, ram_of(metadata), compiled.lowered.estimate, boards)


def code_estimate(lowered: LoweredModule) -> int:
    """Bytes of the kernels' code as they estimate it; shared kernels count once."""
    sizes: dict[str, int] = {}
    for call in lowered.calls:
        kernel = lowered.kernel(call).attrs.kernel
        sizes[call.emitted] = next((c.code for c in call.candidates if c.kernel == kernel), 0)
    return sum(sizes.values())


# ---- the points as one HTML file: a plot with selectable axes, and a table; no network


_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""Forbids the browser all requests."""


def explore_page(title: str, rows: Sequence[Mapping[str, Any]], boards: Mapping[str, str | None]) -> str:
    """The page; `rows` as in `aot explore --json`, `boards`: the command of each board's fastest build."""
    data = json.dumps({"rows": list(rows), "boards": dict(boards)}).replace("<", "\\u003c")
    text = (Path(__file__).with_suffix(".html")).read_text(encoding="utf-8")
    parts = {"POLICY": _POLICY, "TITLE": escape(title), "DATA": data}
    return re.sub("@(POLICY|TITLE|DATA)@", lambda place: parts[place[1]], text)  # one pass: a value may contain such a word
