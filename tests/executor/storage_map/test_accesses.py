"""How often layers touch their buffers, and constants that are spread over pools by it."""

from __future__ import annotations

import numpy as np
import pytest

from aot.errors import TargetError
from aot.executor.storage_map import REUSE, count_accesses, place_constants
from aot.memory.memory_pools import Pooling
from aot.support.memory_pool import Pool
from aot.target.source_module import Param
from tests.executor.nets import small_net

NET = small_net()


def test_reads_writes_and_scratch() -> None:
    """x is read by a layer of 16 x 16 products; a by another one through a view, and added; scratch is written and read."""
    (x,), (y,), a, c = NET.inputs, NET.outputs, NET.calls[0].outputs[0], NET.calls[1].outputs[0]
    found = count_accesses(NET, {x: "x", a: "a", c: "c", y: "y"}, [["s0"], ["s1"], []])
    products = 16 * 16 // REUSE
    assert found == {"x": products, "a": 16 + products + 16, "c": 16 + 16, "y": 16, "s0": 64, "s1": 64}


def arrays() -> list[Param]:
    return [Param("small", "int8", np.zeros(16, np.int8), 1), Param("large", "int8", np.zeros(240, np.int8), 1)]


def test_constants_read_most_get_the_fast_pool() -> None:
    pooling = Pooling(constants=(Pool("fast", 64, speed=4), Pool("slow", 4096)))
    used = [[0], [1], []]
    placed, choice = place_constants(arrays(), NET, used, pooling)
    assert [a.section for a in placed] == [".rodata.aot_pool_fast", ".rodata.aot_pool_slow"]
    assert choice is not None
    assert choice.optimal
    placed, choice = place_constants(arrays(), NET, used, Pooling())
    assert not any(a.section for a in placed)
    assert choice is None
    with pytest.raises(TargetError, match="E2013"):
        place_constants(arrays(), NET, used, Pooling(constants=(Pool("fast", 64),)))
