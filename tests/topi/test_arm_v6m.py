"""Kernels of Armv6-M against the operators' meaning, a few layers each; on the board and many: tests/topi/test_drawn.py."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.topi.drawn import KERNELS, random_cases
from tests.topi.runs import interpreted


@pytest.mark.parametrize("name", sorted(name for name in KERNELS if " arm_v6m." in name))
def test_some_in_the_interpreter(name: str) -> None:
    interpreted(islice(random_cases(name, 4), 3))
