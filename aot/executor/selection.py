"""Which kernel for which layer: the fewest instructions under flash, code and RAM budgets, exactly.

Each layer has candidates {instructions, constants, code, scratch}; candidates with the same key share their code,
which is paid once. That is an integer program: x[l, c] = 1 where layer l takes candidate c, y[k] = 1 where code k is
used,

  minimise  sum instructions * x   subject to   sum_c x[l, c] = 1,   x[l, c] <= y[key(l, c)],
  sum constants * x + sum code * y <= flash,   sum code * y <= code,

solved to optimality by HiGHS (scipy.optimize.milp).  Ties go to less flash.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from aot.ir.op import Array
from aot.op.impl import Lowered
from aot.support.milp import Row, minimise


@dataclass(frozen=True, slots=True)
class Candidate:
    """One kernel for one layer; `key` is equal for candidates that share their code; sizes in bytes.

    `weights` are those of the layer's weights and biases in the model, whatever the kernel makes of them.  `is_cascade`: it runs
    several layers, as settled before kernels are chosen.
    """

    kernel: str
    lowered: Lowered
    key: Hashable
    instructions: int
    constants: int
    code: int
    scratch: int
    weights: int = 0
    is_cascade: bool = False


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits in bytes; None: no limit.

    `flash`: constants and kernel code together; `code`: kernel code alone; `scratch`: of each layer, by its place in
    the schedule.
    """

    flash: int | None = None
    code: int | None = None
    scratch: Sequence[int] | None = None


NODE_LIMIT = 50_000
"""Branches after which the best choice found so far is taken; a count, not a time, so that the result does not depend
on the machine.
"""

Layers = Sequence[Sequence[Candidate]]


def choose(layers: Layers, budget: Budget) -> tuple[int, ...]:
    """The index of the best candidate of each layer.

    A layer none of whose candidates respects its scratch limit keeps the one with the least scratch.  Where no choice
    fits, the limit on code is dropped; where none fits then, the choice with the least flash is taken.
    """
    if not layers:
        return ()
    allowed = [_allowed(c, None if budget.scratch is None else budget.scratch[i]) for i, c in enumerate(layers)]
    program = _Program(layers, allowed)
    if budget.flash is None and budget.code is None:
        return tuple(min(options, key=lambda k: _speed_first(layers[i][k])) for i, options in enumerate(allowed))
    for code in dict.fromkeys((budget.code, None)):
        chosen = program.solve(program.instructions, flash=budget.flash, code=code)
        if chosen is not None:
            return chosen
    smallest = program.solve(program.flash, flash=None, code=None)
    assert smallest is not None, "without limits there is a choice"
    return smallest


def _allowed(candidates: Sequence[Candidate], limit: int | None) -> tuple[int, ...]:
    fitting = tuple(k for k, c in enumerate(candidates) if limit is None or c.scratch <= limit)
    if fitting:
        return fitting
    return (min(range(len(candidates)), key=lambda k: (candidates[k].scratch, candidates[k].instructions)),)


def _speed_first(candidate: Candidate) -> tuple[int, int]:
    return candidate.instructions, candidate.constants + candidate.code


class _Program:
    """The integer program: one column a (layer, candidate) pair, then one a code key."""

    def __init__(self, layers: Layers, allowed: Sequence[tuple[int, ...]]) -> None:
        self._pairs = [(i, k) for i, options in enumerate(allowed) for k in options]
        chosen = [layers[i][k] for i, k in self._pairs]
        keys = {c.key: n for n, c in reversed(list(enumerate(chosen)))}
        order = sorted(keys, key=lambda key: keys[key])
        self._key_of = [order.index(c.key) for c in chosen]
        code = np.zeros(len(order))
        for column, c in zip(self._key_of, chosen, strict=True):
            code[column] = max(code[column], c.code)
        zeros = np.zeros(len(order))
        self._layers = len(layers)
        self.code: Array = np.concatenate([np.zeros(len(chosen)), code])
        self.flash: Array = np.concatenate([[c.constants for c in chosen], code]).astype(float)
        self.instructions: Array = np.concatenate([[c.instructions for c in chosen], zeros]).astype(float)

    def solve(self, objective: Array, *, flash: int | None, code: int | None) -> tuple[int, ...] | None:
        """The candidate of each layer, or None where nothing fits."""
        rows: list[Row] = [self._one_each(), self._code_is_paid()]
        rows += [(row[None, :], -np.inf, limit) for row, limit in ((self.flash, flash), (self.code, code)) if limit is not None]
        tie = self.flash / (1.0 + 4.0 * self.flash.sum())
        found = minimise(objective + tie, rows, upper=1, node_limit=NODE_LIMIT)
        if found is None:
            return None
        taken = {i: k for (i, k), x in zip(self._pairs, found, strict=False) if x > 0.5}
        return tuple(taken[i] for i in range(self._layers))

    def _one_each(self) -> tuple[Array, int, int]:
        rows = np.zeros((self._layers, len(self.flash)))
        for column, (i, _) in enumerate(self._pairs):
            rows[i, column] = 1
        return rows, 1, 1

    def _code_is_paid(self) -> tuple[Array, float, int]:
        rows = np.zeros((len(self._pairs), len(self.flash)))
        for column, key in enumerate(self._key_of):
            rows[column, column] = 1
            rows[column, len(self._pairs) + key] = -1
        return rows, -np.inf, 0
