"""Kernel selection against brute force."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from aot.executor.selection import Budget, Candidate, choose
from aot.op.impl import Lowered

NO_KERNEL = Lowered(None)  # type: ignore[arg-type]


def random_layers(seed: int) -> list[list[Candidate]]:
    """A few layers, some of them of equal shape (same keys)."""
    rng = np.random.default_rng(seed)
    shapes = [int(rng.integers(1, 4)) for _ in range(int(rng.integers(1, 4)))]
    code = {(s, k): int(rng.integers(0, 40)) for s in range(len(shapes)) for k in range(3)}
    layers = []
    for _ in range(int(rng.integers(1, 6))):
        s = int(rng.integers(len(shapes)))
        layers.append(
            [
                Candidate(f"k{k}", NO_KERNEL, (s, k), int(rng.integers(1, 100)), int(rng.integers(0, 60)), code[s, k], int(rng.integers(9)))
                for k in range(shapes[s])
            ]
        )
    return layers


def cost(layers: list[list[Candidate]], chosen: tuple[int, ...]) -> tuple[int, int]:
    """(instructions, flash) with shared code counted once."""
    used = [layer[k] for layer, k in zip(layers, chosen, strict=True)]
    code = {c.key: c.code for c in used}
    return sum(c.instructions for c in used), sum(c.constants for c in used) + sum(code.values())


@pytest.mark.parametrize("seed", range(60))
def test_choice_is_optimal(seed: int) -> None:
    layers = random_layers(seed)
    every = [cost(layers, c) for c in product(*(range(len(layer)) for layer in layers))]
    limit = int(np.random.default_rng(seed).integers(0, 300))
    choice = choose(layers, Budget(flash=limit))
    assert cost(layers, choice.chosen) == (choice.instructions, choice.flash)
    fitting = [i for i, f in every if f <= limit]
    if fitting:
        assert choice.flash <= limit
        assert choice.instructions == min(fitting)
    else:
        assert choice.flash == min(f for _, f in every)


def test_scratch_limit_leaves_the_smallest_where_none_fits() -> None:
    layers = [
        [Candidate("a", NO_KERNEL, "a", 1, 0, 0, 100), Candidate("b", NO_KERNEL, "b", 9, 0, 0, 10)],
        [Candidate("c", NO_KERNEL, "c", 1, 0, 0, 50), Candidate("d", NO_KERNEL, "d", 9, 0, 0, 60)],
    ]
    assert choose(layers, Budget(scratch=[20, 5])).chosen == (1, 0)
    assert choose(layers, Budget()).chosen == (0, 0)
