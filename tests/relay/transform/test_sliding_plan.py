"""What a network over a moving window keeps from run to run."""

from __future__ import annotations

import pytest

from aot.relay.state import state_of
from aot.relay.transform import sliding as sliding_module
from aot.relay.transform.sliding import slide_front, sliding
from aot.relay.transform.stateful import over_new_rows
from tests.relay.slide_nets import planned, slide_net


def test_the_state_is_what_it_says() -> None:
    for seed in range(20):
        net = slide_net(seed)
        plan = planned(net)
        states = state_of(over_new_rows(net.main, plan))
        sums = [s.nbytes for s in plan.sums.values()]
        assert [s.initial.nbytes for s in states] == [plan.state_bytes(e) for e in plan.kept] + sums
        assert sum(s.initial.nbytes for s in states) == plan.total_bytes


@pytest.mark.parametrize("seed", [2, 3, 12])
def test_no_plan_of_the_front_is_beaten(seed: int) -> None:
    """Neither by another one of them nor by the plan that keeps all it can."""
    net = slide_net(seed)
    found = slide_front(net.main, sliding(net.main, net.hops))
    assert found.optimal
    front = found.plans
    figures = [(p.work(), p.total_bytes) for p in front]
    assert front[0].work() <= planned(net).work()
    assert figures == sorted(figures)
    assert [b for _, b in figures] == sorted({b for _, b in figures}, reverse=True)
    assert all(p.gains for p in front)
    for plan in front:
        states = state_of(over_new_rows(net.main, plan))
        assert sum(s.initial.nbytes for s in states) == plan.total_bytes


@pytest.mark.parametrize(("seed", "tried"), [(3, 4), (5, 11)])
def test_the_front_of_many_tensors_is_found_one_by_one(seed: int, tried: int, monkeypatch: pytest.MonkeyPatch) -> None:
    net = slide_net(seed)
    exact = slide_front(net.main, sliding(net.main, net.hops))
    monkeypatch.setattr(sliding_module, "EXACT", 0)
    found = slide_front(net.main, sliding(net.main, net.hops))
    assert all(any(e.total_bytes <= p.total_bytes and e.work() <= p.work() for e in exact.plans) for p in found.plans)
    assert exact.tried == exact.ways == found.ways
    assert found.tried == tried
    assert found.optimal == (tried == exact.ways)
