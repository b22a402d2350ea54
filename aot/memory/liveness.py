"""From the order of execution to the life of each buffer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from aot.memory.control import Control, spread_over_loops
from aot.memory.plan import BufferInfo, Conflict, Kind, live_together
from aot.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Storage:
    """Memory that the plan must place; `align` in bytes."""

    name: str
    size: int
    align: int = 1
    kind: Kind = "tensor"


@dataclass(frozen=True, slots=True)
class Step:
    """One layer: names that it reads, and names that it writes; scratch memory counts as written.

    `distances` are pairs of these names that may overlap while the layer runs, with the distance that was proven safe for its
    kernel (`Conflict.min_distance`); pairs that are not there keep apart.
    """

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    distances: tuple[Conflict, ...] = ()


@dataclass(frozen=True, slots=True)
class StorageTrace:
    """An order of execution over named memory.

    `inputs` hold values before the first step, `outputs` must hold theirs after the last one.  `views` maps another name to the
    storage whose bytes it stands for (possibly by way of other views).  `copies` happen after the last step, in order:
    (from, to), where an empty `from` means memory outside of the plan.  `controls` are branches and loops over the steps, and
    `conditions` the storage of each one's condition ("": outside of the plan).
    """

    storages: tuple[Storage, ...]
    steps: tuple[Step, ...]
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    views: Mapping[str, str] = field(default_factory=dict)
    copies: tuple[tuple[str, str], ...] = ()
    controls: tuple[Control, ...] = ()
    conditions: tuple[str, ...] = ()


def liveness(program: StorageTrace) -> tuple[BufferInfo, ...]:
    """The interval of steps of each storage, in the program's order; a storage that nothing touches is left out."""
    end = len(program.steps)
    touched: dict[str, list[int]] = {}

    def touch(name: str, step: int) -> None:
        while name in program.views:
            name = program.views[name]
        touched.setdefault(name, []).append(step)

    for name in program.inputs:
        touch(name, -1)
    for i, step in enumerate(program.steps):
        for name in step.reads + step.writes:
            touch(name, i)
    for c, name in zip(program.controls, program.conditions, strict=True):
        if name:
            touch(name, c.first if c.kind == "if" else min(c.middle, c.last - 1))  # decided before that step, and after another
            if c.kind == "while" and not any(name in program.steps[i].writes for i in range(c.first, c.middle)):
                touch(name, c.first)  # computed before, and read again after each iteration
                touch(name, c.last - 1)
    for source, target in program.copies:
        if source:
            touch(source, end)
        touch(target, end)
    for name in program.outputs:
        touch(name, end)
    spans = {name: spread_over_loops(set(steps), program.controls) for name, steps in touched.items()}
    return tuple(BufferInfo(s.name, s.size, s.align, *spans[s.name], s.kind) for s in program.storages if s.name in spans)


def program_conflicts(program: StorageTrace, buffers: Sequence[BufferInfo]) -> tuple[Conflict, ...]:
    """All pairs of buffers that are live at one step, with the distances that the steps allow.

    A distance holds for two buffers whose lives have just that step in common, where what is read is not needed later: it may be
    destroyed while the step runs.
    """
    allowed = _allowed(program, {b.name: b for b in buffers})
    pairs = []
    for a, b in live_together(buffers):
        up, down = allowed.get((a.name, b.name)), allowed.get((b.name, a.name))
        # both directions at once cannot be said, so such a pair keeps apart
        pairs.append((up or down or Conflict(a.name, b.name)) if up is None or down is None else Conflict(a.name, b.name))
    return tuple(pairs)


def _allowed(program: StorageTrace, by_name: Mapping[str, BufferInfo]) -> dict[tuple[str, str], Conflict]:
    """The distances of all steps by pair of storages; the largest one, where a storage is several operands of a step."""
    allowed: dict[tuple[str, str], int] = {}
    for i, step in enumerate(program.steps):
        reads = {_root(program, name) for name in step.reads}
        for c in step.distances:
            a, b = (by_name.get(_root(program, name)) for name in (c.a, c.b))
            if a is None or b is None or a is b or c.min_distance is None:
                continue
            shared = (max(a.first, b.first), min(a.last, b.last))
            if shared == (i, i) and all(x.last == i for x in (a, b) if x.name in reads):
                allowed[a.name, b.name] = max(c.min_distance, allowed.get((a.name, b.name), c.min_distance))
    return {(a, b): Conflict(a, b, distance) for (a, b), distance in allowed.items()}


def _root(program: StorageTrace, name: str) -> str:
    while name in program.views:
        name = program.views[name]
    return name
