"""Initial values of states: what repeats is in flash once."""

from __future__ import annotations

import numpy as np
import pytest

import aot
from aot.driver.options import Options
from aot.executor.lower_main import period
from tests.stateful import Tcn, tcn

ROW = np.arange(6, dtype=np.int16).reshape(1, 1, 2, 3)


@pytest.mark.parametrize(
    ("initial", "size"),
    [
        (np.tile(ROW, (1, 5, 1, 1)), 12),
        (np.tile(ROW[:, :, :1], (1, 5, 4, 1)), 6),
        (np.arange(8, dtype=np.int8), 8),
        (np.zeros((3, 4), np.float32), 16),
    ],
)
def test_the_period_is_the_smallest_part_that_repeats(initial: np.ndarray, size: int) -> None:
    assert period(initial) == size


def test_a_window_of_zeros_takes_one_row_of_each_layer() -> None:
    net = Tcn(frames=20, features=4, channels=8, classes=3, dilations=(1, 2))
    artifact = aot.build(tcn(net), name="t", options=Options(slide=(("x", 1),)))
    states = [line for line in artifact.files["t_params.c"].splitlines() if "t_state_" in line and "[" in line]
    assert states
    assert all("[8]" in line for line in states)
    assert "memmove(STATE(" in artifact.files["t.c"]
