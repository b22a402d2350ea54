"""Collects the problems of a model, and chooses the error that carries them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from aot.errors import AotError, ModelError, Problem, UnsupportedError

MAX_PROBLEMS = 100
"""A broken file can have a hundred thousand faults; beyond this many only their number is kept."""


class Problems:
    """An ordered, limited collection of problems, one per cause.

    An unrolled recurrent layer, or weights of a wrong type, are one fault in many places: the first place is named, with the
    number of the others.  Problems that only follow from another problem of the same operator are left out."""

    __slots__ = ("_places", "_seen", "dropped", "found")

    def __init__(self) -> None:
        self.found: list[Problem] = []
        self.dropped = 0
        self._places: dict[tuple[str, ...], dict[str, None]] = {}
        self._seen: set[tuple[str, str]] = set()

    def __bool__(self) -> bool:
        return bool(self.found)

    def add(self, code: str, message: str, where: str = "") -> None:
        """Note one problem; duplicates count once."""
        if any((earlier, where) in self._seen for earlier in _FOLLOWS.get(code, ())):
            return
        self._seen.add((code, where))
        cause = (code, _ONE.sub("", message), _KIND.sub("", where))
        places = self._places.get(cause)
        if places is not None:
            places[where] = None
        elif len(self.found) >= MAX_PROBLEMS:
            self.dropped += 1
        else:
            self._places[cause] = {where: None}
            self.found.append(Problem(code, message, where))

    def extend(self, problems: tuple[Problem, ...]) -> None:
        """Note the problems that an error carries."""
        for problem in problems:
            self.add(problem.code, problem.message, problem.where)

    def report(self) -> list[Problem]:
        """All problems, with a last line for the number left out."""
        listed = [_with_places(p, list(places)) for p, places in zip(self.found, self._places.values(), strict=True)]
        if not self.dropped:
            return listed
        return [*listed, Problem("E1008", f"{self.dropped} more problems are not listed")]

    def error(self) -> AotError | None:
        """The error to raise: `ModelError` if anything is malformed or inconsistent, else `UnsupportedError`."""
        return error_of(self.report())


_FOLLOWS = {"E1201": ("E1213",), "E1204": ("E1213",)}
"""Code -> codes that make it redundant for the same operator."""
_ONE = re.compile(r'(tensor|op) \d+( "[^"]*")?')
"""Part of a message: the tensor or operator at fault."""
_KIND = re.compile(r'(?<=^op )\d+|(?<=^tensor )\d+|(?<= )"[^"]*"| of subgraph .*')
"""Part of a place: everything except the kind of operator, or the word tensor."""
_NAMED = re.compile(r'((?:op|tensor) \d+)(?: "[^"]*")?( of subgraph \d+)?')
SHOWN = 4
"""Maximum number of further places that are listed."""


def _with_places(problem: Problem, places: Sequence[str]) -> Problem:
    """The problem at the first place, with the other places."""
    others = [found[1] + (found[2] or "") if (found := _NAMED.search(place)) else place for place in places[1:]]
    if not others:
        return problem
    listed = ", ".join(others[:SHOWN]) + (" …" if len(others) > SHOWN else "")
    return Problem(problem.code, f"{problem.message}; the same at {len(others)} more: {listed}", problem.where)


def error_of(problems: list[Problem]) -> AotError | None:
    """The error that carries all `problems`, None if there are none."""
    if not problems:
        return None
    broken = any(p.code.startswith(("E10", "E11")) and p.code != "E1008" for p in problems)
    return ModelError(*problems) if broken else UnsupportedError(*problems)
