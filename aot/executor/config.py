"""The executor's settings: how kernels are chosen, how memory is planned, and measured costs of kernels."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextvars import ContextVar, Token
from dataclasses import field
from functools import lru_cache
from typing import Literal

from aot.memory.memory_pools import ONE_POOL, Pooling
from aot.support.dataclass import dataclass

Counts = Mapping[str, int]
"""Kernel -> instructions, or cycles, of one call."""


@dataclass(frozen=True, slots=True)
class History:
    """Measured costs of kernels: rows of (core, workload, kernel, number), sorted, each triple once.

    `cycles` lists the cores whose numbers are cycles of a board's own counter; other cores have instructions.
    """

    rows: tuple[tuple[str, str, str, int], ...] = ()
    cycles: tuple[str, ...] = ()

    def counts(self, target: str, workload: str | None) -> Counts:
        """The counts for a workload on a core (`target`); empty if there are none."""
        return {} if workload is None else _table(self).get((target, workload), {})

    @property
    def digest(self) -> str:
        """A digest of these numbers, recorded in the metadata of builds that used them; "" if there are none."""
        return hashlib.sha256(repr((self.rows, self.cycles)).encode()).hexdigest()[:16] if self.rows else ""

    @staticmethod
    def current() -> History:
        """The history of the innermost ApplyHistoryBest, or an empty one."""
        return _CURRENT.get() or History()


_CURRENT: ContextVar[History | None] = ContextVar("aot_history", default=None)


class ApplyHistoryBest:
    """`with ApplyHistoryBest(history): aot.build(...)`: builds inside choose kernels by the history."""

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
    table: dict[tuple[str, str], dict[str, int]] = {}
    for target, workload, kernel, count in history.rows:
        table.setdefault((target, workload), {})[kernel] = count
    return table


@dataclass(frozen=True, slots=True)
class Mode:
    """What `--opt` favours: every decision that depends on the mode, in one place.

    Flash: constants may use `constants_factor` times the bytes of the model's weights (None: any number), and code a small
    allowance, which grows with large models if `code_grows`.  Code: with `shares_functions`, layers that differ only in numbers
    share a function that gets the numbers as arguments; with `larger_kernels`, kernels that spend flash on speed compete;
    `fastest_only` drops slower kernels, `packed_only` kernels with larger weights.  With `keeps_weights`, float weights stay as
    the file stores them.

    Memory: `least_ram` runs layers row by row, or else chooses kernels by their scratch memory; `within_bound` keeps the
    workspace within the bound of whole tensors if that costs little; `windows_slide` spends memory on windows of the state that
    slide instead of being moved, and `windows_at_any_size` spends as much as they need.
    """

    constants_factor: float | None = 2
    code_grows: bool = True
    shares_functions: bool = True
    larger_kernels: bool = True
    fastest_only: bool = False
    packed_only: bool = False
    keeps_weights: bool = False
    least_ram: bool = False
    within_bound: bool = False
    windows_slide: bool = False
    windows_at_any_size: bool = False


SIZE_FACTOR = 1.12
"""Constants allowed in `size`, relative to the smallest possible: one-byte weights and three words per channel to requantise."""

MODES = {
    "balanced": Mode(keeps_weights=True, within_bound=True, windows_slide=True),
    "speed": Mode(constants_factor=None, shares_functions=False, fastest_only=True, windows_slide=True, windows_at_any_size=True),
    "size": Mode(constants_factor=SIZE_FACTOR, code_grows=False, larger_kernels=False, packed_only=True, keeps_weights=True),
    "ram": Mode(least_ram=True),
}
"""The values of `--opt`; the first is the default."""


Io = Literal["arena", "user"]
RingKind = Literal["copy", "slide"]


@dataclass(frozen=True, slots=True)
class SelectionConfig:
    """One way to compile: what to favour, and limits in bytes for flash (constants and kernel code) and the workspace.

    `kernels` "generic" excludes everything written for an instruction set.  `feed_rows`: the input arrives row by row.  A
    `workspace_limit` of 0 asks for the smallest workspace at any cost.  `whole_limit`: bytes within which whole layers should
    run, without cascades, if they have suitable kernels.  `tight`: views replace copies only if the plan does not grow.
    `slides`: the model receives only the new rows of a window.  `history`: measured costs of kernels, which override their
    estimates.
    """

    opt: str = "balanced"
    kernels: str = "native"
    flash_budget: int | None = None
    workspace_limit: int | None = None
    whole_limit: int | None = None
    tight: bool = False
    feed_rows: bool = False
    slides: bool = False
    history: History = field(default_factory=History)

    @property
    def mode(self) -> Mode:
        """What the mode favours."""
        return MODES[self.opt]

    @property
    def cascades(self) -> bool:
        """Whether layers may run row by row."""
        return self.mode.least_ram or self.workspace_limit is not None or self.feed_rows

    @property
    def keeps_weights(self) -> bool:
        """Whether float weights stay as stored in the file if there are kernels for that, even if others are faster."""
        return self.mode.keeps_weights and self.workspace_limit is None

    @property
    def limits_ram(self) -> bool:
        """Whether kernels with little scratch memory are considered; a row of a cascade needs little anyway."""
        return self.workspace_limit is not None or self.whole_limit is not None


SLIDE_SHARE = 20
"""With --slide and in chains, a state may exceed its kept rows by at most 1 / SLIDE_SHARE, if possible.

More room to advance would only save copies that are a small part of a run anyway.
"""


@dataclass(frozen=True, slots=True)
class PlanConfig:
    """How memory is planned: inputs and outputs in the workspace ("arena") or the caller's ("user"), and the pools.

    `rings`: windows of the state are moved in every run ("copy") or advance ("slide"), within `ram_budget` bytes of workspace
    and state, and with extra room of at most 1 / `ring_share` of the kept rows, if given.  `max_iterations`: a loop whose end
    depends on data is given up after this many iterations (0: never); the run then ends with the initial state.
    `most_spread`: bytes to which tensors pinned to other pools may make the workspace grow.
    """

    io: Io = "arena"
    pooling: Pooling = ONE_POOL
    rings: RingKind = "copy"
    ram_budget: int | None = None
    ring_share: int | None = None
    max_iterations: int = 0
    most_spread: int | None = None
