"""Tasks: the workloads of a model that several kernels can run, and which of these are measured next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from aot.driver.build import fused_module
from aot.driver.front import front
from aot.driver.options import Options
from aot.driver.plugins import load_installed
from aot.executor.candidates import LoweringCache, all_candidates
from aot.ir.op import Array, Op
from aot.relay.analysis import cost, workload_key, workload_text
from aot.relay.expr import Call, Function, all_functions, post_order
from aot.support.dataclass import dataclass
from aot.target.target import Target

MOST_SLOWER = 3.0
"""Kernels whose estimate exceeds the smallest by more than this factor are not measured: no estimate is that far from the
count.
"""


@dataclass(frozen=True, slots=True)
class Choice:
    """A kernel that accepts a task: its name, its estimated cost, and the bytes of its constants, code and scratch."""

    kernel: str
    estimate: int
    constants: int
    code: int
    scratch: int


@dataclass(frozen=True, slots=True)
class Task:
    """A workload: a fused function with it, the number of layers in the model that have it, and its kernels, best first."""

    workload: str
    text: str
    func: Function
    target: Target
    macs: int
    layers: int
    choices: tuple[Choice, ...]


def extract_tasks(
    data: bytes, target: Target, *, name: str, options: Options, most_slower: float = MOST_SLOWER
) -> tuple[Task, ...]:
    """The tasks of a model with known shapes, in order of execution: workloads that more than one kernel accepts.

    Raises the errors of the compiler.
    """
    load_installed()
    result = front(data, target, name=name, options=options)
    main = fused_module(result.main, target, name=name, options=options, slides=result.slides).main
    return tasks_of(main, target, most_slower=most_slower)


def tasks_of(main: Function, target: Target, *, most_slower: float = MOST_SLOWER) -> tuple[Task, ...]:
    """The tasks of a fused main function; `most_slower` as MOST_SLOWER."""
    groups: dict[str, list[Function]] = {}
    for func in _groups(main):
        key = workload_key(func)
        if key is not None:
            groups.setdefault(key, []).append(func)
    cache, tasks = LoweringCache(), []
    for key, funcs in groups.items():
        choices = choices_of(funcs[0], target, cache, most_slower=most_slower)
        if len(choices) > 1:
            macs = cost(funcs[0]).macs
            tasks.append(Task(key, workload_text(funcs[0]), funcs[0], target, macs, len(funcs), choices))
    return tuple(tasks)


def choices_of(func: Function, target: Target, known: LoweringCache, *, most_slower: float = MOST_SLOWER) -> tuple[Choice, ...]:
    """The kernels worth measuring, by estimated instructions, those without estimates last."""
    candidates = all_candidates(func, target, "layer", known)
    estimates = [c.instructions for c in candidates if c.instructions > 0]
    limit = most_slower * min(estimates, default=0)
    chosen: dict[str, Choice] = {}
    for c in sorted(candidates, key=lambda c: (c.instructions or 1 << 62, c.kernel)):
        if c.instructions <= limit and (c.instructions > 0 or not estimates):
            chosen.setdefault(c.kernel, Choice(c.kernel, c.instructions, c.constants, c.code, c.scratch))
    return tuple(chosen.values())


def _groups(main: Function) -> Iterator[Function]:
    """The fused functions in order of execution, including branches and loops, except those for external code generators."""
    for func in all_functions(main):
        for expr in post_order(func.body):
            if isinstance(expr, Call) and not isinstance(expr.op, Op) and "Compiler" not in expr.op.attrs:
                yield expr.op


# ---- the tuner: which kernels of a task are measured next
#
# For a task with few kernels all are measured.  For one with many the best by estimate come first; then a ridge regression over
# all measurements so far, of all tasks, predicts the others, and half of those that may still win are measured, repeatedly,
# until none may.  The order of results does not matter: each round is planned from all results of the previous ones.


FEW = 8
"""A task with at most this many kernels is measured completely."""

MARGIN = 1.05
"""A kernel may still win if its prediction is at most this factor above the smallest count."""

_RIDGE = 1.0

Counted = Mapping[tuple[str, str], int | None]
"""(workload, kernel) -> count; None for a kernel that could not be measured."""


@dataclass(frozen=True, slots=True)
class Pick:
    """Kernels of a task that are to be measured."""

    task: Task
    kernels: tuple[str, ...]


def next_round(tasks: Sequence[Task], counted: Counted, *, trials: int | None = None) -> list[Pick]:
    """What to measure next; empty if everything relevant is known.

    `trials`: maximum number of kernels measured per task.
    """
    predict = _fitted(tasks, counted)
    picks = [Pick(t, _next(t, counted, predict, trials)) for t in tasks]
    return [p for p in picks if p.kernels]


def _next(task: Task, counted: Counted, predict: _Model, trials: int | None) -> tuple[str, ...]:
    done = [c for c in task.choices if (task.workload, c.kernel) in counted]
    uncounted = [c for c in task.choices if (task.workload, c.kernel) not in counted]
    room = len(uncounted) if trials is None else max(0, trials - len(done))
    if len(done) < FEW:
        return tuple(c.kernel for c in uncounted[: min(room, FEW - len(done))])
    counts = [n for c in done if (n := counted[task.workload, c.kernel]) is not None]
    least = min(counts, default=None)
    may_win = sorted((predict.count(task, c), c.kernel) for c in uncounted)
    if least is not None:
        may_win = [(n, k) for n, k in may_win if n <= MARGIN * least]
    half = max(FEW, (len(may_win) + 1) // 2)
    return tuple(k for _, k in may_win[: min(room, half)])


@dataclass(frozen=True, slots=True)
class _Model:
    """Predicts the logarithm of counted over estimated from a choice's features."""

    families: Mapping[str, int]
    weights: Array

    def count(self, task: Task, choice: Choice) -> float:
        """Predicted number for a kernel; its estimate, or the multiplications if it has none."""
        base = choice.estimate or max(1, task.macs)
        return float(base * np.exp(_features(task, choice, self.families) @ self.weights)) if self.weights.size else float(base)


def _fitted(tasks: Sequence[Task], counted: Counted) -> _Model:
    """The ridge regression over all counts."""
    rows = [(t, c, n) for t in tasks for c in t.choices if (n := counted.get((t.workload, c.kernel)))]
    names = sorted({_family(c.kernel) for _, c, _ in rows})
    families = {name: i for i, name in enumerate(names)}
    if not rows:
        return _Model(families, np.zeros(0))
    x = np.array([_features(t, c, families) for t, c, _ in rows])
    y = np.array([np.log(n / (c.estimate or max(1, t.macs))) for t, c, n in rows])
    return _Model(families, np.linalg.solve(x.T @ x + _RIDGE * np.eye(x.shape[1]), x.T @ y))


def _features(task: Task, choice: Choice, families: Mapping[str, int]) -> Array:
    """The kernel's family, and the sizes that affect estimates: small layers, much code, much scratch."""
    own = np.zeros(len(families))
    if _family(choice.kernel) in families:
        own[families[_family(choice.kernel)]] = 1.0
    base = np.log(choice.estimate or max(1, task.macs))
    sizes = [np.log1p(choice.code), np.log1p(choice.scratch), np.log1p(choice.constants)]
    return np.concatenate([own, [1.0, base / 16.0], np.array(sizes) / 16.0])


def _family(kernel: str) -> str:
    return kernel.partition("(")[0]
