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

    `made` is the kernel, or a function that lowers it: one that is cached from an earlier compilation is lowered when chosen.

    `weights` are the layer's weights and biases in the model, however the kernel stores them.  `arrays` are the parts of its
    `constants` that it may share with other layers.  `is_cascade`: it runs several layers, as decided before kernels are chosen.
    `interface`: candidates with different interfaces share no code; "" may share with any.
    """

    kernel: str
    made: Lowered | Callable[[], Lowered]
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
        return self.made if isinstance(self.made, Lowered) else self.made()


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits in bytes; None: no limit.

    `flash`: constants and kernel code together; `code`: kernel code alone; `scratch`: per layer, by its place in the lowered
    module.
    """

    flash: int | None = None
    code: int | None = None
    scratch: Sequence[int] | None = None


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

    If no candidate of a layer respects its scratch limit, the layer keeps the one with the least scratch.  If no choice fits, the
    limit on code is dropped; if still none fits, the choice with the least flash is used.
    """
    if not layers:
        return Selection()
    allowed = [_allowed(c, None if budget.scratch is None else budget.scratch[i]) for i, c in enumerate(layers)]
    if budget.flash is None and budget.code is None:
        return _fastest(layers, [min(options, key=lambda k: _speed_first(layers[i][k])) for i, options in enumerate(allowed)])
    fastest = _fastest_within(layers, allowed, budget)
    if fastest is not None:
        return _fastest(layers, fastest)
    quick = _without_slow(layers, allowed, budget)
    if quick is not None:
        return quick
    program, proven = _Program(layers, allowed), True
    for code in dict.fromkeys((budget.code, None)):
        solution = program.solve(program.instructions, flash=budget.flash, code=code)
        proven = proven and solution.proven  # also that nothing fits the limit on code
        if solution.values is not None:
            return program.selection(solution, "instructions", proven=proven)
    smallest = program.solve(program.flash, flash=None, code=None)
    assert smallest.values is not None, "without limits there is a choice"
    return program.selection(smallest, "flash", proven=proven and smallest.proven)


def _fastest(layers: Layers, chosen: Sequence[int]) -> Selection:
    """A choice in which no layer has a faster candidate."""
    total = sum(layer[k].instructions for layer, k in zip(layers, chosen, strict=True))
    return Selection(tuple(chosen), total=total, lower_bound=total)


def _allowed(candidates: Sequence[Candidate], limit: int | None) -> tuple[int, ...]:
    fitting = tuple(k for k, c in enumerate(candidates) if limit is None or c.scratch <= limit)
    if fitting:
        return fitting
    return (min(range(len(candidates)), key=lambda k: (candidates[k].scratch, candidates[k].instructions)),)


def _fastest_within(layers: Layers, allowed: Sequence[tuple[int, ...]], budget: Budget) -> tuple[int, ...] | None:
    """The candidates with the fewest instructions if they fit together, which is then the optimum; else None.

    Most networks have room for them, and then no other candidate's code key is needed.
    """
    least = [min(layers[i][k].instructions for k in options) for i, options in enumerate(allowed)]
    options = [tuple(k for k in ks if layers[i][k].instructions == least[i]) for i, ks in enumerate(allowed)]
    flash, code = (float("inf") if limit is None else limit for limit in (budget.flash, budget.code))
    if all(len(ks) == 1 for ks in options):
        chosen = [layers[i][k] for i, (k,) in enumerate(options)]
        most = sum(c.code for c in chosen)  # as if none shared code
        fits = most <= code and sum(c.constants for c in chosen) + most <= flash
        if not fits:
            program = _Program(layers, options)
            fits = bool(program.code.sum() <= code and program.flash @ program.upper <= flash)
        return tuple(k for (k,) in options) if fits else None
    program = _Program(layers, options)
    solution = program.solve(program.instructions, flash=budget.flash, code=budget.code)
    return None if solution.values is None else program.chosen(solution)


PART = 1e-6
"""The fraction of a candidate from which on it counts as used by a layer."""

SLOW = 2
"""Candidates above this multiple of the instructions of their layer's fastest are hardly ever chosen."""


def _without_slow(layers: Layers, allowed: Sequence[tuple[int, ...]], budget: Budget) -> Selection | None:
    """The optimum if it has no slow candidate, without their keys, which take longer to compute than everything else; else None.

    Slow candidates with the same interface count as if they shared one code, the smallest of theirs, and as if they had none if
    another candidate may share it.  This never overestimates a choice, so if the best one has none of them, it is the best of
    all, and its cost is exact.
    """
    least = [min(layers[i][k].instructions for k in options) for i, options in enumerate(allowed)]
    every = {(i, k): layers[i][k] for i, options in enumerate(allowed) for k in options}
    slow = {(i, k): c for (i, k), c in every.items() if c.interface and c.instructions > SLOW * least[i]}
    if not slow:
        return None
    others = {c.interface for place, c in every.items() if place not in slow}
    code: dict[str, int] = {}
    for c in slow.values():
        shares = "" in others or c.interface in others
        code[c.interface] = 0 if shares else min(c.code, code.get(c.interface, c.code))
    cheaper = {p: replace(c, key=("slow", c.interface), code=code[c.interface]) for p, c in slow.items()}
    layers_of_one_code = [[cheaper.get((i, k), c) for k, c in enumerate(layer)] for i, layer in enumerate(layers)]
    program = _Program(layers_of_one_code, allowed)
    if program.wants(slow, budget):  # then so does the optimum, most likely, which costs more to find
        return None
    solution = program.solve(program.instructions, flash=budget.flash, code=budget.code)
    if solution.values is None or not solution.proven:
        return None
    selection = program.selection(solution, "instructions", proven=True)
    return None if any(place in slow for place in enumerate(selection.chosen)) else selection


def _speed_first(candidate: Candidate) -> tuple[int, int]:
    return candidate.instructions, candidate.constants + candidate.code


class _Program:
    """The integer program: columns for candidates of equal layers, then for code keys and for arrays of several candidates."""

    def __init__(self, layers: Layers, allowed: Sequence[tuple[int, ...]]) -> None:
        every = [(i, layers[i][k]) for i, options in enumerate(allowed) for k in options]
        code, shared = _largest((c.key, c.code) for _, c in every), _shared(every)
        equal: dict[Hashable, list[int]] = {}
        for i, options in enumerate(allowed):
            equal.setdefault(tuple((k, *_terms(layers[i][k], shared)) for k in options), []).append(i)
        self._equal = list(equal.values())
        pairs = {(n, k): layers[members[0]][k] for n, members in enumerate(self._equal) for k in allowed[members[0]]}
        users = Counter(c.key for c in pairs.values())
        alone = {c.key for (n, _), c in pairs.items() if users[c.key] == len(self._equal[n]) == 1}
        terms = {pair: _paid(c, shared, alone) for pair, c in pairs.items()}
        self._pairs = _first_of_each(terms)
        for key in alone:
            del code[key]
        once = [*(("code", k) for k in code), *(("array", k) for k in shared)]
        columns: dict[Hashable, int] = {key: len(self._pairs) + n for n, key in enumerate(once)}
        chosen = [terms[pair] for pair in self._pairs]
        self._needs = [(pair, columns[key]) for pair, c in enumerate(chosen) for key in c.needs]
        counts = [len(self._equal[n]) for n, _ in self._pairs]
        self.upper: Array = np.array([*counts, *([1] * (len(code) + len(shared)))], float)
        none = np.zeros(len(shared))
        self.code: Array = np.concatenate([[c.code for c in chosen], list(code.values()), none]).astype(float)
        self.flash: Array = np.concatenate([[c.flash for c in chosen], list(code.values()), list(shared.values())]).astype(float)
        self.instructions: Array = np.concatenate([[c.instructions for c in chosen], np.zeros(len(code)), none]).astype(float)

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


def _shared(candidates: Iterable[tuple[int, Candidate]]) -> dict[Hashable, int]:
    """The bytes of arrays that candidates of different layers share; `candidates` come with the number of their layer."""
    users: dict[Hashable, set[int]] = {}
    sizes: dict[Hashable, int] = {}
    for i, c in candidates:
        for a in c.arrays:
            users.setdefault(a.key, set()).add(i)
            sizes[a.key] = a.nbytes
    return {key: size for key, size in sizes.items() if len(users[key]) > 1}


def _own(candidate: Candidate, shared: Mapping[Hashable, int]) -> int:
    """Bytes of constants used by this layer only."""
    return candidate.constants - distinct_bytes(a for a in candidate.arrays if a.key in shared)


def _terms(candidate: Candidate, shared: Mapping[Hashable, int]) -> tuple[Hashable, ...]:
    """Everything that the program uses of a candidate."""
    arrays = frozenset(a.key for a in candidate.arrays if a.key in shared)
    return candidate.instructions, _own(candidate, shared), candidate.key, arrays


@dataclass(frozen=True, slots=True)
class _Paid:
    """The cost of a candidate wherever it is chosen; `needs`: the keys of code and arrays that count once for all."""

    instructions: int
    flash: int
    code: int
    needs: tuple[Hashable, ...]


def _paid(candidate: Candidate, shared: Mapping[Hashable, int], alone: Container[Hashable]) -> _Paid:
    """The cost of a candidate; if it is the only user of its code (`alone`), the code needs no column of its own."""
    code = candidate.code if candidate.key in alone else 0
    keys = [("array", a.key) for a in candidate.arrays if a.key in shared]
    needs = dict.fromkeys(keys if candidate.key in alone else [("code", candidate.key), *keys])
    return _Paid(candidate.instructions, _own(candidate, shared) + code, code, tuple(needs))


def _first_of_each(paid: Mapping[tuple[int, int], _Paid]) -> list[tuple[int, int]]:
    """Of a layer's candidates with the same cost only the first, as the search could choose any of them."""
    first: dict[Hashable, tuple[int, int]] = {}
    for pair, terms in paid.items():
        first.setdefault((pair[0], terms), pair)
    return list(first.values())


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


def _largest(pairs: Iterable[tuple[Hashable, int]]) -> dict[Hashable, int]:
    """The largest number per key, in the order in which keys first appear."""
    largest: dict[Hashable, int] = {}
    for key, number in pairs:
        largest[key] = max(largest.get(key, 0), number)
    return largest
