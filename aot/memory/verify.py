"""An independent check of a memory plan: the program is replayed on tagged bytes.

It shares no code with liveness or planner.  Every storage that a step writes leaves its tag on the bytes of its interval; a read
must find the tag of that storage's own last write on each byte.  So an overlap matters exactly if it destroys something that is
still read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from aot.errors import InternalError, Problem
from aot.memory.liveness import Program
from aot.memory.plan import MemoryPlan

Tag = tuple[str, int]


class TaggedMemory:
    """Bytes with one tag each, held as maximal runs: `starts[i]` begins the run that has `tags[i]`."""

    def __init__(self, size: int) -> None:
        self.starts = [0]
        self.tags: list[Tag | None] = [None]
        self.size = size

    def write(self, start: int, stop: int, tag: Tag) -> None:
        if start >= stop:
            return
        after = self.tags[bisect_right(self.starts, stop) - 1]
        low, high = bisect_left(self.starts, start), bisect_right(self.starts, stop)
        new_starts, new_tags = [start], [tag]
        if stop < self.size:
            new_starts.append(stop)
            self.starts[low:high], self.tags[low:high] = new_starts, [*new_tags, after]
        else:
            self.starts[low:high], self.tags[low:high] = new_starts, list[Tag | None](new_tags)

    def read(self, start: int, stop: int) -> Iterator[Tag | None]:
        """The tags of the runs that the interval touches."""
        if start < stop:
            yield from self.tags[bisect_right(self.starts, start) - 1 : bisect_left(self.starts, stop)]


def verify_plan(program: Program, plan: MemoryPlan) -> None:
    """Raise E9005 with every fault: a place outside the workspace, a wrong alignment, a value destroyed before it is read."""
    problems = list(_static_faults(program, plan)) or list(_replay_faults(program, plan))
    if problems:
        raise InternalError(*(Problem("E9005", p) for p in problems))


def _static_faults(program: Program, plan: MemoryPlan) -> Iterator[str]:
    used = set(program.inputs) | set(program.outputs)
    used |= {n for s in program.steps for n in s.reads + s.writes} | {n for pair in program.copies for n in pair if n}
    used |= {program.views[n] for n in used & set(program.views)}
    for s in program.storages:
        if s.name not in plan.offset:
            if s.name in used:
                yield f"{s.name} has no place"
            continue
        at = plan.offset[s.name]
        if at < 0 or at + s.size > plan.size:
            yield f"{s.name} at {at} with {s.size} bytes lies outside of the workspace of {plan.size} bytes"
        if at % s.align:
            yield f"{s.name} at {at} is not aligned to {s.align} bytes"


def _replay_faults(program: Program, plan: MemoryPlan) -> Iterator[str]:
    memory = TaggedMemory(max(plan.size, 1))
    size = {s.name: s.size for s in program.storages}
    version: dict[str, int] = {}

    def place(name: str) -> tuple[str, int, int]:
        seen = 0
        while name in program.views and seen <= len(program.views):
            name, seen = program.views[name], seen + 1
        return name, plan.offset[name], plan.offset[name] + size[name]

    def write(name: str, when: int) -> None:
        root, start, stop = place(name)
        version[root] = when
        memory.write(start, stop, (root, when))

    def faults(name: str, where: str) -> Iterator[str]:
        root, start, stop = place(name)
        if root not in version:
            yield f"{where} reads {name}, which nothing has written"
            return
        foreign = {t for t in memory.read(start, stop) if t != (root, version[root])}
        if foreign:
            names = ", ".join(sorted({t[0] if t else "nothing" for t in foreign}))
            yield f"{where} reads {name}, but part of it was overwritten by {names}"

    for name in program.inputs:
        write(name, -1)
    for name in program.inputs:
        yield from faults(name, "entry")
    for i, step in enumerate(program.steps):
        for name in step.reads:
            yield from faults(name, f"step {i}")
        for name in step.writes:
            write(name, i)
        # what the step reads must survive all of its writes, as a kernel reads while it writes; and so must what it wrote
        for name in (*step.reads, *step.writes):
            yield from faults(name, f"step {i}")
    for source, target in program.copies:
        if source:
            yield from faults(source, "the end")
        write(target, len(program.steps))
    for name in program.outputs:
        yield from faults(name, "the caller")
