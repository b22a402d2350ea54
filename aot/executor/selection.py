"""Which kernel for which layer: the fewest instructions under flash, code and RAM budgets, exactly.

Each layer has candidates {instructions, constants, code, scratch}; candidates with the same key share their code, which counts
once.  That is an integer program: x[l, c] = 1 if layer l uses candidate c, y[k] = 1 if code k is used,

  minimise  sum instructions * x   subject to   sum_c x[l, c] = 1,   x[l, c] <= y[key(l, c)],   x[l, c] <= z[a] for its arrays a,
  sum constants * x + sum code * y + sum bytes * z <= flash,   sum code * y <= code,

solved to optimality by HiGHS.  Layers that are equal in all of this are merged, and x counts how many of them use the candidate:
otherwise the search would try the same choices many thousand times in a long network.  Code that only one candidate uses is
counted with it, without a y.  Ties go to less flash.  Arrays that candidates of several layers share (one matrix in one format)
are in flash once, z[a] = 1 if array a is; a candidate's other bytes are its constants above.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.support.milp import Entries, Row, Solution, minimise, relaxed
from aot.system.disk_memo import recall
from aot.topi.strategy import Lowered


@dataclass(frozen=True, slots=True)
class Stored:
    """An array in flash; arrays with equal `key` are stored once."""

    key: Hashable
    nbytes: int


def stored(data: Array, dtype: str) -> Stored:
    """The array that holds `data` as `dtype`."""
    return Stored((dtype, hashlib.sha256(np.ascontiguousarray(data).tobytes()).digest()), data.nbytes)


def distinct_bytes(arrays: Iterable[Stored]) -> int:
    """Bytes of all arrays, counting equal ones once."""
    return sum({a.key: a.nbytes for a in arrays}.values())


@dataclass(frozen=True, slots=True)
class Candidate:
    """One kernel for one layer; candidates with equal `key` share their code; sizes in bytes.

    `source` is the kernel, or a function that lowers it: one that is cached from an earlier compilation is lowered when chosen.

    `weights` are the layer's weights and biases in the model, however the kernel stores them.  `arrays` are the parts of its
    `constants` that it may share with other layers.  `is_cascade`: it runs several layers, as decided before kernels are chosen.
    `interface`: candidates with different interfaces share no code; "" may share with any.
    """

    kernel: str
    source: Lowered | Callable[[], Lowered]
    key: Hashable
    instructions: int
    constants: int
    code: int
    scratch: int
    weights: tuple[Stored, ...] = ()
    arrays: tuple[Stored, ...] = ()
    is_cascade: bool = False
    cycles: int = 0
    interface: str = ""

    @property
    def lowered(self) -> Lowered:
        return self.source if isinstance(self.source, Lowered) else self.source()


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits in bytes for constants and kernel code together, and for kernel code alone; None: no limit."""

    flash: int | None = None
    code: int | None = None


NODE_LIMIT = 50_000
"""Branches until the search stops with the best choice so far; a count, so that results do not depend on the machine."""

Layers = Sequence[Sequence[Candidate]]


@dataclass(frozen=True, slots=True)
class Selection:
    """`chosen`: the index of each layer's candidate, and how good the choice is by the estimates.

    `total` is the minimised sum: `instructions`, or bytes of `flash` if nothing fits the budget.  No choice is below
    `lower_bound`. `optimal`: proven for this choice; otherwise the search stopped at NODE_LIMIT.
    """

    chosen: tuple[int, ...] = ()
    minimised: str = "instructions"
    total: int = 0
    lower_bound: int = 0
    optimal: bool = True


def choose(layers: Layers, budget: Budget) -> Selection:
    """The best candidate of each layer.

    If no choice fits, the limit on code is dropped; if still none fits, the choice with the least flash is used.
    """
    if not layers:
        return Selection()
    chosen: Sequence[int] | None
    if budget.flash is None and budget.code is None:
        chosen = [min(range(len(c)), key=lambda k: (c[k].instructions, c[k].constants + c[k].code)) for c in layers]
    else:
        chosen = _fastest_within(layers, budget)
    if chosen is not None:  # no layer has a faster candidate
        total = sum(layer[k].instructions for layer, k in zip(layers, chosen, strict=True))
        return Selection(tuple(chosen), total=total, lower_bound=total)
    quick = _without_slow(layers, budget)
    if quick is not None:
        return quick
    program, proven = _Program(layers), True
    for code in dict.fromkeys((budget.code, None)):
        solution = program.solve(program.instructions, flash=budget.flash, code=code)
        proven = proven and solution.proven  # also that nothing fits the limit on code
        if solution.values is not None:
            return program.selection(solution, "instructions", proven=proven)
    smallest = program.solve(program.flash, flash=None, code=None)
    assert smallest.values is not None, "without limits there is a choice"
    return program.selection(smallest, "flash", proven=proven and smallest.proven)


def _fastest_within(layers: Layers, budget: Budget) -> Sequence[int] | None:
    """The candidates with the fewest instructions if they fit together, which is then the optimum; else None.

    Most networks have room for them, and then no other candidate's code key is needed.
    """
    least = [min(c.instructions for c in layer) for layer in layers]
    options = [[k for k, c in enumerate(layer) if c.instructions == n] for layer, n in zip(layers, least, strict=True)]
    if any(len(ks) > 1 for ks in options):
        program = _Program(layers, options)
        solution = program.solve(program.instructions, flash=budget.flash, code=budget.code)
        return None if solution.values is None else program.chosen(solution)
    flash, code = (float("inf") if limit is None else limit for limit in (budget.flash, budget.code))
    chosen = [layers[i][k] for i, (k,) in enumerate(options)]
    most = sum(c.code for c in chosen)  # as if none shared code
    fits = most <= code and sum(c.constants for c in chosen) + most <= flash
    if not fits:
        program = _Program(layers, options)
        fits = bool(program.code.sum() <= code and program.flash @ program.upper <= flash)
    return [k for (k,) in options] if fits else None


PART = 1e-6
"""The fraction of a candidate from which on it counts as used by a layer."""

SLOW = 2
"""Candidates above this multiple of the instructions of their layer's fastest are hardly ever chosen."""


def _without_slow(layers: Layers, budget: Budget) -> Selection | None:
    """The optimum if it has no slow candidate, without their keys, which take longer to compute than everything else; else None.

    Slow candidates with the same interface count as if they shared one code, the smallest of theirs, and as if they had none if
    another candidate may share it.  This never overestimates a choice, so if the best one has none of them, it is the best of
    all, and its cost is exact.
    """
    least = [min(c.instructions for c in layer) for layer in layers]
    every = {(i, k): c for i, layer in enumerate(layers) for k, c in enumerate(layer)}
    slow = {(i, k): c for (i, k), c in every.items() if c.interface and c.instructions > SLOW * least[i]}
    if not slow:
        return None
    others = {c.interface for place, c in every.items() if place not in slow}
    code: dict[str, int] = {}
    for c in slow.values():
        shares = "" in others or c.interface in others
        code[c.interface] = 0 if shares else min(c.code, code.get(c.interface, c.code))
    cheaper = {p: replace(c, key=("slow", c.interface), code=code[c.interface]) for p, c in slow.items()}
    program = _Program([[cheaper.get((i, k), c) for k, c in enumerate(layer)] for i, layer in enumerate(layers)])
    if program.wants(slow, budget):  # then so does the optimum, most likely, which costs more to find
        return None
    solution = program.solve(program.instructions, flash=budget.flash, code=budget.code)
    if solution.values is None or not solution.proven:
        return None
    selection = program.selection(solution, "instructions", proven=True)
    return None if any(place in slow for place in enumerate(selection.chosen)) else selection


class _Program:
    """The integer program: columns for candidates of equal layers, then for code keys and for arrays of several candidates."""

    def __init__(self, layers: Layers, options: Sequence[Sequence[int]] | None = None) -> None:
        """`options`: the candidates of each layer that may be chosen (None: all)."""
        options = [range(len(layer)) for layer in layers] if options is None else options
        every = {(i, k): layers[i][k] for i, ks in enumerate(options) for k in ks}
        code, shared = dict[Hashable, int](), _shared(every)
        for candidate in every.values():
            code[candidate.key] = max(candidate.code, code.get(candidate.key, 0))
        costs = {pair: _Cost.of(c, shared) for pair, c in every.items()}
        equal: dict[Hashable, list[int]] = {}
        for i, ks in enumerate(options):
            equal.setdefault(tuple((k, *costs[i, k].terms) for k in ks), []).append(i)
        self._equal = list(equal.values())
        pairs = {(n, k): costs[members[0], k] for n, members in enumerate(self._equal) for k in options[members[0]]}
        users = Counter(c.key for c in pairs.values())
        alone = {c.key: code.pop(c.key) for (n, _), c in pairs.items() if users[c.key] == len(self._equal[n]) == 1}
        first: dict[Hashable, tuple[int, int]] = {}  # of a layer's candidates with the same cost, as any of them could be chosen
        for (n, k), c in pairs.items():
            own = c.instructions, c.constants + alone.get(c.key, 0), alone.get(c.key, 0), *c.needs(alone)
            first.setdefault((n, own), (n, k))
        self._pairs = list(first.values())
        once = [*(("code", k) for k in code), *(("array", k) for k in shared)]
        columns: dict[Hashable, int] = {key: len(self._pairs) + n for n, key in enumerate(once)}
        chosen = [pairs[pair] for pair in self._pairs]
        own_code = [alone.get(c.key, 0) for c in chosen]
        self._needs = [(pair, columns[key]) for pair, c in enumerate(chosen) for key in c.needs(alone)]
        counts = [len(self._equal[n]) for n, _ in self._pairs]
        none, bytes_ = np.zeros(len(shared)), [*code.values()]
        self.upper: Array = np.array([*counts, *([1] * len(once))], float)
        self.code: Array = np.concatenate([own_code, bytes_, none]).astype(float)
        own_flash = [c.constants + n for c, n in zip(chosen, own_code, strict=True)]
        self.flash: Array = np.concatenate([own_flash, bytes_, list(shared.values())]).astype(float)
        self.instructions: Array = np.concatenate([[c.instructions for c in chosen], np.zeros(len(once))]).astype(float)

    def solve(self, objective: Array, *, flash: int | None, code: int | None) -> Solution:
        """The columns with the least objective within the limits; without values if nothing fits."""
        tie = self.flash / (1.0 + 4.0 * float(self.flash @ self.upper))  # less than 1/4 in all
        return _minimise(objective + tie, self._rows(flash, code), self.upper)

    def _rows(self, flash: int | None, code: int | None) -> list[Row]:
        rows: list[Row] = [self._one_each(), self._code_and_arrays_are_paid()]
        limits = ((self.flash, flash), (self.code, code))
        return rows + [(row[None, :], -np.inf, limit) for row, limit in limits if limit is not None]

    def wants(self, some: Container[tuple[int, int]], budget: Budget) -> bool:
        """Whether the relaxation uses some of these candidates, or has no solution at all."""
        values = relaxed(self.instructions, self._rows(budget.flash, budget.code), upper=self.upper)
        places = [(self._equal[n][0], k) for n, k in self._pairs]
        return values is None or any(v > PART and p in some for p, v in zip(places, values, strict=False))

    def chosen(self, solution: Solution) -> tuple[int, ...]:
        """The candidate of each layer; among equal layers the first ones get the first candidates."""
        assert solution.values is not None
        taken: dict[int, int] = {}
        left = [iter(members) for members in self._equal]
        for (n, k), count in zip(self._pairs, solution.values, strict=False):
            taken |= dict.fromkeys(islice(left[n], round(count)), k)
        return tuple(taken[i] for i in range(len(taken)))

    def selection(self, solution: Solution, minimised: str, *, proven: bool) -> Selection:
        """The choice, and how far it may be from the optimum of the minimised number of instructions or bytes."""
        objective = self.instructions if minimised == "instructions" else self.flash
        total = round(float(objective @ solution.values))
        bound = math.ceil(solution.bound - 0.25 - 1e-6) if math.isfinite(solution.bound) else 0
        return Selection(self.chosen(solution), minimised, total, total if proven else min(max(bound, 0), total), proven)

    def _one_each(self) -> tuple[Entries, Array, Array]:
        layers = np.array([n for n, _ in self._pairs])
        counts = np.array([len(members) for members in self._equal], float)
        return Entries(len(counts), layers, np.arange(len(layers)), np.ones(len(layers))), counts, counts

    def _code_and_arrays_are_paid(self) -> tuple[Entries, float, int]:
        n = len(self._needs)
        columns = np.array(self._needs).reshape(n, 2).ravel()
        values = np.column_stack([np.ones(n), -self.upper[[pair for pair, _ in self._needs]]]).ravel()
        return Entries(n, np.repeat(np.arange(n), 2), columns, values), -np.inf, 0


def _shared(candidates: Mapping[tuple[int, int], Candidate]) -> dict[Hashable, int]:
    """The bytes of arrays that candidates of different layers share; `candidates` by the number of their layer and their own."""
    users: dict[Hashable, set[int]] = {}
    sizes: dict[Hashable, int] = {}
    for (i, _), c in candidates.items():
        for a in c.arrays:
            users.setdefault(a.key, set()).add(i)
            sizes[a.key] = a.nbytes
    return {key: size for key, size in sizes.items() if len(users[key]) > 1}


@dataclass(frozen=True, slots=True)
class _Cost:
    """Everything that the program uses of a candidate: `constants` of this layer only, and keys of shared `arrays`."""

    instructions: int
    constants: int
    key: Hashable
    arrays: tuple[Hashable, ...]

    @staticmethod
    def of(candidate: Candidate, shared: Mapping[Hashable, int]) -> _Cost:
        arrays = [a for a in candidate.arrays if a.key in shared]
        own = candidate.constants - distinct_bytes(arrays)
        return _Cost(candidate.instructions, own, candidate.key, tuple(dict.fromkeys(a.key for a in arrays)))

    @property
    def terms(self) -> tuple[Hashable, ...]:
        """The same for layers with equal candidates."""
        return self.instructions, self.constants, self.key, frozenset(self.arrays)

    def needs(self, alone: Container[Hashable]) -> list[Hashable]:
        """The code and arrays that count once for all candidates; code with one user (`alone`) counts with the candidate."""
        code = [] if self.key in alone else [("code", self.key)]
        return [*code, *(("array", key) for key in self.arrays)]


def _minimise(objective: Array, rows: Sequence[Row], upper: Array) -> Solution:
    """The optimum, or a cached one; `upper` bounds each column."""

    def depends() -> bytes:
        parts = [objective, upper]
        for entries, low, high in rows:
            parts += [entries.rows, entries.columns, entries.values] if isinstance(entries, Entries) else [entries]
            parts += [np.asarray(low, float), np.asarray(high, float)]
        return b"".join(f"{np.shape(p)}{p.dtype}".encode() + np.ascontiguousarray(p).tobytes() for p in parts)

    def solve() -> Solution:
        solution = minimise(objective, rows, upper=upper, node_limit=NODE_LIMIT, narrow=True)
        return solution if solution.values is None else replace(solution, values=np.rint(solution.values))

    def unpacked(data: Any) -> Solution | None:
        places, numbers, bound, proven = data
        if places is None:
            return Solution(None, float(bound), proven is True)
        values = np.zeros(len(objective))
        values[places] = numbers
        return Solution(values, float(bound), proven is True)

    def packed(solution: Solution) -> Any:
        if solution.values is None:
            return [None, None, solution.bound, solution.proven]
        places = np.flatnonzero(solution.values)
        return [places.tolist(), solution.values[places].astype(int).tolist(), solution.bound, solution.proven]

    return recall("selection", depends, solve, pack=packed, unpack=unpacked)
