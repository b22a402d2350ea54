"""A tensor in another order of its elements: what any chain of transposes and reshapes does, as one transpose of its atoms.

The source, row by row, is a box of `sizes` (none of them 1), the atoms; the result is that box with its dimensions in `order`,
row by row again.  Shapes at both ends are views and belong to nobody: a reshape changes nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from aot.support.dataclass import dataclass

Groups = tuple[tuple[int, ...], ...]
"""For each dimension of a shape the places of the atoms that it consists of."""


@dataclass(frozen=True, slots=True)
class Rearrangement:
    """`order[i]` is the atom of the source that is the result's i-th."""

    sizes: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def is_identity(self) -> bool:
        return self.order == tuple(range(len(self.order)))

    @property
    def moved(self) -> tuple[int, ...]:
        """The sizes in the result's order."""
        return tuple(self.sizes[a] for a in self.order)

    @property
    def elements(self) -> int:
        return prod(self.sizes)

    @staticmethod
    def of(shape: Sequence[int], axes: Sequence[int]) -> Rearrangement:
        """That of one transpose."""
        kept = [a for a, n in enumerate(shape) if n != 1]
        return Rearrangement(tuple(shape[a] for a in kept), tuple(kept.index(a) for a in axes if shape[a] != 1)).simplified()

    def simplified(self) -> Rearrangement:
        """With as few atoms as possible: neighbours that stay neighbours are one."""
        runs: list[list[int]] = []
        for a in self.order:
            if runs and runs[-1][-1] + 1 == a:
                runs[-1].append(a)
            else:
                runs.append([a])
        by_source = sorted(runs)
        return Rearrangement(
            tuple(prod(self.sizes[a] for a in run) for run in by_source), tuple(by_source.index(r) for r in runs)
        )

    def then(self, shape: Sequence[int], axes: Sequence[int]) -> Rearrangement | None:
        """This, then a transpose of the result in `shape`; None where its dimensions cut atoms in a way that no box has."""
        fine = self.split_result(shape)
        if fine is None:
            return None
        whole, groups = fine
        return Rearrangement(whole.sizes, tuple(whole.order[i] for a in axes for i in groups[a])).simplified()

    def split_result(self, shape: Sequence[int]) -> tuple[Rearrangement, Groups] | None:
        """The same with atoms of which each belongs to one dimension of the result, and which atoms (places in `order`) do."""
        parts = refine(self.moved, shape)
        if parts is None:
            return None
        first: dict[int, int] = {}
        sizes: list[int] = []
        count = {a: len(parts[0][i]) for i, a in enumerate(self.order)}
        pieces = {a: parts[0][i] for i, a in enumerate(self.order)}
        for a in range(len(self.sizes)):
            first[a] = len(sizes)
            sizes += pieces[a]
        order = tuple(first[a] + i for a in self.order for i in range(count[a]))
        return Rearrangement(tuple(sizes), order), _places(parts[1])

    def split_source(self, shape: Sequence[int]) -> tuple[Rearrangement, Groups] | None:
        """The same for the dimensions of the source: each of its groups names atoms."""
        found = self.inverse().split_result(shape)
        return None if found is None else (found[0].inverse(), found[1])

    def inverse(self) -> Rearrangement:
        back = sorted(range(len(self.order)), key=self.order.__getitem__)
        return Rearrangement(self.moved, tuple(back))

    def without(self, atoms: frozenset[int]) -> Rearrangement:
        """Where these atoms have been reduced to nothing."""
        kept = [a for a in range(len(self.sizes)) if a not in atoms]
        return Rearrangement(tuple(self.sizes[a] for a in kept), tuple(kept.index(a) for a in self.order if a not in atoms))

    def resized(self, atom: int, size: int) -> Rearrangement:
        """With another extent of one atom, which may become 1."""
        sizes = tuple(size if a == atom else n for a, n in enumerate(self.sizes))
        return Rearrangement(sizes, self.order) if size != 1 else Rearrangement(sizes, self.order).without(frozenset({atom}))


def refine(a: Sequence[int], b: Sequence[int]) -> tuple[list[list[int]], list[list[int]]] | None:
    """The factors of each dimension of two shapes of as many elements, which are the same factors one after the other.

    None if there are none: of [2, 3] and [3, 2], for instance.
    """
    parts: tuple[list[list[int]], list[list[int]]] = ([[] for _ in a], [[] for _ in b])
    shapes, at, left = (a, b), [0, 0], [1, 1]
    while True:
        for side in (0, 1):
            while left[side] == 1 and at[side] < len(shapes[side]):
                left[side] = shapes[side][at[side]]
                at[side] += 1
        if left == [1, 1]:
            return parts
        factor = min(left)
        if factor == 1 or left[0] % factor or left[1] % factor:
            return None
        for side in (0, 1):
            parts[side][at[side] - 1].append(factor)
            left[side] //= factor


def _places(parts: Sequence[Sequence[int]]) -> Groups:
    found, place = [], 0
    for group in parts:
        found.append(tuple(range(place, place + len(group))))
        place += len(group)
    return tuple(found)
