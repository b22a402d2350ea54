"""Which kernels are measured: all of a few, of many those that may win."""

from __future__ import annotations

import math
from typing import Any

from aot.tune.task import FEW, Choice, Task, next_round

NOBODY: Any = None


def task(name: str, estimates: dict[str, int]) -> Task:
    choices = tuple(Choice(k, n, 64, 200, 16) for k, n in sorted(estimates.items(), key=lambda p: p[1]))
    return Task(name, name, NOBODY, NOBODY, 1000, 1, choices)


def measured(tasks: list[Task], truth: Any, *, trials: int | None = None) -> tuple[dict[tuple[str, str], int | None], int]:
    """All that is measured until nothing is asked, and in how many rounds."""
    counted: dict[tuple[str, str], int | None] = {}
    for rounds in range(100):
        picks = next_round(tasks, counted, trials=trials)
        if not picks:
            return counted, rounds
        for pick in picks:
            for kernel in pick.kernels:
                assert (pick.task.workload, kernel) not in counted, "nothing is measured twice"
                counted[pick.task.workload, kernel] = truth(pick.task, kernel)
    raise AssertionError("it never ends")


def test_all_of_a_few() -> None:
    tasks = [task("a", {f"k{i}": 100 * i + 100 for i in range(FEW)}), task("b", {"x": 5, "y": 6})]
    counted, rounds = measured(tasks, lambda t, k: 7)
    assert rounds == 1
    assert len(counted) == FEW + 2


def test_trials_are_a_limit() -> None:
    counted, _ = measured([task("a", {f"k{i}": 100 + i for i in range(40)})], lambda t, k: 7, trials=3)
    assert sorted(k for _, k in counted) == ["k0", "k1", "k2"]


def test_of_many_the_best_is_found_without_all() -> None:
    """Estimates of one family are half of what it takes: the other one wins, though by estimates it comes last."""
    estimates = {f"low(n={i})": 1000 + 10 * i for i in range(60)} | {
        f"true(n={i})": 1500 + 10 * ((7 * i) % 60) for i in range(60)
    }
    many, few = task("many", estimates), task("few", {"low()": 900, "true()": 1000})

    def truth(t: Task, kernel: str) -> int:
        own = next(c.estimate for c in t.choices if c.kernel == kernel)
        return own * 2 if kernel.startswith("low") else own

    counted, rounds = measured([many, few], truth)
    of_many = {k: n for (t, k), n in counted.items() if t == "many"}
    assert min(of_many, key=lambda k: of_many[k] or math.inf) == "true(n=0)"
    assert len(of_many) < 80
    assert rounds > 1


def test_what_cannot_be_measured_is_not_asked_again() -> None:
    counted, rounds = measured([task("a", {f"k{i}": 100 + i for i in range(12)})], lambda t, k: None)
    assert rounds <= 3
    assert len(counted) == 12
