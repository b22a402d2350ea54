"""A model before its kernels are chosen, and what is kept of it between choices."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from aot.executor.cascade.items import Items
from aot.executor.lowered import LoweredModule
from aot.executor.select.selection import Candidate
from aot.relay.expr import Function


@dataclass(frozen=True, slots=True)
class Draft:
    """The calls of a model in their order, with the group and all kernels of each."""

    lowered: LoweredModule
    functions: tuple[Function, ...]
    found: tuple[Sequence[Candidate], ...]


@dataclass(frozen=True, slots=True)
class Known:
    """What was made for one model and target, and is kept for the next policy with the same `kernels`.

    `lowered` by id of the group's function, name of the implementation and key of its code: the function (its id stays its own),
    the candidate.  `drafts` and `items` by what of the policy they depend on.
    """

    lowered: dict[tuple[int, str, str], tuple[Function, Candidate]] = field(default_factory=dict)
    drafts: dict[Hashable, Draft] = field(default_factory=dict)
    items: dict[Hashable, Items] = field(default_factory=dict)
