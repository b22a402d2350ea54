"""The pass that spreads a plan over pools, called as the pipeline calls it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aot.errors import TargetError, UsageError
from aot.executor.plan_memory import plan_memory, spread_pools
from aot.executor.storage_map import Planned
from aot.ir.module import of_phase
from aot.memory.memory_pools import Pooling
from aot.support.memory_pool import Pool
from aot.target.target import find_target
from tests.executor.nets import small_net


def planned(*pools: Pool, pins: tuple[tuple[str, str], ...] = ()) -> Planned:
    net = replace(small_net(), target=find_target("cortex-m4"))
    net = replace(net, planning=replace(net.planning, pooling=Pooling(pools, pins)))
    return of_phase(plan_memory(net), Planned, "the test")


def spread(module: Planned) -> Planned:
    return of_phase(spread_pools(module), Planned, "the test")


def test_without_pools_nothing_changes() -> None:
    plain = planned()
    assert spread(plain) is plain


def test_a_fast_pool_gets_what_it_can_without_more_bytes() -> None:
    size = planned().size
    large = Pool("SLOW", size)
    assert [u.pool for u in planned(Pool("FAST", size // 2, speed=2), large).layout.pools] == [large]
    found = spread(planned(Pool("FAST", size // 2, speed=2), large))
    assert found.size <= size
    assert found.layout.pool_choice is not None
    (used,) = spread(planned(large, Pool("FAST", size, speed=2))).layout.pools
    assert used.pool.name == "FAST"


def test_what_the_pools_cannot_hold_is_told_at_the_end() -> None:
    module = planned(Pool("SMALL", 16))
    assert not module.fits
    assert module.size == planned().size, "the plan of one memory"
    with pytest.raises(TargetError, match="E2013"):
        spread(module)
    with pytest.raises(UsageError, match="E5019"):
        spread(planned(Pool("LARGE", 1 << 16), pins=(("nothing", "LARGE"),)))
