"""How kernels are chosen and memory is planned: what to favour, and the limits."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from aot.executor.select.history import History
from aot.memory.pooling import ONE_POOL, Pooling
from aot.support.dataclass import dataclass

Io = Literal["arena", "user"]
RingKind = Literal["copy", "slide"]


@dataclass(frozen=True, slots=True)
class SelectionConfig:
    """How kernels are chosen: what to favour, and limits in bytes for flash (constants and kernel code) and RAM (workspace).

    `kernels` "generic" leaves out everything that is made for an instruction set.  `feed_rows`: the input comes row by row.
    A `ram_budget` of 0 asks for the smallest workspace, whatever it costs.  `whole_limit`: bytes within which whole layers
    should run where they have kernels that can; without cascades.  `slides`: the model takes the new rows of a window.
    `history`: what kernels were counted to take, which goes before their estimates.
    """

    opt: str = "balanced"
    kernels: str = "native"
    flash_budget: int | None = None
    ram_budget: int | None = None
    feed_rows: bool = False
    whole_limit: int | None = None
    slides: bool = False
    history: History = field(default_factory=History)

    @property
    def cascades(self) -> bool:
        """Whether layers may run row by row."""
        return self.opt == "ram" or self.ram_budget is not None or self.feed_rows

    @property
    def keeps_weights(self) -> bool:
        """Whether float weights stay as the file has them where there are kernels for it, though others may be faster."""
        return self.opt in ("balanced", "size") and self.ram_budget is None

    @property
    def limits_ram(self) -> bool:
        """Whether kernels that are made for their scratch memory are considered; a row of a cascade needs little anyway."""
        return self.ram_budget is not None or self.whole_limit is not None


SLIDE_SHARE = 20
"""With --slide, and in chains, a state has so many times what it is longer than the rows that are kept, where that can be.

Room to move on saves copies that are a small part of a run anyway.
"""


@dataclass(frozen=True, slots=True)
class PlanConfig:
    """How memory is planned: inputs and outputs in the workspace ("arena") or the caller's ("user"), and the pools.

    `tight`: views take the place of copies only where the plan does not grow by them.  `rings`: whether the windows of the state
    are moved in each run or slide, within `ram_limit` bytes of workspace and state, and with room for at most 1 / `ring_share` of
    them where that is given.  `max_iterations`: a loop whose end depends
    on data is given up after so many (0: never), and the run ends there with the state at its start.  `most_spread`: bytes of the
    workspace that tensors pinned to other pools may make it grow to.
    """

    io: Io = "arena"
    pooling: Pooling = ONE_POOL
    tight: bool = False
    rings: RingKind = "copy"
    ram_limit: int | None = None
    ring_share: int | None = None
    max_iterations: int = 0
    most_spread: int | None = None
