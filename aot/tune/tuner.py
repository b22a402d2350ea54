"""The tuner: which kernels of a task are measured next.

Of a task with few kernels all are measured.  Of one with many the best by estimate come first; then a ridge regression over all
that was measured so far, of all tasks, predicts what the others take, and half of those that may still win are measured, again
and again, until none may.  The order of results does not matter: each round is planned from all results of those before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.tune.task import Choice, Task

FEW = 8
"""Kernels of a task that are measured without asking which may win."""

MARGIN = 1.05
"""A kernel may win while it is predicted to take at most so many times the fewest that were counted."""

_RIDGE = 1.0

Counted = Mapping[tuple[str, str], int | None]
"""(workload, kernel) -> what was counted; None for a kernel that could not be measured."""


@dataclass(frozen=True, slots=True)
class Pick:
    """Kernels of a task that are to be measured."""

    task: Task
    kernels: tuple[str, ...]


def next_round(tasks: Sequence[Task], counted: Counted, *, trials: int | None = None) -> list[Pick]:
    """What to measure next; nothing where all is known that may matter.

    `trials`: kernels of a task that are measured at most.
    """
    predict = _fitted(tasks, counted)
    picks = [Pick(t, _next(t, counted, predict, trials)) for t in tasks]
    return [p for p in picks if p.kernels]


def _next(task: Task, counted: Counted, predict: _Model, trials: int | None) -> tuple[str, ...]:
    done = [c for c in task.choices if (task.workload, c.kernel) in counted]
    rest = [c for c in task.choices if (task.workload, c.kernel) not in counted]
    room = len(rest) if trials is None else max(0, trials - len(done))
    if len(done) < FEW:
        return tuple(c.kernel for c in rest[: min(room, FEW - len(done))])
    known = [n for c in done if (n := counted[task.workload, c.kernel]) is not None]
    least = min(known, default=None)
    may_win = sorted((predict.count(task, c), c.kernel) for c in rest)
    if least is not None:
        may_win = [(n, k) for n, k in may_win if n <= MARGIN * least]
    half = max(FEW, (len(may_win) + 1) // 2)
    return tuple(k for _, k in may_win[: min(room, half)])


@dataclass(frozen=True, slots=True)
class _Model:
    """Predicts the logarithm of counted over estimated from what a choice is."""

    families: Mapping[str, int]
    weights: Array

    def count(self, task: Task, choice: Choice) -> float:
        """Predicted number for a kernel; its estimate, or the multiplications where it states none."""
        base = choice.estimate or max(1, task.macs)
        return float(base * np.exp(_features(task, choice, self.families) @ self.weights)) if self.weights.size else float(base)


def _fitted(tasks: Sequence[Task], counted: Counted) -> _Model:
    """The ridge regression over all that was counted."""
    rows = [(t, c, n) for t in tasks for c in t.choices if (n := counted.get((t.workload, c.kernel)))]
    names = sorted({_family(c.kernel) for _, c, _ in rows})
    families = {name: i for i, name in enumerate(names)}
    if not rows:
        return _Model(families, np.zeros(0))
    x = np.array([_features(t, c, families) for t, c, _ in rows])
    y = np.array([np.log(n / (c.estimate or max(1, t.macs))) for t, c, n in rows])
    return _Model(families, np.linalg.solve(x.T @ x + _RIDGE * np.eye(x.shape[1]), x.T @ y))


def _features(task: Task, choice: Choice, families: Mapping[str, int]) -> Array:
    """Of which family the kernel is, and the sizes that estimates are wrong by: small layers, much code, much scratch."""
    own = np.zeros(len(families))
    if _family(choice.kernel) in families:
        own[families[_family(choice.kernel)]] = 1.0
    base = np.log(choice.estimate or max(1, task.macs))
    sizes = [np.log1p(choice.code), np.log1p(choice.scratch), np.log1p(choice.constants)]
    return np.concatenate([own, [1.0, base / 16.0], np.array(sizes) / 16.0])


def _family(kernel: str) -> str:
    return kernel.partition("(")[0]
