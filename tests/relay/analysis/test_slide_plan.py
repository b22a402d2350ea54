"""What a network over a moving window keeps from run to run."""

from __future__ import annotations

from aot.relay.state import state_of
from aot.relay.transform.slide_window import slide_window
from tests.relay.slide_nets import planned, slide_net


def test_the_state_is_what_it_says() -> None:
    for seed in range(20):
        net = slide_net(seed)
        plan = planned(net)
        states = state_of(slide_window(net.main, plan))
        sums = [s.nbytes for s in plan.sums.values()]
        assert [s.initial.nbytes for s in states] == [plan.state_bytes(e) for e in plan.kept] + sums
        assert sum(s.initial.nbytes for s in states) == plan.total_bytes
