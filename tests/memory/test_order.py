"""The order of execution against all orders of small graphs."""

from __future__ import annotations

import itertools
import random

import pytest

from aot.memory import order as module
from aot.memory.order import Work, _Graph, lowest_peak_order
from aot.memory.order import _Search as Search


def random_graph(seed: int, count: int) -> tuple[list[Work], list[int], tuple[int, ...], tuple[int, ...]]:
    rng = random.Random(seed)
    sizes = [rng.randint(1, 50) for _ in range(2)]
    work: list[Work] = []
    for _ in range(count):
        reads = tuple(sorted({rng.randrange(len(sizes)) for _ in range(rng.randint(1, 3))}))
        made = rng.randint(1, 2)
        work.append(Work(reads, tuple(range(len(sizes), len(sizes) + made))))
        sizes += [rng.randint(0, 90) for _ in range(made)]
    return work, sizes, (0, 1), (len(sizes) - 1,)


def valid(work: list[Work], order: list[int], inputs: tuple[int, ...]) -> bool:
    known = set(inputs)
    for k in order:
        if not known >= set(work[k].reads):
            return False
        known |= set(work[k].writes)
    return sorted(order) == list(range(len(work)))


def live_peak(work: list[Work], sizes: list[int], order: list[int], *, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> int:
    """By the definition: a tensor is alive from its writer to its last reader."""
    first = dict.fromkeys(inputs, -1) | {t: i for i, k in enumerate(order) for t in work[k].writes}
    last = dict(first)
    for i, k in enumerate(order):
        last |= dict.fromkeys(work[k].reads, i)
    last |= dict.fromkeys(outputs, len(order))
    used = {t for w in work for t in (*w.reads, *w.writes)} | set(outputs)
    return max(sum(sizes[t] for t in used if first[t] <= i <= last[t]) for i in range(-1, len(order)))


@pytest.mark.parametrize("seed", range(30))
def test_small_graphs_get_the_best_order(seed: int) -> None:
    work, sizes, inputs, outputs = random_graph(seed, 6)
    found = lowest_peak_order(work, sizes, inputs=inputs, outputs=outputs)
    order = list(found.order)
    assert valid(work, order, inputs)
    assert found.optimal
    peak = live_peak(work, sizes, order, inputs=inputs, outputs=outputs)
    assert found.peak == peak == _Graph(work, sizes, inputs, outputs).peak(order)
    every = (list(p) for p in itertools.permutations(range(6)))
    assert peak == min(live_peak(work, sizes, p, inputs=inputs, outputs=outputs) for p in every if valid(work, p, inputs))


def test_order_of_the_file_stays_unless_the_peak_falls() -> None:
    work = [Work((0,), (1,)), Work((0,), (2,)), Work((1, 2), (3,))]
    assert lowest_peak_order(work, [9, 9, 9, 9], inputs=(0,), outputs=(3,)).order == (0, 1, 2)
    # two branches that shrink: the second one must not start before the first has ended
    work = [Work((0,), (1,)), Work((0,), (2,)), Work((1,), (3,)), Work((2,), (4,)), Work((3, 4), (5,))]
    assert lowest_peak_order(work, [10, 100, 100, 1, 1, 1], inputs=(0,), outputs=(5,)).order == (0, 2, 1, 3, 4)


def test_too_many_states_leave_it_to_the_beam(monkeypatch: pytest.MonkeyPatch) -> None:
    work, sizes, inputs, outputs = random_graph(5, 60)
    searches: list[Search] = []
    monkeypatch.setattr(module, "STATES", 50)
    monkeypatch.setattr(module, "_Search", lambda graph: searches.append(Search(graph)) or searches[-1])
    found = lowest_peak_order(work, sizes, inputs=inputs, outputs=outputs)
    order = list(found.order)
    assert valid(work, order, inputs)
    before = _Graph(work, sizes, inputs, outputs).peak(list(range(60)))
    assert found.peak == _Graph(work, sizes, inputs, outputs).peak(order) <= before
    assert 0 < found.lower_bound < found.peak
    assert not found.optimal
    assert [s.states for s in searches] == [51]


@pytest.mark.parametrize("seed", range(30))
def test_a_search_that_stops_keeps_below_the_bound_of_all_orders(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    work, sizes, inputs, outputs = random_graph(seed, 7)
    best = lowest_peak_order(work, sizes, inputs=inputs, outputs=outputs)
    monkeypatch.setattr(module, "STATES", 1)
    stopped = lowest_peak_order(work, sizes, inputs=inputs, outputs=outputs)
    assert stopped.lower_bound <= best.peak <= stopped.peak


def test_what_passes_by_an_operator_counts_in_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A skip of 50 bytes around three operators of 10 + 20, 20 + 20 and 20 + 10; no order has less than 90."""
    work = [Work((0,), (1, 2)), Work((1,), (3,)), Work((3,), (4,)), Work((4, 2), (5,))]
    monkeypatch.setattr(module, "STATES", 0)
    found = lowest_peak_order(work, [1, 20, 50, 20, 20, 1], inputs=(0,), outputs=(5,))
    assert (found.peak, found.lower_bound, found.optimal) == (90, 90, True)


def test_no_work() -> None:
    assert lowest_peak_order([], [5], inputs=(0,), outputs=(0,)).order == ()
