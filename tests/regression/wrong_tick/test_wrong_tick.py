"""A board whose instructions_per_tick is off is refused, not believed; tests/micro/run/test_qemu.py does it on every board."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction

import pytest

from aot.errors import UsageError
from aot.micro.board import load_board
from aot.micro.run.runner import CHECK_INSTRUCTIONS, _check_tick
from aot.system.files import data_folder

BOARD = load_board("mps2-an386")


def seen(truth: Fraction, given: Fraction, *, extra: int = 3) -> int:
    """The units that the counter reports on a machine whose ticks are `truth` instructions long."""
    return int((CHECK_INSTRUCTIONS + extra) / truth * given * given.denominator)


@pytest.mark.parametrize("truth", [Fraction(40), Fraction(125, 4), Fraction(125, 2), Fraction(50)])
def test_off_by_any_value_that_a_board_could_have(truth: Fraction) -> None:
    _check_tick(BOARD, truth, seen(truth, truth))
    near = [Fraction(n, d) for d in range(1, 9) for n in range(1, 257) if 0.9 < Fraction(n, d) / truth < 1.1]
    for given in {*near, truth * 2, truth / 2, truth * 1000} - {truth}:
        with pytest.raises(UsageError, match="E5024") as caught:
            _check_tick(replace(BOARD, tick=given), given, seen(truth, given))
        assert f"use [{truth.numerator}, {truth.denominator}]" in str(caught.value)


def test_a_counter_that_stands_still() -> None:
    with pytest.raises(UsageError, match="was counted as 0 "):
        _check_tick(BOARD, Fraction(40), 0)


def test_the_length_is_that_of_the_runtime() -> None:
    header = (data_folder("crt") / "include" / "aot" / "systick.h").read_text(encoding="utf-8")
    found = re.search(r"#define AOT_CHECK_INSTRUCTIONS (\d+)u", header)
    assert found is not None
    assert int(found[1]) == CHECK_INSTRUCTIONS
