"""Offsets in one workspace: several greedy orders, a seeded hill climb over orders, then branch and bound."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

import numpy as np

from aot.memory.plan import BufferInfo, Conflict, MemoryPlan, align_up, conflicts, forbidden_starts, lower_bound, possible_savings
from aot.support.dataclass import dataclass

Neighbour = tuple[int, int, int]
"""(j, low, high): this buffer's distance from the start of buffer j must not be strictly between low and high."""

Saving = tuple[int, int, int]
"""(i, j, n): buffers i and j may share n bytes."""

Offsets = dict[int, int]
"""Where each buffer begins, by its index."""

_NOWHERE = -(1 << 60)
"""The offset of a buffer that is not placed yet: far from all others."""

TRIALS = 40_000
"""Placements that a search may try.  They dominate the time of nodes with many children (some fifty, for a hundred buffers)."""

MOST_BUFFERS = 400
"""Largest component to search: the search recurses once per buffer, and Python allows about a thousand levels."""


@dataclass(frozen=True, slots=True)
class Found:
    """`offsets` by name if a plan below the current one was found; `proven`: no plan is smaller than the best one so far."""

    offsets: dict[str, int] | None
    proven: bool
    nodes: int


class Problem:
    """Buffers by index, with their conflicts."""

    def __init__(self, buffers: Sequence[BufferInfo], clashes: Iterable[Conflict]) -> None:
        self.buffers = buffers
        index = {b.name: i for i, b in enumerate(buffers)}
        self.size = [b.size for b in buffers]
        self.align = [b.align for b in buffers]
        self.neighbours: list[list[Neighbour]] = [[] for _ in buffers]
        clashes = list(clashes)
        for c in clashes:
            i, j = index[c.a], index[c.b]
            if self.size[i] and self.size[j]:
                low, high = forbidden_starts(c, buffers[i], buffers[j])
                if low < high:  # else any distance is allowed
                    self.neighbours[j].append((i, low, high))
                    self.neighbours[i].append((j, -high, -low))
        pairs = possible_savings(buffers, clashes)
        self.saving = {(index[x], index[y]): s for (x, y), s in pairs.items()}

    def improved(self, *, current: int, bound: int, nodes: int) -> Found:
        """Search for a plan smaller than `current` bytes; `bound` is proven, `nodes` and TRIALS limit the effort.

        Components of more than `MOST_BUFFERS` buffers are not searched.
        """
        core, remainder = self.reduce(bound)
        offsets: dict[int, int] = {}
        height, proven, spent, trials = bound, False, 0, 0
        for part in self.components(core):
            if len(part) > MOST_BUFFERS:
                return Found(None, False, spent)
            search = _Search(self, part, target=height, limit=current - 1, nodes=nodes - spent, trials=TRIALS - trials)
            search.run()
            spent += search.nodes
            trials += search.trials
            if search.best is None:
                return Found(None, search.exhausted, spent)
            offsets |= search.best
            if search.height > height:
                height, proven = search.height, search.exhausted
        for i in reversed(remainder):
            offsets[i] = self.lowest(i, offsets)
        return Found({self.buffers[i].name: at for i, at in offsets.items()}, proven or height <= bound, spent)

    def reduce(self, height: int) -> tuple[list[int], list[int]]:
        """(core, remainder): each of `remainder` fits below `height` wherever the core and the ones after it in `remainder` are.

        k neighbours of S bytes in total leave at most k + 1 gaps, the largest of at least (height - S) / (k + 1) bytes.
        """
        core = set(range(len(self.buffers)))
        remainder: list[int] = []
        waiting = deque(sorted(core, key=lambda i: self.size[i]))
        asked = set(waiting)
        while waiting:
            i = waiting.popleft()
            asked.discard(i)
            if i not in core:
                continue
            near = {j for j, _, _ in self.neighbours[i] if j in core}
            need = self.size[i] + 2 * (self.align[i] - 1)
            if need * (len(near) + 1) <= height - sum(self.size[j] for j in near):
                core.remove(i)
                remainder.append(i)
                waiting += [j for j in sorted(near) if j not in asked]
                asked |= near
        return sorted(core), remainder

    def components(self, core: Sequence[int]) -> list[list[int]]:
        """Sets of buffers without conflicts between them, the largest in bytes first."""
        left, parts = set(core), []
        for i in core:
            if i not in left:
                continue
            part, waiting = [], [i]
            left.discard(i)
            while waiting:
                part.append(waiting.pop())
                near = [j for j, _, _ in self.neighbours[part[-1]] if j in left]
                left.difference_update(near)
                waiting += near
            parts.append(sorted(set(part)))
        return sorted(parts, key=lambda p: -sum(self.size[i] for i in p))

    def place(self, order: Iterable[int]) -> tuple[Offsets, int]:
        """Put each buffer, in order, at the lowest offset that its placed neighbours allow; return the end of the topmost too."""
        offsets: Offsets = {}
        top = 0
        for i in order:
            offsets[i] = start = self.lowest(i, offsets)
            top = max(top, start + self.size[i])
        return offsets, top

    def floor(self, *, current: int, bound: int, nodes: int) -> int:
        """A lower bound of at most `current` bytes on any plan: the optimum if `nodes` suffice to prove it, else `bound`."""
        result = self.improved(current=current, bound=bound, nodes=nodes)
        if not result.proven:
            return bound
        return current if result.offsets is None else max(result.offsets[b.name] + b.size for b in self.buffers)

    def climb(self, order: list[int], best: Offsets, *, height: int, bound: int, effort: int) -> tuple[Offsets, int]:
        """Swap and move buffers in the order of placement and keep what is not worse; start with buffers at or near the top."""
        rng = random.Random(len(order))
        work = effort // max(1, sum(map(len, self.neighbours)) + len(order))
        current, offsets, level = order, best, height
        for _ in range(work):
            if height <= bound:
                break
            candidate = self._moved(current, offsets, rng, level=level)
            new_offsets, top = self.place(candidate)
            if top <= level or rng.random() < 0.02:
                current, offsets, level = candidate, new_offsets, top
            if top < height:
                best, height = new_offsets, top
        return best, height

    def _moved(self, order: list[int], offsets: Offsets, rng: random.Random, *, level: int) -> list[int]:
        """Return an order in which a buffer that reaches the top, or one of its neighbours, is placed earlier or later."""
        i = rng.choice([n for n, b in enumerate(order) if offsets[b] + self.size[b] == level])
        near = {j for j, _, _ in self.neighbours[order[i]]}
        others = [n for n, b in enumerate(order) if b in near] or [i]
        if rng.random() < 0.5:
            i = rng.choice(others)
        k = rng.choice(others) if rng.random() < 0.7 else rng.randrange(len(order))
        new = list(order)
        if rng.random() < 0.5:
            new[i], new[k] = new[k], new[i]
        else:
            new.insert(k, new.pop(i))
        return new

    def lowest(self, i: int, offsets: Offsets) -> int:
        """The lowest offset for buffer i that keeps clear of the placed buffers."""
        start = 0
        for low, high in sorted((offsets[j] + low, offsets[j] + high) for j, low, high in self.neighbours[i] if j in offsets):
            if low < start < high:
                start = align_up(high, self.align[i])
        return start


class _Search:
    """Depth first over the orders of placement of one component; its buffers are numbered by their index in `part`.

    `best` is a placement of `height` <= `limit` bytes, once one is found; `exhausted`: nothing smaller exists.  The search stops
    at a height of `target`.
    """

    def __init__(self, problem: Problem, part: list[int], *, target: int, limit: int, nodes: int, trials: int) -> None:
        self.part, self.target, self.limit, self.budget, self.most_trials = part, target, limit, nodes, trials
        self.nodes = self.trials = 0
        self.best: dict[int, int] | None = None
        self.height = 0
        self.exhausted = False
        own = {i: k for k, i in enumerate(part)}
        self.size = [problem.size[i] for i in part]
        self.align = [problem.align[i] for i in part]
        near = [[(own[j], low, high) for j, low, high in problem.neighbours[i] if j in own] for i in part]
        self.near = [[(j, low, high, self.align[j], self.size[j]) for j, low, high in n] for n in near]
        self.fences = [tuple(np.array(n, np.int64).reshape(-1, 3).T) for n in near]
        self.where = np.full(len(part), _NOWHERE, np.int64)  # like `placed`, as an array
        self.weight = [-size * len(n) for size, n in zip(self.size, near, strict=True)]
        self.rising = all(low <= 0 <= high for n in near for _, low, high in n)
        self.rising = self.rising and _acyclic({i: [j for j, _, high in n if high == 0] for i, n in enumerate(near)})
        self.cliques = _cliques([problem.buffers[i] for i in part], problem.saving, own)
        self.seen: dict[Hashable, int] = {}
        self.bits: dict[tuple[int, int], int] = {}

    def run(self) -> None:
        self.exhausted = self._visit({}, dict.fromkeys(range(len(self.part)), 0), level=0, top=0, taken=0)

    def _visit(self, placed: dict[int, int], lowest: dict[int, int], *, level: int, top: int, taken: int) -> bool:
        """Search the subtree of a state; False if the budget ran out.

        `taken`: `placed` as a bit set, kept only if it matters.
        """
        if top > self.limit or self.limit < self.target:
            return True
        if not lowest:
            self.best = {self.part[i]: at for i, at in placed.items()}
            self.height, self.limit = top, top - 1
            return True
        if self.nodes >= self.budget:
            return False
        self.nodes += 1
        size, seen, bits, rising = self.size, self.seen, self.bits, self.rising
        for i in self._next(lowest, level):
            at = lowest[i]
            height, now = at + size[i], taken
            if height < top:
                height = top
            if not rising:
                now |= 1 << bits.setdefault((i, at), len(bits))  # one number compares much faster than a set
                if seen.get(now, height + 1) <= height:
                    continue
            if self.trials >= self.most_trials:
                return False
            self.trials += 1
            placed[i] = self.where[i] = at
            left = self._after(i, placed, lowest=lowest, taken=now, top=height)
            complete = left is None or self._visit(placed, left, level=at, top=height, taken=now)
            del placed[i]
            self.where[i] = _NOWHERE
            if not complete:
                return False
        return True

    def _next(self, lowest: dict[int, int], level: int) -> list[int]:
        """The buffers to place next, in the order to try them."""
        size, weight = self.size, self.weight
        ready = lowest.items()
        if self.rising:
            ceiling = min([at + size[i] for i, at in ready])
            return [i for _, _, i in sorted([(at, weight[i], i) for i, at in ready if level <= at < ceiling])]
        return [i for _, _, i in sorted([(at, weight[i], i) for i, at in ready])]

    def _after(
        self, i: int, placed: dict[int, int], *, lowest: dict[int, int], taken: int, top: int
    ) -> dict[int, int] | None:  # fmt: skip
        """Return the unplaced buffers with their lowest offsets after placing buffer i; None if nothing better can follow.

        What can follow depends on the placements in `taken`; if offsets only rise, it depends only on the unplaced buffers.
        """
        at = placed[i]
        higher = self._higher_after(i, at, lowest)
        if higher is None:
            return None
        left = lowest.copy()
        del left[i]
        left.update(higher)
        state: Hashable = (at, tuple(left), tuple(left.values())) if self.rising else taken
        if self.seen.get(state, top + 1) <= top or not self._fits(left, at if self.rising else 0):
            return None
        self.seen[state] = top
        return left

    def _higher_after(self, i: int, at: int, lowest: dict[int, int]) -> dict[int, int] | None:
        """The lowest offsets that change when buffer i is placed at `at`; None if a buffer would end above the limit."""
        limit, rising, near = self.limit, self.rising, self.near[i]
        higher: dict[int, int] = {}
        for n, (j, low, high, align, size) in enumerate(near):
            start = lowest.get(j)
            if start is None or not (rising or at - high < start < at - low):
                continue
            moved = at - low
            if align > 1:
                moved = align_up(moved, align)
            if moved > start:
                higher[j] = start = moved
            if not rising and start + size <= limit:  # above buffer i another one may be in the way
                higher[j] = start = self._free_from(j, start)
            if start + size > limit:
                near.insert(0, near.pop(n))  # most likely the same buffer ends too high next time
                return None
        return higher

    def _free_from(self, j: int, start: int) -> int:
        """The lowest offset for buffer j, from the aligned `start` on, that keeps clear of the placed buffers."""
        near, low, high = self.fences[j]
        at = self.where[near]
        while True:
            blocked = (at + low < start) & (start < at + high)
            if not blocked.any():
                return start
            start = align_up(int((at + high)[blocked].max()), self.align[j])

    def _fits(self, left: dict[int, int], level: int) -> bool:
        """Whether the unplaced buffers can still end at or below the limit, judging by sums of sizes."""
        size, limit = self.size, self.limit
        for j, p in left.items():
            if (p if p > level else level) + size[j] > limit:
                return False
        if not self.rising:
            return True
        for n, (clique, savings) in enumerate(self.cliques):
            open_ = [j for j in clique if j in left]
            if open_:
                floor = max(level, min([left[j] for j in open_]))
                total = sum([size[j] for j in open_])
                if floor + total > limit:
                    total -= sum([s for x, y, s in savings if x in left and y in left])
                if floor + total > limit:
                    self.cliques.insert(0, self.cliques.pop(n))  # most likely the next state fails there too
                    return False
        return True


def _cliques(
    buffers: Sequence[BufferInfo], savings: Mapping[tuple[int, int], int], own: Mapping[int, int]
) -> list[tuple[list[int], list[Saving]]]:  # fmt: skip
    """The maximal sets of buffers that are live together, each with its savings."""
    sets = {
        frozenset(k for k, b in enumerate(buffers) if b.first <= step <= b.last)
        for step in {b.first for b in buffers}
    }  # fmt: skip
    saving = {(own[x], own[y]): n for (x, y), n in savings.items() if x in own and y in own}
    return [
        (sorted(s), [(x, y, n) for (x, y), n in saving.items() if x in s and y in s])
        for s in sorted(sets, key=sorted)
        if not any(s < t for t in sets)
    ]


def _acyclic(below: Mapping[int, Sequence[int]]) -> bool:
    """Whether no buffer is, through others, above itself."""
    waiting = {i: set(near) for i, near in below.items()}
    while True:
        free = {i for i, near in waiting.items() if not near}
        if not free:
            return not waiting
        waiting = {i: near - free for i, near in waiting.items() if i not in free}


CLIMB_WORK = 400_000
"""Default limit of the hill climb: placements times neighbours, well below a second."""

EXACT_NODES = 20_000
"""Default number of nodes for branch and bound: with TRIALS less than a second; none if the bound is met."""

FIRST_NODES = 1_000
"""How many of them may be visited before the climb: small sets are proven at once, which saves the climb."""


def plan(
    buffers: Sequence[BufferInfo],
    clashes: Iterable[Conflict] | None = None,
    *,
    effort: int = CLIMB_WORK,
    nodes: int = EXACT_NODES,
) -> MemoryPlan:
    """Place all buffers; the result depends only on the buffers and their order.

    `clashes` are all pairs that must keep apart or keep a distance (`program_conflicts`); by default, buffers that are live at
    the same step keep apart.  The plan says whether it is proven optimal.
    """
    pairs = list(conflicts(tuple(buffers)) if clashes is None else clashes)
    problem, bound = Problem(buffers, pairs), lower_bound(buffers, pairs)
    best_order, best, height = list(range(len(buffers))), Offsets(), -1
    for key in _ORDERS:
        order = sorted(range(len(buffers)), key=lambda i, key=key: (key(buffers[i]), buffers[i].name))  # type: ignore[misc]
        offsets, top = problem.place(order)
        if height < 0 or top < height:
            best_order, best, height = order, offsets, top
        if height <= bound:
            break
    floor = problem.floor(current=height, bound=bound, nodes=min(nodes, FIRST_NODES)) if height > bound else bound
    if height > floor:
        best, height = problem.climb(best_order, best, height=height, bound=floor, effort=effort)
    optimal, found = height <= floor, {buffers[i].name: at for i, at in best.items()}
    if not optimal and nodes:
        result = problem.improved(current=height, bound=bound, nodes=nodes)
        optimal = result.proven
        if result.offsets is not None:
            found = result.offsets
            height = max(found[b.name] + b.size for b in buffers)
    return MemoryPlan({b.name: found[b.name] for b in buffers}, max(height, 0), bound, optimal)


_ORDERS: tuple[Callable[[BufferInfo], tuple[int, ...]], ...] = (
    lambda b: (-b.size, b.first),
    lambda b: (b.first - b.last, -b.size),
    lambda b: (-b.size * (b.last - b.first + 1), b.first),
    lambda b: (b.first, -b.size),
    lambda b: (-b.last, -b.size),
)
