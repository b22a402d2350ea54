"""Drawn networks with variables: relay, the TIR interpreter, the graph executor, C and the reference agree over time."""

from __future__ import annotations

import os

import pytest

from tests.op.state.test_variable import check
from tests.stateful import draw_branching_network, draw_network

DRAWN = 300 if os.environ.get("AOT_FULL") else 40


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(4), 74, 183, 232])  # the last three: slices with a place in a window already
def test_some_networks(seed: int) -> None:
    model, steps = draw_network(seed)
    check(model, steps, io="user" if seed % 3 == 0 else "arena")


def test_a_part_of_a_part_is_read_before_the_whole_is_written() -> None:
    model, steps = draw_network(1705)
    check(model, steps, opt="ram")


@pytest.mark.parametrize("seed", range(3))
def test_branching_networks(seed: int) -> None:
    model, steps = draw_branching_network(seed)
    check(model, steps, io="user" if seed % 3 == 0 else "arena")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 4 + DRAWN))
def test_drawn_branching_networks(seed: int) -> None:
    model, steps = draw_branching_network(seed)
    check(model, steps, io="user" if seed % 3 == 0 else "arena", opt=("balanced", "ram", "speed", "size")[seed % 4])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 4 + DRAWN))
def test_drawn_networks(seed: int) -> None:
    model, steps = draw_network(seed)
    check(model, steps, io="user" if seed % 3 == 0 else "arena", opt=("balanced", "ram", "speed", "size")[seed % 4])
