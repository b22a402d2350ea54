"""Pools and means by vectors against the operators' meaning, a few drawn ones each; on the core and many: test_drawn.py."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.topi.drawn_groups import cases
from tests.topi.drawn_pool import POOLS, draw_pool
from tests.topi.runs import interpreted


@pytest.mark.parametrize("kind", POOLS)
def test_some_in_the_interpreter(kind: str) -> None:
    interpreted(islice(cases(draw_pool, "arm_mve.pool", kind, seed=4), 2))
