"""Collecting the problems of a model, and choosing the error that carries them."""

from __future__ import annotations

from aot.errors import AotError, ModelError, Problem, UnsupportedError

MAX_PROBLEMS = 100
"""A broken file can hold a hundred thousand faults; after this many only their number is kept."""


class Problems:
    """An ordered collection of distinct problems with an upper limit."""

    __slots__ = ("_seen", "dropped", "found")

    def __init__(self) -> None:
        self.found: list[Problem] = []
        self.dropped = 0
        self._seen: set[Problem] = set()

    def __bool__(self) -> bool:
        return bool(self.found)

    def add(self, code: str, message: str, where: str = "") -> None:
        """Note one problem; the same one twice counts once."""
        problem = Problem(code, message, where)
        if problem in self._seen:
            return
        if len(self.found) >= MAX_PROBLEMS:
            self.dropped += 1
            return
        self._seen.add(problem)
        self.found.append(problem)

    def extend(self, problems: tuple[Problem, ...]) -> None:
        """Note the problems that an error carries."""
        for problem in problems:
            self.add(problem.code, problem.message, problem.where)

    def report(self) -> list[Problem]:
        """All problems, with a last line that says how many were left out."""
        if not self.dropped:
            return list(self.found)
        return [*self.found, Problem("E1008", f"{self.dropped} more problems are not listed")]

    def error(self) -> AotError | None:
        """The error to raise: `ModelError` if anything is malformed or inconsistent, else `UnsupportedError`."""
        return error_of(self.report())


def error_of(problems: list[Problem]) -> AotError | None:
    """The error that carries all `problems`, None if there are none."""
    if not problems:
        return None
    broken = any(p.code.startswith(("E10", "E11")) and p.code != "E1008" for p in problems)
    return ModelError(*problems) if broken else UnsupportedError(*problems)
