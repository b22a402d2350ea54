"""ApplyHistoryBest: kernels compete by what they were counted to take, where that is known, instead of by estimates."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextvars import ContextVar, Token
from functools import lru_cache

from aot.support.dataclass import dataclass

Counts = Mapping[str, int]
"""Kernel -> instructions, or cycles, of one call."""


@dataclass(frozen=True, slots=True)
class History:
    """What kernels were counted to take: rows of (core, workload, kernel, number), sorted, each triple once.

    `cycles` are the cores whose numbers are cycles of a board's own counter; those of the others are instructions.
    """

    rows: tuple[tuple[str, str, str, int], ...] = ()
    cycles: tuple[str, ...] = ()

    def counts(self, target: str, workload: str | None) -> Counts:
        """What is known of a workload on a core; empty where nothing is."""
        return {} if workload is None else _table(self).get((target, workload), {})

    @property
    def digest(self) -> str:
        """A name for these numbers, for the metadata of what was chosen by them; "" where there are none."""
        return hashlib.sha256(repr((self.rows, self.cycles)).encode()).hexdigest()[:16] if self.rows else ""

    @staticmethod
    def current() -> History:
        """That of the innermost ApplyHistoryBest, or one that knows nothing."""
        return _CURRENT.get() or History()


_CURRENT: ContextVar[History | None] = ContextVar("aot_history", default=None)


class ApplyHistoryBest:
    """`with ApplyHistoryBest(history): aot.build(...)`: builds within choose kernels by the history."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._token: Token[History | None] | None = None

    def __enter__(self) -> History:
        self._token = _CURRENT.set(self._history)
        return self._history

    def __exit__(self, *_: object) -> None:
        assert self._token is not None
        _CURRENT.reset(self._token)


@lru_cache(8)
def _table(history: History) -> Mapping[tuple[str, str], Counts]:
    found: dict[tuple[str, str], dict[str, int]] = {}
    for target, workload, kernel, count in history.rows:
        found.setdefault((target, workload), {})[kernel] = count
    return found
