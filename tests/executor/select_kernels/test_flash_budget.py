"""Kernels under a budget of flash: what a loop repeats counts as often as it runs."""

from __future__ import annotations

import pytest

from aot.executor.config import SelectionConfig
from aot.executor.lowered import KernelCall, LoweredModule
from aot.executor.select_kernels import choose_kernels, main_code, selected_kernels
from aot.executor.selection import Candidate
from aot.memory.liveness import Control
from aot.topi.strategy import Lowered

NO_KERNEL = Lowered(None)  # type: ignore[arg-type]


def _layer(name: str, *, small: int, fast: int) -> tuple[Candidate, ...]:
    """Two kernels by their instructions: the small one needs no flash, the fast one 100 bytes."""
    return Candidate("small", NO_KERNEL, (name, 0), small, 0, 0, 0), Candidate("fast", NO_KERNEL, (name, 1), fast, 100, 0, 0)


@pytest.mark.parametrize("trips", [None, 1, 3, 10])
def test_a_loop_counts_as_often_as_it_runs(trips: int | None) -> None:
    """Room for one of two fast kernels: the first saves 90 instructions, that in the loop's body 20 in each iteration."""
    found = [_layer("before", small=100, fast=10), _layer("condition", small=1, fast=1), _layer("body", small=30, fast=10)]
    calls = tuple(KernelCall(f"f{i}", (), (), candidates=layer) for i, layer in enumerate(found))
    config = SelectionConfig(flash_budget=main_code(3) + 100)
    lowered = choose_kernels(LoweredModule({}, "m", calls=calls, controls=(Control("while", 1, 2, 3, trips),), config=config))
    times = trips or 1
    in_loop = 20 * times > 90
    assert lowered.selection.chosen == ((0, 0, 1) if in_loop else (1, 0, 0))
    condition = 1 if trips is None else trips + 1
    assert lowered.selection.total == 100 + 30 * times + condition - (20 * times if in_loop else 90)
    assert [c.estimate for c in lowered.calls] == ([100, 1, 10] if in_loop else [10, 1, 30]), "of one call"


def test_large_tables_leave_room_for_code() -> None:
    """Float weights are tables, as large whatever the kernel: what code may take more with them, flash may."""
    small = Candidate("small", NO_KERNEL, 0, 100, 1_000_000, 1_000, 0)
    fast = Candidate("fast", NO_KERNEL, 1, 10, 1_000_000, 20_000, 0)
    selection = selected_kernels([(small, fast)], SelectionConfig("balanced"))
    assert (selection.chosen, selection.minimised) == ((1,), "instructions")
