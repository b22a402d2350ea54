"""Which layers become cascades: dynamic programming over cut points of the order of execution.

Under a limit for the bytes the items with the fewest instructions that cover all layers are found exactly; `ram` asks for the
smallest limit whose plan stays within policy.MOST_SLOWDOWN of the usual one.  An item's bytes are those of the planner for its
own buffers, everything else that is alive packed beside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from aot.errors import Problem, UsageError
from aot.executor.cascade.chain import Part
from aot.executor.cascade.emit import FEED, Work, emit
from aot.executor.cascade.items import Items, Proposal
from aot.executor.lowered import CallLowered, CascadeRuns, LoweredModule
from aot.executor.select.selection import Candidate
from aot.support.dataclass import dataclass
from aot.tir.function import PrimFunc
from aot.topi.strategy import Lowered


@dataclass(frozen=True, slots=True)
class Limits:
    """`budget`: bytes of the workspace.  Without one, `small` asks for as few as `most` instructions (None: any) allow."""

    budget: int | None
    most: int | None = None
    small: bool = True


LONGEST = 20
"""Layers of a cascade at most."""

STEP = 64
"""Bytes to which the limit is searched."""


def cover(items: Items, limit: int) -> list[Proposal] | None:
    """Items that cover all layers under the limit with the fewest instructions; None if there are none."""
    n = len(items.parts)
    wholes = [items.whole(i, limit) for i in range(n)]
    settled = [w is not None and w.instructions == items.fastest(i) for i, w in enumerate(wholes)]
    cost: list[int | None] = [0] + [None] * n
    taken: list[Proposal | None] = [None] * (n + 1)

    def offer(item: Proposal) -> None:
        before, known = cost[item.first], cost[item.last + 1]
        if before is not None and (known is None or before + item.instructions < known):
            cost[item.last + 1], taken[item.last + 1] = before + item.instructions, item

    for j in range(n):
        whole = wholes[j]
        if whole is not None:
            offer(whole)
        for i in range(j, max(-1, j - LONGEST), -1):
            if items.parts[i].form is None:
                break
            if cost[i] is not None and not all(settled[i : j + 1]):
                for item in items.cascades(i, j, limit):
                    offer(item)
    if cost[n] is None:
        return None
    found: list[Proposal] = []
    while n:
        last = taken[n]
        assert last is not None
        found.insert(0, last)
        n = last.first
    return found


def best_cover(items: Items, limit: int) -> list[Proposal] | None:
    """As `cover`, with the styles of the cascades in it refined until nothing gets faster."""
    found = cover(items, limit)
    while found is not None and any([items.refine(item, limit) for item in found if item.chain is not None]):
        found = cover(items, limit)
    return found


def cost_of(found: Sequence[Proposal]) -> int:
    return sum(item.instructions for item in found)


def smallest(items: Items, high: int, *, most: int | None) -> tuple[list[Proposal], int]:
    """The cover of at most `most` instructions under the least limit, within STEP bytes, and the limit; `high` must be enough."""
    low, best = 0, cover(items, high)
    assert best is not None, "whole layers fit into the sum of everything"
    while high - low > STEP:
        middle = (low + high) // 2
        found = cover(items, middle)
        if found is not None and most is not None and cost_of(found) > most:
            found = best_cover(items, middle)
        if found is not None and (most is None or cost_of(found) <= most):
            high, best = middle, found
        else:
            low = middle
    return best, high


def tried_runs(items: Items, limit: int) -> CascadeRuns:
    """How many runs of layers could be a cascade under the limit, by what they need at least, and how many were looked at."""
    settled = []
    for i in range(len(items.parts)):
        whole = items.whole(i, limit)
        settled.append(whole is not None and whole.instructions == items.fastest(i))
    found = [j - i + 1 for i, j in items.runs(limit) if not all(settled[i : j + 1])]
    return CascadeRuns(sum(length <= LONGEST for length in found), len(found))


@dataclass(frozen=True, slots=True)
class BuiltCascade:
    """The call that takes the place of several layers, the one kernel that it can have, and the functions that this calls."""

    call: CallLowered
    candidate: Candidate
    callees: Mapping[str, PrimFunc]


def build_cascade(lowered: LoweredModule, item: Proposal, parts: Sequence[Part], *, fed: bool) -> BuiltCascade:
    """The cascade in the place of the item's layers."""
    assert item.chain is not None
    chain = item.chain
    kernels = iter(item.kernels)
    work = [Work(t) if k is None else Work(t, next(kernels).lowered) for k, t in zip(chain.makers, chain.types, strict=True)]
    calls = lowered.calls[item.first : item.last + 1]
    span = calls[-1].span
    types = [t.type for t in chain.externals]
    name = f"cascade_{item.first}"
    cascade = emit(chain.nest, work, types, name=name, span=span, fed=fed)
    func = cascade.func
    feed = (FEED.format(name), *chain.nest.arrivals()) if fed else None
    operators = dict(sorted(pair for c in calls for pair in c.operators.items()))
    call = CallLowered(
        name, chain.externals, calls[-1].outputs, span=span, operators=operators, callees=tuple(cascade.callees), feed=feed
    )
    code = {c.key: c.code for c in item.kernels}
    candidate = Candidate(
        func.attrs.kernel,
        Lowered(func, cascade.constants, item.instructions),
        ("cascade", item.first),
        item.instructions,
        sum(c.nbytes for c in cascade.constants.values()),
        sum(code.values()),
        sum(b.nbytes for b in func.scratch),
        is_cascade=True,
    )
    return BuiltCascade(call, candidate, cascade.callees)


def use_cascades(lowered: LoweredModule, items: Items, limits: Limits) -> tuple[LoweredModule, list[Sequence[Candidate]]] | None:
    """The lowered module with cascades where they pay, and for each of its calls the kernels that may be chosen.

    With a budget: the fewest instructions within it, None if nothing fits.  E5054 if the model cannot be fed by rows.
    """
    if cover(items, items.everything) is None:
        where = lowered.inputs[0].name
        raise UsageError(Problem("E5054", f"the layers that read {where} cannot run row by row, so it cannot be fed so", where))
    limit = items.everything if limits.budget is None else limits.budget
    chosen: list[Proposal] | None
    if limits.budget is None and limits.small:
        chosen, limit = smallest(items, limit, most=limits.most)
    else:
        chosen = best_cover(items, limit)
    if chosen is None:
        return None
    calls: list[CallLowered] = []
    kernels: list[Sequence[Candidate]] = []
    functions = dict(lowered.functions)
    for item in chosen:
        if item.chain is None:
            calls.append(lowered.calls[item.first])
            kernels.append(item.kernels)
        else:
            built = build_cascade(lowered, item, items.parts, fed=items.fed and item.first == 0)
            calls.append(built.call)
            kernels.append([built.candidate])
            functions |= {**built.callees, built.call.func: built.candidate.lowered.func}
    runs = tried_runs(items, limit)
    return replace(lowered, functions=functions, cascade_runs=runs).with_calls(calls), kernels
