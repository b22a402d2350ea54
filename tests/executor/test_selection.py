"""Kernel selection against brute force."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from itertools import product
from typing import Any

import highspy
import numpy as np
import pytest

from aot.executor import selection
from aot.executor.selection import Budget, Candidate, Selection, Stored, choose, distinct_bytes
from aot.topi.strategy import Lowered

NO_KERNEL = Lowered(None)  # type: ignore[arg-type]


KEYS = ((0, 1, 2), (0, 3, 2), (4, 1, 3))
"""kind of layer -> the code of each of its candidates"""

INTERFACES = (("",) * 5, ("one",) * 5, ("one", "two", "two", "one", "three"))
"""What is known of the five codes without looking at them."""


def random_layers(seed: int) -> list[list[Candidate]]:
    """A few layers that share code in various ways, and every other time arrays too."""
    rng = np.random.default_rng(seed)
    shapes = [int(rng.integers(1, 4)) for _ in range(int(rng.integers(1, 4)))]
    code = {key: int(rng.integers(0, 40)) for key in range(5)}
    matrices = [Stored(key, int(rng.integers(0, 60))) for key in range(3)]
    layers = []
    for _ in range(int(rng.integers(1, 6))):
        s = int(rng.integers(len(shapes)))
        layer = []
        for k in range(shapes[s]):
            arrays = tuple(m for m in matrices if seed % 2 and rng.integers(3) == 0)
            own = int(rng.integers(0, 60))
            size = own + sum(m.nbytes for m in arrays)
            key, speed = KEYS[s][k], int(rng.integers(1, 100))
            interface = INTERFACES[seed % 3][key]
            scratch = int(rng.integers(9))
            layer.append(Candidate(f"k{k}", NO_KERNEL, key, speed, size, code[key], scratch, arrays=arrays, interface=interface))
        layers.append(layer)
    return layers


def cost(layers: list[list[Candidate]], chosen: tuple[int, ...]) -> tuple[int, int]:
    """(instructions, flash) with shared code and shared arrays counted once."""
    used = [layer[k] for layer, k in zip(layers, chosen, strict=True)]
    code = {c.key: c.code for c in used}
    own = sum(c.constants - sum(a.nbytes for a in c.arrays) for c in used)
    return sum(c.instructions for c in used), own + distinct_bytes(a for c in used for a in c.arrays) + sum(code.values())


def code_of(layers: list[list[Candidate]], chosen: tuple[int, ...]) -> int:
    """Code alone, shared code counted once."""
    return sum({layer[k].key: layer[k].code for layer, k in zip(layers, chosen, strict=True)}.values())


@pytest.mark.parametrize("seed", range(60))
def test_choice_is_optimal(seed: int) -> None:
    layers = random_layers(seed)
    every = [cost(layers, c) for c in product(*(range(len(layer)) for layer in layers))]
    limit = int(np.random.default_rng(seed).integers(0, 300))
    made = choose(layers, Budget(flash=limit))
    chosen = made.chosen
    fitting = [i for i, f in every if f <= limit]
    if fitting:
        assert cost(layers, chosen)[1] <= limit
        assert cost(layers, chosen)[0] == min(fitting)
    else:
        assert cost(layers, chosen)[1] == min(f for _, f in every)
    best = cost(layers, chosen)[0 if fitting else 1]
    assert made == Selection(chosen, "instructions" if fitting else "flash", best, best, optimal=True)


@pytest.mark.parametrize("seed", range(60))
def test_choice_is_optimal_with_a_code_limit(seed: int) -> None:
    layers = random_layers(seed)
    flash, code = (int(v) for v in np.random.default_rng(seed + 1).integers(20, 250, 2))
    chosen = choose(layers, Budget(flash=flash, code=code)).chosen
    fitting = [
        cost(layers, c)[0]
        for c in product(*(range(len(layer)) for layer in layers))
        if cost(layers, c)[1] <= flash and code_of(layers, c) <= code
    ]
    if fitting:
        assert cost(layers, chosen)[0] == min(fitting)
        assert code_of(layers, chosen) <= code


@pytest.mark.parametrize("seed", range(20))
def test_equal_layers_may_take_different_kernels(seed: int) -> None:
    """What is one to the program is still chosen layer by layer, with code and arrays paid once."""
    layers = random_layers(seed)[:2] * 3
    flash = int(np.random.default_rng(seed).integers(0, 400))
    every = [cost(layers, c) for c in product(*(range(len(layer)) for layer in layers))]
    made = choose(layers, Budget(flash=flash))
    fitting = [c for c in every if c[1] <= flash]
    assert made.optimal
    if fitting:
        assert cost(layers, made.chosen) == min(fitting)
    assert made.total == min((c[0] for c in fitting), default=min(c[1] for c in every))


def test_some_of_many_equal_layers_take_the_fast_kernel() -> None:
    fast, slow = Candidate("fast", NO_KERNEL, "a", 10, 30, 50, 0), Candidate("slow", NO_KERNEL, "b", 100, 10, 20, 0)
    made = choose([[fast, slow]] * 3000, Budget(flash=70 + 3000 * 10 + 20 * 1234 + 19))
    assert made.chosen == (0,) * 1234 + (1,) * 1766
    assert made.optimal


def test_choices_without_slow_candidates_are_those_with_them() -> None:
    """Which layers take what is left to chance where it costs the same."""
    short = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        layers = random_layers(seed)
        layers = [[replace(c, instructions=c.instructions + 150 * (k % 2)) for k, c in enumerate(layer)] for layer in layers]
        budget = Budget(*(int(v) for v in rng.integers((100, 20), (400, 120))))
        found = selection._without_slow(layers, budget)
        if found is not None:
            short += 1
            whole = choose([[replace(c, interface="") for c in layer] for layer in layers], budget)
            assert cost(layers, found.chosen) == cost(layers, whole.chosen)
            assert replace(found, chosen=whole.chosen) == whole
    assert short > 50


class Unasked:
    """A key that must not be looked at."""

    def __hash__(self) -> int:
        raise AssertionError("the code of a slow candidate was looked at")


@pytest.mark.parametrize("seed", range(20))
def test_the_code_of_slow_candidates_is_looked_at_only_where_it_may_matter(seed: int) -> None:
    """Room for all fast candidates but a byte: a slow one is no way to save that, where each fast one has a smaller form."""
    rng = np.random.default_rng(seed)
    layers = []
    for i in range(6):
        fast, constants = int(rng.integers(100, 200)), int(rng.integers(50, 90))
        layers.append([
            Candidate("fast", NO_KERNEL, ("fast", i), fast, constants, 100, 0, interface="fast"),
            Candidate("small", NO_KERNEL, ("small", i), fast + int(rng.integers(1, 9)), constants, 60, 0, interface="fast"),
            Candidate("slow", NO_KERNEL, Unasked(), 10 * fast, constants, 50, 0, interface="slow"),
        ])  # fmt: skip
    budget = Budget(code=6 * 100 - 1)
    chosen = choose(layers, budget).chosen
    assert cost(layers, chosen)[0] == min(
        cost(layers, c)[0] for c in product(range(2), repeat=6) if code_of(layers, c) <= 6 * 100 - 1
    )
    assert sum(chosen) == 1


def knapsack(count: int) -> list[list[Candidate]]:
    """Layers with kernels that are the faster the more flash they take, of about the same gain a byte: a long search."""
    rng = np.random.default_rng(1)
    sizes = rng.integers(1000, 2000, (count, 4))
    return [
        [Candidate(f"k{k}", NO_KERNEL, (i, k), 9000 - 2 * int(n) - int(n) % 7, int(n), 0, 0) for k, n in enumerate(row)]
        for i, row in enumerate(sizes)
    ]


def test_a_search_that_stops_says_how_far_it_is_from_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = knapsack(8)
    budget = Budget(flash=8 * 1490 + 1)
    best = choose(layers, budget)
    assert best.optimal
    assert best.total == best.lower_bound == cost(layers, best.chosen)[0]
    monkeypatch.setattr(selection, "NODE_LIMIT", 1)
    stopped = choose(layers, budget)
    assert not stopped.optimal
    assert cost(layers, stopped.chosen)[0] == stopped.total
    assert cost(layers, stopped.chosen)[1] <= 8 * 1490 + 1
    assert 0.99 * best.total < stopped.lower_bound <= best.total <= stopped.total
    monkeypatch.setattr(selection, "NODE_LIMIT", 0)
    unknown = choose(layers, budget)
    assert (unknown.minimised, unknown.optimal) == ("flash", False)


def test_the_solver_says_nothing(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """HiGHS prints at times, by way of C's own buffer; standard output may be JSON."""
    solve = highspy.Highs.run

    def noisy(solver: highspy.Highs) -> Any:
        ctypes.CDLL(None).puts(b"HighsMipSolverData")
        return solve(solver)

    monkeypatch.setattr(highspy.Highs, "run", noisy)
    ctypes.CDLL(None).puts(b"before")
    choose(random_layers(1), Budget(flash=100))
    ctypes.CDLL(None).puts(b"after")
    ctypes.CDLL(None).fflush(None)
    assert capfd.readouterr().out == "before\nafter\n"
