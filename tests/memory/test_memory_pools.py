"""Names of memories: their texts, and what contradicts itself."""

from __future__ import annotations

import pytest

from aot.errors import UsageError
from aot.memory.memory_pools import Pooling, check_pooling, parse_pool
from aot.support.memory_pool import Pool


def test_texts_of_pools() -> None:
    assert parse_pool("DTCM=64K@0x20000000:2") == Pool("DTCM", 65536, 0x20000000, 2.0)
    assert parse_pool("ext=1MiB") == Pool("ext", 1 << 20)
    assert parse_pool("a=100:0.5") == Pool("a", 100, None, 0.5)
    for wrong in ("a", "a=", "a=1G", "a=16@", "1a=16", "a=16:x"):
        with pytest.raises(UsageError, match="E5018"):
            parse_pool(wrong)


def test_contradictions_are_refused() -> None:
    for pool in (Pool("a", 0), Pool("a", 16, 3), Pool("a", 16, speed=0), Pool("a b", 16)):
        for pooling in (Pooling((pool,)), Pooling(constants=(pool,))):
            with pytest.raises(UsageError, match="E5019"):
                check_pooling(pooling)
    with pytest.raises(UsageError, match="two pools a"):
        check_pooling(Pooling((Pool("a", 16), Pool("a", 32))))
    with pytest.raises(UsageError, match="share bytes"):
        check_pooling(Pooling((Pool("a", 32, 0), Pool("b", 32, 16))))
    with pytest.raises(UsageError, match="no such pool"):
        check_pooling(Pooling((Pool("a", 32),), (("t", "b"),)))
