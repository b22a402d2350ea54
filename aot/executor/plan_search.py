"""How much speed memory may cost, and which plans are tried for it.

Every mode has a usual plan, the one without a RAM budget.  A budget that the usual plan meets changes nothing.  Otherwise the
fewest instructions within the budget are searched for; if nothing fits, the result is the smallest plan of a family that depends
neither on the mode nor on the budget, so that no other mode or budget is known to need less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from aot.errors import UsageError
from aot.executor.config import MODES
from aot.support.dataclass import dataclass

if TYPE_CHECKING:
    from aot.executor.storage_map import Planned


MOST_SLOWDOWN = 1.25
"""How many times the instructions of the fastest plan a smaller plan may need, by the estimates.

`balanced` uses it to keep the workspace within the bound of whole tensors, `ram` to minimise the workspace.
"""

TRIES = 3
"""Limits to try for a budget: layers that fit one by one may not fit together."""

DESCENT = 6
"""Limits below the smallest plan so far to try if nothing fits."""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """One way to compile: `opt`, `ram_budget` (0: as small as possible) and `whole_limit` as in SelectionConfig.

    `tight`: views replace copies only if the plan does not grow.
    """

    opt: str
    ram_budget: int | None = None
    whole_limit: int | None = None
    tight: bool = False


@dataclass(frozen=True, slots=True)
class PlanSearch:
    """The plans of one model: `made` carries out a request (None if no layers fit its budget) and caches the result.

    `bound`: bytes of whole tensors that never overlap.  `fed`: the input arrives row by row, so some layers always run that way.
    `pools`: bytes of the memories that must hold the workspace; empty: any size.  `state`: bytes of a plan's state.
    """

    made: Callable[[PlanRequest], Planned | None]
    bound: int
    fed: bool = False
    pools: tuple[int, ...] = ()
    state: Callable[[Planned], int] = lambda planned: planned.layout.state_size

    def usual(self, opt: str) -> Planned:
        """The plan of a mode without a budget; if the pools cannot hold it, the fastest plan found for them."""
        usual = self._usual(opt)
        return usual if usual.fits or self._names_nothing() else self._fastest(sum(self.pools), opt)

    def within(self, budget: int, opt: str) -> Planned:
        """The plan of a mode with a RAM budget, in bytes."""
        usual = self._usual(opt)
        budget -= self.state(usual)  # the same in every plan
        if self._is_good(usual, budget) or self._names_nothing():
            return usual
        return self._fastest(budget, opt)

    def _usual(self, opt: str) -> Planned:
        mode = MODES[opt]
        first = self._made(opt, tight=mode.least_ram)
        if mode.least_ram and not self.fed:
            # whole layers may overlap more than the search for cascades counts on
            return min(first, self._balanced(tight=True), key=lambda p: p.layout.rank)
        return self._balanced(tight=False) if mode.within_bound else first

    def _fastest(self, budget: int, opt: str) -> Planned:
        """The plan with the fewest instructions within the budget that the pools hold; the smallest plan if none is found."""
        limit = budget
        for _ in range(TRIES):
            trial = self.made(PlanRequest(opt, limit, tight=True)) if limit > 0 else None
            if trial is None:
                break
            if self._is_good(trial, budget):
                return trial
            if trial.size > budget:
                limit -= trial.size - budget
            else:  # several pools may fail despite their total size; one pool cannot
                room = sum(self.pools)
                limit = room if room < limit else min(limit - 1, max(self.pools))
        family = []
        for plan in self._smallest():
            if self._is_good(plan, budget):
                return plan
            family.append(plan)
        return min(family, key=lambda p: (not p.fits, p.size, p.estimate))

    def _is_good(self, planned: Planned, budget: int) -> bool:
        return planned.fits and planned.size <= budget

    def _names_nothing(self) -> bool:
        """Whether a pin names a tensor that not even a plan of whole tensors has, so that no other plan need be tried."""
        return bool(self.pools) and isinstance(self._made("balanced", tight=False).layout.unfit, UsageError)

    def _made(self, opt: str, *, whole_limit: int | None = None, tight: bool) -> Planned:
        """A request that cannot fail because it has no budget."""
        planned = self.made(PlanRequest(opt, None, whole_limit, tight))
        assert planned is not None, "without a budget there is a plan"
        return planned

    def _balanced(self, *, tight: bool) -> Planned:
        """The fastest plan, or one with less scratch memory if the fastest exceeds `bound` and the other is worth its cost."""
        usual = self._made("balanced", tight=tight)
        if self.fed or usual.whole <= self.bound:
            return usual
        small = self._made("balanced", whole_limit=self.bound, tight=tight)
        over = small.whole - self.bound
        if over > 0 and pays(small, usual):  # layers that fit alone do not fit together: lower the limit of each
            less = self._made("balanced", whole_limit=self.bound - over, tight=tight)
            small = min(small, less, key=lambda p: p.layout.rank)
        return small if (small.fits or not usual.fits) and pays(small, usual) else usual

    def _smallest(self) -> Iterator[Planned]:
        """Small plans: the plan of `ram`, ever smaller ones at any cost, and the plans of the other modes."""
        plans = [self._usual("ram")]
        yield plans[0]
        for attempt in self._descents(plans):
            trial = self.made(attempt)
            if trial is not None:
                plans.append(trial)
                yield trial
        for opt in MODES:
            yield self._usual(opt)

    def _descents(self, plans: Sequence[Planned]) -> Iterator[PlanRequest]:
        """The smallest sum of estimates, then limits below the smallest of the plans in `plans`."""
        yield PlanRequest("ram", 0, tight=True)
        for whole in (False,) if self.fed else (False, True):
            limit = min(p.size for p in plans) - 1
            for _ in range(DESCENT):
                before = len(plans)
                yield PlanRequest("ram", None, limit, tight=True) if whole else PlanRequest("ram", limit, tight=True)
                if len(plans) == before:
                    break
                limit -= max(1, plans[-1].size - limit)  # if the same plan comes back, double the step
                if limit <= 0:
                    break


def pays(small: Planned, usual: Planned) -> bool:
    """Whether the smaller workspace saves a larger share of the memory than it costs of the speed, by the estimates."""
    return (
        small.whole < usual.whole
        and small.whole * small.estimate < usual.whole * usual.estimate
        and small.estimate <= MOST_SLOWDOWN * usual.estimate
    )
