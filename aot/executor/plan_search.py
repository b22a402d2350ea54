"""How much speed memory may cost, and which plans are tried for it.

Every mode has a usual plan, the one without a RAM budget.  A budget that the usual plan meets changes nothing.  Otherwise the
fewest instructions within the budget are searched for; if nothing fits, the result is the smallest plan of a family that depends
neither on the mode nor on the budget, so that no other mode or budget is known to need less.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from aot.errors import UsageError
from aot.executor.candidates import FusedModule
from aot.executor.config import MODES
from aot.executor.pipeline import lower_and_plan
from aot.executor.plan_memory import least_state
from aot.executor.select_kernels import MOST_SLOWDOWN, NothingFits
from aot.executor.storage_map import Planned
from aot.ir.transform import PassContext, unwatched
from aot.support.dataclass import dataclass

TRIES = 3
"""Limits to try for a budget: layers that fit one by one may not fit together."""

DESCENT = 6
"""Limits below the smallest plan so far to try if nothing fits."""


@dataclass(frozen=True, slots=True)
class PlanSearch:
    """The plans of one fused model; `bound`: bytes of whole tensors that never overlap.

    If the input arrives row by row, some layers always run that way.
    """

    fused: FusedModule
    bound: int

    def best(self, opt: str, ram_budget: int | None) -> Planned:
        """The plan of a mode, within a budget for workspace and state in bytes if one is given.

        Without a budget: the mode's usual plan, or if the pools cannot hold it, the fastest plan found for them.
        """
        usual = self._usual(opt)
        limit = sum(self._pools)
        if ram_budget is not None:
            limit = ram_budget - least_state(usual)  # the state is the same in every plan
        if usual.fits and (ram_budget is None or usual.size <= limit):
            return usual
        # a pin may name a tensor that not even a plan of whole tensors has: then no other plan need be tried
        if self._pools and isinstance(self._plan("balanced", tight=False).layout.unfit, UsageError):
            return usual
        return self._fastest(limit, opt)

    def fits(self, planned: Planned, ram_budget: int | None) -> bool:
        """Whether workspace and state fit the budget, and the plan fits the pools."""
        return planned.fits and (ram_budget is None or planned.size + least_state(planned) <= ram_budget)

    def watched(self, planned: Planned) -> Planned:
        """The chosen plan, made once more if instruments want to watch."""
        if not PassContext.current().instruments:
            return planned
        cache = replace(self.fused.cache, optimized={})
        return lower_and_plan(replace(self.fused, config=planned.config, cache=cache))

    def attempt(
        self, opt: str, workspace_limit: int | None = None, whole_limit: int | None = None, *, tight: bool = True
    ) -> Planned | None:
        """The plan for these parts of a SelectionConfig, made once and unseen by instruments; None if no layers fit."""
        key, plans = (opt, workspace_limit, whole_limit, tight), self.fused.cache.plans
        if key not in plans:
            config = replace(
                self.fused.config, opt=opt, workspace_limit=workspace_limit, whole_limit=whole_limit, tight=tight
            )  # fmt: skip
            with unwatched(), suppress(NothingFits):
                plans[key] = lower_and_plan(replace(self.fused, config=config))
        planned: Planned | None = plans.setdefault(key, None)
        return planned

    @property
    def _pools(self) -> tuple[int, ...]:
        """Bytes of the memories that must hold the workspace; empty: any size."""
        return tuple(p.size for p in self.fused.planning.pooling.pools)

    def _usual(self, opt: str) -> Planned:
        mode = MODES[opt]
        first = self._plan(opt, tight=mode.least_ram)
        if mode.least_ram and not self.fused.config.feed_rows:
            # whole layers may overlap more than the search for cascades counts on
            return min(first, self._balanced(tight=True), key=lambda p: p.layout.rank)
        return self._balanced(tight=False) if mode.within_bound else first

    def _fastest(self, budget: int, opt: str) -> Planned:
        """The plan with the fewest instructions within the budget that the pools hold; the smallest plan if none is found."""
        limit = budget
        for _ in range(TRIES):
            trial = self.attempt(opt, limit) if limit > 0 else None
            if trial is None:
                break
            if trial.fits and trial.size <= budget:
                return trial
            if trial.size > budget:
                limit -= trial.size - budget
            else:  # several pools may fail despite their total size; one pool cannot
                room = sum(self._pools)
                limit = room if room < limit else min(limit - 1, max(self._pools))
        family = []
        for plan in self._smallest():
            if plan.fits and plan.size <= budget:
                return plan
            family.append(plan)
        return min(family, key=lambda p: (not p.fits, p.size, p.estimate))

    def _plan(self, opt: str, *, whole_limit: int | None = None, tight: bool) -> Planned:
        """An attempt that cannot fail because it has no budget."""
        planned = self.attempt(opt, None, whole_limit, tight=tight)
        assert planned is not None, "without a budget there is a plan"
        return planned

    def _balanced(self, *, tight: bool) -> Planned:
        """The fastest plan, or one with less scratch memory if the fastest exceeds `bound` and the other is worth its cost."""
        usual = self._plan("balanced", tight=tight)
        if self.fused.config.feed_rows or usual.whole <= self.bound:
            return usual
        small = self._plan("balanced", whole_limit=self.bound, tight=tight)
        over = small.whole - self.bound
        if over > 0 and pays(small, usual):  # layers that fit alone do not fit together: lower the limit of each
            less = self._plan("balanced", whole_limit=self.bound - over, tight=tight)
            small = min(small, less, key=lambda p: p.layout.rank)
        return small if (small.fits or not usual.fits) and pays(small, usual) else usual

    def _smallest(self) -> Iterator[Planned]:
        """Small plans: the plan of `ram`, ever smaller ones at any cost, and the plans of the other modes.

        Ever smaller ones: the smallest sum of estimates, then limits below the smallest plan so far.
        """
        plans = [self._usual("ram")]
        yield plans[0]
        least = self.attempt("ram", 0)
        if least is not None:
            plans.append(least)
            yield least
        for whole in (False,) if self.fused.config.feed_rows else (False, True):
            limit = min(p.size for p in plans) - 1
            for _ in range(DESCENT):
                trial = self.attempt("ram", None, limit) if whole else self.attempt("ram", limit)
                if trial is None:
                    break
                plans.append(trial)
                yield trial
                limit -= max(1, trial.size - limit)  # if the same plan comes back, double the step
                if limit <= 0:
                    break
        for opt in MODES:
            yield self._usual(opt)


def pays(small: Planned, usual: Planned) -> bool:
    """Whether the smaller workspace saves a larger share of the memory than it costs of the speed, by the estimates."""
    return (
        small.whole < usual.whole
        and small.whole * small.estimate < usual.whole * usual.estimate
        and small.estimate <= MOST_SLOWDOWN * usual.estimate
    )
