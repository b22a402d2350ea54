"""From the order of execution to the life of each buffer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from aot.memory.plan import BufferInfo, Kind


@dataclass(frozen=True, slots=True)
class Storage:
    """Memory that the plan must place; `align` in bytes."""

    name: str
    size: int
    align: int = 1
    kind: Kind = "tensor"


@dataclass(frozen=True, slots=True)
class Step:
    """One layer: names that it reads, and names that it writes; scratch memory counts as written."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """An order of execution over named memory.

    `inputs` hold values before the first step, `outputs` must hold theirs after the last one.  `views` maps another name to the
    storage whose bytes it stands for (possibly by way of other views).  `copies` happen after the last step, in order:
    (from, to), where an empty `from` means memory outside of the plan.
    """

    storages: tuple[Storage, ...]
    steps: tuple[Step, ...]
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    views: Mapping[str, str] = field(default_factory=dict)
    copies: tuple[tuple[str, str], ...] = ()


def liveness(program: Program) -> tuple[BufferInfo, ...]:
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
    for source, target in program.copies:
        if source:
            touch(source, end)
        touch(target, end)
    for name in program.outputs:
        touch(name, end)
    return tuple(
        BufferInfo(s.name, s.size, s.align, min(touched[s.name]), max(touched[s.name]), s.kind)
        for s in program.storages
        if s.name in touched
    )
