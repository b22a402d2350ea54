"""The order of execution with the lowest peak of live bytes.

A state is the set of operators that have run (a downset of the graph); the live bytes, and so all later peaks, depend on nothing
else.  `lowest_peak_order` searches depth first for an order with a peak below a limit and remembers states that are dead ends:
dynamic programming over downsets, which is exact.  If there are too many states, a beam search takes over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aot.support.dataclass import dataclass

STATES = 5_000
"""States that the exact search may visit before the beam search takes over."""

BEAM = 32
"""States that the beam search keeps."""

_State = tuple[int, int, int, int]
"""Peak, live bytes, place of the previous state in the sorted orders, and the last operator."""


@dataclass(frozen=True, slots=True)
class Work:
    """One operator, by the indices of its tensors."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Order:
    """Operator indices in execution order; `peak`: bytes of the tensors that are live at the busiest operator.

    No order has a lower peak than `lower_bound`; if `peak` is above it, the search stopped at STATES.
    """

    order: tuple[int, ...]
    peak: int
    lower_bound: int

    @property
    def optimal(self) -> bool:
        """Whether no order has a lower peak."""
        return self.peak == self.lower_bound


def lowest_peak_order(work: Sequence[Work], sizes: Sequence[int], *, inputs: Sequence[int], outputs: Sequence[int]) -> Order:
    """Return the indices of `work` in an order with the lowest peak; `sizes` are the tensors' bytes.

    Each operator runs after the writers of its operands.  `inputs` are live at the start, `outputs` until the end.  The given
    order, which must be valid, is kept unless another one has a lower peak.
    """
    graph = _Graph(work, sizes, inputs, outputs)
    best = list(range(len(work)))
    peak = graph.peak(best)
    floor = graph.floor()
    if peak > floor:
        floor = graph.floor_of_relatives()
    search = _Search(graph)
    while peak > floor:
        order = search.below(peak)
        if order is None:
            break
        best, peak = order, graph.peak(order)
    if search.states <= STATES:
        return Order(tuple(best), peak, peak)
    order = _beam(graph, peak)
    if order is not None:
        best = order
    return Order(tuple(best), graph.peak(best), floor)


class _Graph:
    """The readers of each tensor, and the operators that must run before each operator."""

    def __init__(self, work: Sequence[Work], sizes: Sequence[int], inputs: Sequence[int], outputs: Sequence[int]) -> None:
        self.work = work
        self.sizes = sizes
        self.reads = [tuple(dict.fromkeys(w.reads)) for w in work]
        self.readers: dict[int, int] = {}
        writer = {t: k for k, w in enumerate(work) for t in w.writes}
        self.needs = [0] * len(work)
        self.followers = [0] * len(work)
        for k, reads in enumerate(self.reads):
            for t in reads:
                self.readers[t] = self.readers.get(t, 0) | 1 << k
                if t in writer:
                    self.needs[k] |= 1 << writer[t]
                    self.followers[writer[t]] |= 1 << k
        self.kept = frozenset(outputs)
        touched = {t for w in work for t in (*w.reads, *w.writes)}
        self.live_inputs = frozenset(t for t in inputs if t in touched or t in self.kept)
        self.start = sum(sizes[t] for t in self.live_inputs)
        self.written = [sum(sizes[t] for t in w.writes) for w in work]
        free = [[t for t in reads if t not in self.kept] for reads in self.reads]
        self.freed = [tuple((self.readers[t], sizes[t]) for t in tensors) for tensors in free]
        unread = [[t for t in w.writes if t not in self.kept and t not in self.readers] for w in work]
        self.unread = [sum(sizes[t] for t in tensors) for tensors in unread]

    def after(self, k: int, done: int, live: int) -> tuple[int, int]:
        """Peak during operator k and live bytes after it, if the operators in `done` ran before."""
        peak = live + self.written[k]
        left, now = peak - self.unread[k], done | 1 << k
        for readers, size in self.freed[k]:
            if readers & now == readers:
                left -= size
        return peak, left

    def peak(self, order: Sequence[int]) -> int:
        done, live, peak = 0, self.start, self.start
        for k in order:
            top, live = self.after(k, done, live)
            peak = max(peak, top)
            done |= 1 << k
        return peak

    def floor(self) -> int:
        """The largest amount that a single operator needs, in any order."""
        return max(
            [self.start, *(written + sum(self.sizes[t] for t in r) for written, r in zip(self.written, self.reads, strict=True))]
        )

    def floor_of_relatives(self) -> int:
        """The largest amount that an operator needs in any order, including tensors that must be live across it.

        A tensor is live across every operator that the graph puts after its writer and before one of its readers.
        """
        count = len(self.work)
        before, after = list(self.needs), list(self.followers)
        for k in range(count):  # the given order is valid
            for other in elements(self.needs[k]):
                before[k] |= before[other]
        for k in reversed(range(count)):
            for other in elements(self.followers[k]):
                after[k] |= after[other]
        needed = [written + sum(self.sizes[t] for t in reads) for written, reads in zip(self.written, self.reads, strict=True)]
        writer = {t: k for k, w in enumerate(self.work) for t in w.writes}
        for t, size in enumerate(self.sizes):
            if not size or (t not in writer and t not in self.live_inputs):
                continue
            readers = self.readers.get(t, 0)
            until = (1 << count) - 1 if t in self.kept else 0
            for k in elements(readers):
                until |= before[k]
            for k in elements((after[writer[t]] if t in writer else (1 << count) - 1) & until & ~readers):
                needed[k] += size
        return max([self.start, *needed])

    def first(self) -> int:
        """The operators that may run first, as a bit set."""
        return sum(1 << k for k, needs in enumerate(self.needs) if not needs)

    def ready_after(self, k: int, now: int, ready: int) -> int:
        """The operators that may run next after those in `now`; operator k of `ready` ran last."""
        ready &= ~(1 << k)
        for follower in elements(self.followers[k]):
            if self.needs[follower] & ~now == 0:
                ready |= 1 << follower
        return ready


def elements(bits: int) -> Iterator[int]:
    """The elements of a bit set, ascending."""
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


class _Search:
    """Depth-first search that remembers dead states."""

    def __init__(self, graph: _Graph) -> None:
        self.graph = graph
        self.states = 0

    def below(self, limit: int) -> list[int] | None:
        """The first order with a peak below `limit`, trying operators as given; None if there is none or the effort is spent."""
        graph, full = self.graph, (1 << len(self.graph.work)) - 1
        dead: set[int] = set()
        path: list[int] = []
        stack = [(0, graph.start, graph.first(), self.choices(0, graph.start, graph.first(), limit))]
        while stack and self.states <= STATES:
            done, live, ready, options = stack[-1]
            if done == full:
                return path
            if not options:
                dead.add(done)
                stack.pop()
                if path:
                    path.pop()
                continue
            k = options.pop(0)
            now = done | 1 << k
            if now in dead:
                continue
            self.states += 1
            _, left = graph.after(k, done, live)
            path.append(k)
            ready = graph.ready_after(k, now, ready)
            stack.append((now, left, ready, self.choices(now, left, ready, limit)))
        return None

    def choices(self, done: int, live: int, ready: int, limit: int) -> list[int]:
        """Operators to try; only one if it leaves no more bytes live than before, since running it is always best."""
        fitting = []
        for k in elements(ready):
            peak, left = self.graph.after(k, done, live)
            if peak < limit:
                if left <= live:
                    return [k]
                fitting.append(k)
        return fitting


def _beam(graph: _Graph, limit: int) -> list[int] | None:
    """Return an order with a peak below `limit`, keeping the states with the least peak and live bytes at each length.

    Ties go to the order that comes first.  All orders are equally long, so the place of the previous state and the last operator
    decide.
    """
    states: dict[int, _State] = {0: (graph.start, graph.start, 0, 0)}
    ready, places = {0: graph.first()}, {0: 0}
    steps: list[list[tuple[int, int]]] = []
    for _ in graph.work:
        following: dict[int, _State] = {}
        last: dict[int, tuple[int, int]] = {}
        for done, (peak, live, _, _) in states.items():
            for k in elements(ready[done]):
                top, left = graph.after(k, done, live)
                highest = max(peak, top)
                if highest >= limit:
                    continue
                now = done | 1 << k
                entry = (highest, left, places[done], k)
                if now not in following or entry < following[now]:
                    following[now] = entry
                    last[now] = k, done
        states = dict(sorted(following.items(), key=lambda item: item[1])[:BEAM])
        ready = {now: graph.ready_after(last[now][0], now, ready[last[now][1]]) for now in states}
        orders = sorted(states, key=lambda now: states[now][2:])
        places = {now: place for place, now in enumerate(orders)}
        steps.append([states[now][2:] for now in orders])
    return _order_of(steps, places[next(iter(states))]) if states else None


def _order_of(steps: Sequence[Sequence[tuple[int, int]]], place: int) -> list[int]:
    """The operators that led to a state; each step holds, per state, the place of the previous state and the operator."""
    order = []
    for step in reversed(steps):
        place, k = step[place]
        order.append(k)
    return order[::-1]
