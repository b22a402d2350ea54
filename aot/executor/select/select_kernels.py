"""SelectKernels: one kernel a layer, and layers that become cascades, under the budgets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from aot.errors import Problem, UsageError
from aot.executor.cascade.items import Items
from aot.executor.cascade.search import Limits, use_cascades
from aot.executor.lower.candidates import candidates
from aot.executor.lower.draft import Draft
from aot.executor.lowered import LoweredModule
from aot.executor.policy import MOST_SLOWDOWN
from aot.executor.select.config import SelectionConfig
from aot.executor.select.flash_budget import choose_kernels, selected_kernels
from aot.executor.select.selection import Candidate
from aot.ir.module import IRModule, of_phase
from aot.ir.transform import PassContext, module_pass
from aot.relay.expr import Function


class NothingFits(Exception):  # noqa: N818 - an answer, no error
    """No choice of kernels fits the RAM budget."""


@module_pass(required=True)
def select_kernels(module: IRModule, _context: PassContext) -> IRModule:
    """The functions that the budgets select, in the place of the preferred ones; cascades in the place of several layers.

    In: a Draft.  Out: a LoweredModule.  NothingFits where nothing fits the RAM budget.
    """
    draft = of_phase(module, Draft, "select_kernels")
    config = draft.config
    if config.feed_rows and len(draft.inputs) != 1:
        raise UsageError(Problem("E5054", f"{len(draft.inputs)} inputs; only a single one can be fed by rows", draft.name))
    if draft.controls and config.feed_rows:
        text = "a model with branches or loops cannot be fed by rows; with --io user its input stays in a buffer of your own"
        raise UsageError(Problem("E5054", text, draft.name))
    lowered, found = without_candidates(draft), list(draft.found)
    if (config.cascades or config.whole_limit is not None) and not draft.controls:
        items = _items(draft, lowered)
        if config.whole_limit is not None:
            found = [_within(items, i, layer, config) for i, layer in enumerate(found)]
        else:
            cascaded = use_cascades(lowered, items, _limits(draft))
            if cascaded is None:
                raise NothingFits
            lowered, found = cascaded
    return choose_kernels(lowered, found, config)


def without_candidates(draft: Draft) -> LoweredModule:
    """The calls of the draft in their order, each with its preferred kernel."""
    return LoweredModule(
        draft.functions, draft.name, draft.constants, inputs=draft.inputs, outputs=draft.outputs, calls=draft.calls,
        views=draft.views, values=draft.values, offsets=draft.offsets, target=draft.target, config=draft.config,
        planning=draft.planning, states=draft.states, controls=draft.controls, conditions=draft.conditions,
        variables=draft.variables, order=draft.order,
    )  # fmt: skip


def _items(draft: Draft, lowered: LoweredModule) -> Items:
    """What may run row by row, from what other configs found out of it."""
    feed_rows, items = draft.config.feed_rows, draft.known.items
    if (draft.key, feed_rows) not in items:
        lower = partial(_lower_rows, draft=draft)
        fed = draft.inputs[0] if feed_rows else None
        items[draft.key, feed_rows] = Items(lowered, draft.groups, draft.found, lower=lower, fed=fed)
    return items[draft.key, feed_rows].again()


def _lower_rows(func: Function, name: str, *, draft: Draft) -> list[Candidate]:
    assert draft.target is not None
    return candidates(func, draft.target, name, draft.config, keyed=False, known=draft.known)


def _within(items: Items, i: int, layer: Sequence[Candidate], config: SelectionConfig) -> Sequence[Candidate]:
    """The kernels of layer i that run within `whole_limit`; where none does: all of them, for `ram` the one of least scratch."""
    assert config.whole_limit is not None
    item = items.whole(i, config.whole_limit)
    if item is not None:
        return item.kernels
    return layer if config.opt != "ram" else (min(layer, key=lambda c: (c.scratch, c.instructions)),)


def _limits(draft: Draft) -> Limits:
    """What the search for cascades may take."""
    config = draft.config
    if config.ram_budget is not None:
        return Limits(config.ram_budget or None)
    usual = selected_kernels(draft.found, replace(config, opt="balanced") if config.opt == "ram" else config)
    most = int(MOST_SLOWDOWN * sum(c[k].instructions for c, k in zip(draft.found, usual.chosen, strict=True)))
    return Limits(None, most, small=config.opt == "ram")
