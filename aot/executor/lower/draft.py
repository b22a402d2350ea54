"""A model before its kernels are chosen, and what is kept of it between choices."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import field

from aot.executor.cascade.items import Items
from aot.executor.lower.groups import Accepted
from aot.executor.lowered import LoweredModule
from aot.executor.select.config import PlanConfig, SelectionConfig
from aot.executor.select.selection import Candidate, Stored
from aot.ir.module import IRModule
from aot.relay.expr import Function
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.function import PrimFunc
from aot.topi.strategy import Group, OpImplementation


@dataclass(frozen=True, slots=True)
class KnownLayer:
    """A group, the kernels that accept it, its weights and biases, the key of its function, and its candidates.

    These are by implementation and kind of their code's key.
    """

    group: Group
    accepting: tuple[OpImplementation, ...]
    weights: tuple[Stored, ...]
    key: bytes | None = None
    lowered: dict[tuple[str, str], Candidate] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Known:
    """What was made for one model and target, and is kept for the next config with the same `kernels`.

    `layers` by id of the function: it (its id stays its own), and what is known of its layer, which equal functions share.
    `by_key`: the same by name and key of the function.  `drafts` and `items` by what of the config they depend on.
    `functions`: the first of each that are equal, by what is cheap to compare.  `accepted`: which kernels take a group.
    """

    layers: dict[tuple[int, str], tuple[Function, KnownLayer]] = field(default_factory=dict)
    by_key: dict[tuple[str, bytes], KnownLayer] = field(default_factory=dict)
    drafts: dict[Hashable, Draft] = field(default_factory=dict)
    items: dict[Hashable, Items] = field(default_factory=dict)
    functions: dict[Hashable, list[PrimFunc]] = field(default_factory=dict)
    accepted: Accepted = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedModule(IRModule):
    """A relay main whose calls are those of fused functions, and what it is to be lowered for."""

    target: Target
    config: SelectionConfig = field(default_factory=SelectionConfig)
    planning: PlanConfig = field(default_factory=PlanConfig)
    known: Known = field(default_factory=Known)

    @property
    def main(self) -> Function:
        func = self["main"]
        assert isinstance(func, Function)
        return func


@dataclass(frozen=True, slots=True)
class Draft(LoweredModule):
    """The calls of a model in their order with the preferred kernel of each; `groups` and `found`: the fused functions of the
    calls, and all their kernels.
    """

    groups: tuple[Function, ...] = ()
    found: tuple[Sequence[Candidate], ...] = ()
    key: Hashable = None
    known: Known = field(default_factory=Known)
