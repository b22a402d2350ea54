"""MUL of codes of 8 and 16 bits with broadcasting; of plain numbers: tests/op/math/test_arithmetic.py."""

from __future__ import annotations

import pytest

from tests.op._differential import FAST, SLOW, check_drawn
from tests.op.math.test_arithmetic import codes, every_pair


def test_random() -> None:
    check_drawn(codes("MUL"), FAST)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(codes("MUL"), SLOW)


def test_every_pair() -> None:
    every_pair("MUL")
