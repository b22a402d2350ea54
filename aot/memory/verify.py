"""An independent check of a memory plan: the program is replayed on tagged bytes.

It shares no code with liveness or planner.  Every step tags the bytes of the storages that it writes with their names; a read
must find its name on every byte.  Both sides of a branch are replayed, and a loop until nothing changes.  So an overlap is a
fault only if it destroys a value that is still read.  While a step runs, it may destroy its own operands if it says so
(`Step.distances`) and the plan keeps the distance.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from aot.errors import InternalError, Problem
from aot.memory.liveness import Nested, Step, StorageTrace, nested
from aot.memory.plan import MemoryPlan


class TaggedMemory:
    """Bytes tagged with the name of what they hold, as maximal runs: run i starts at `starts[i]`, tagged `tags[i]` or None."""

    def __init__(self, size: int, starts: Sequence[int] = (0,), tags: Sequence[str | None] = (None,)) -> None:
        self.starts = list(starts)
        self.tags = list(tags)
        self.size = size

    def write(self, start: int, stop: int, tag: str) -> None:
        if start >= stop:
            return
        after = self.tags[bisect_right(self.starts, stop) - 1]
        low, high = bisect_left(self.starts, start), bisect_right(self.starts, stop)
        new_starts, new_tags = [start], [tag]
        if stop < self.size:
            new_starts.append(stop)
            self.starts[low:high], self.tags[low:high] = new_starts, [*new_tags, after]
        else:
            self.starts[low:high], self.tags[low:high] = new_starts, list[str | None](new_tags)

    def read(self, start: int, stop: int) -> Iterator[str | None]:
        """The tags of the runs that overlap the interval."""
        if start < stop:
            yield from self.tags[bisect_right(self.starts, start) - 1 : bisect_left(self.starts, stop)]

    def merged(self, other: TaggedMemory) -> TaggedMemory:
        """What is certain if either history may have happened: the tags on which both agree."""
        starts = sorted({*self.starts, *other.starts})
        pairs = ((self.tags[bisect_right(self.starts, s) - 1], other.tags[bisect_right(other.starts, s) - 1]) for s in starts)
        return TaggedMemory(self.size, starts, [a if a == b else None for a, b in pairs])

    def same(self, other: TaggedMemory) -> bool:
        """Whether both hold the same on every byte."""
        return all(a == b for a, b in zip(self._bytes(other), other._bytes(self), strict=True))

    def _bytes(self, other: TaggedMemory) -> list[str | None]:
        starts = sorted({*self.starts, *other.starts})
        return [self.tags[bisect_right(self.starts, s) - 1] for s in starts]


def verify_plan(program: StorageTrace, plan: MemoryPlan) -> None:
    """Raise E9005 with every fault: an offset outside the workspace, wrong alignment, a value destroyed before it is read."""
    problems = list(_static_faults(program, plan)) or list(_replay_faults(program, plan))
    if problems:
        raise InternalError(*(Problem("E9005", p) for p in problems))


def _static_faults(program: StorageTrace, plan: MemoryPlan) -> Iterator[str]:
    used = set(program.inputs) | set(program.outputs)
    used |= {n for s in program.steps for n in s.reads + s.writes} | {n for pair in program.copies for n in pair if n}
    used |= {name for name in program.conditions if name}
    for s in program.storages:
        if s.name not in plan.offset:
            if s.name in used:
                yield f"{s.name} has no place"
            continue
        at = plan.offset[s.name]
        if at < 0 or at + s.size > plan.size:
            yield f"{s.name} at {at} with {s.size} bytes is outside the workspace of {plan.size} bytes"
        if at % s.align:
            yield f"{s.name} at {at} is not aligned to {s.align} bytes"


def _replay_faults(program: StorageTrace, plan: MemoryPlan) -> Iterator[str]:
    replay = _Replay(program, plan)
    for name in program.inputs:
        replay.write(name)
    for name in program.inputs:
        yield from replay.faults(name, "entry")
    yield from dict.fromkeys(replay.items(nested(program.controls, len(program.steps))))
    for source, target in program.copies:
        if source:
            yield from replay.faults(source, "the end")
        replay.write(target)
    for name in program.outputs:
        yield from replay.faults(name, "the caller")


class _Replay:
    """The workspace while the program runs; after a branch and at the head of a loop, only what is certain on every path."""

    def __init__(self, program: StorageTrace, plan: MemoryPlan) -> None:
        self.program = program
        self.offset = plan.offset
        self.memory = TaggedMemory(max(plan.size, 1))
        self.size = {s.name: s.size for s in program.storages}
        self.scratch = {s.name for s in program.storages if s.kind == "scratch"}
        self.written: frozenset[str] = frozenset()

    def items(self, items: Sequence[int | Nested]) -> Iterator[str]:
        for item in items:
            if isinstance(item, int):
                yield from self.step(item)
            elif item.control.kind == "if":
                yield from self.branch(item)
            else:
                yield from self.loop(item)

    def branch(self, item: Nested) -> Iterator[str]:
        yield from self.condition(item)
        before = self.memory, self.written
        self.memory = self.memory.merged(self.memory)
        yield from self.items(item.first)
        taken = self.memory, self.written
        self.memory, self.written = before
        yield from self.items(item.second)
        self.memory, self.written = self.memory.merged(taken[0]), self.written & taken[1]

    def loop(self, item: Nested) -> Iterator[str]:
        while True:
            head = self.memory.merged(self.memory), self.written
            yield from self.items(item.first)
            yield from self.condition(item)
            end = self.memory.merged(self.memory), self.written
            yield from self.items(item.second)
            again = self.memory.merged(head[0]), self.written & head[1]
            if again[0].same(head[0]) and again[1] == head[1]:
                self.memory, self.written = end
                return
            self.memory, self.written = again

    def condition(self, item: Nested) -> Iterator[str]:
        name = self.program.conditions[item.index]
        if name:
            yield from self.faults(name, f"the condition of the {item.control.kind} at step {item.control.first}")

    def step(self, i: int) -> Iterator[str]:
        step = self.program.steps[i]
        for name in step.reads:
            yield from self.faults(name, f"step {i}")
        # results last: if they may overlap scratch memory, the results must survive
        for name in sorted(step.writes, key=lambda n: n not in self.scratch):
            self.write(name)
        # operands must survive all writes of the step, since a kernel reads while it writes; so must its results
        for name in (*step.reads, *step.writes):
            yield from self.faults(name, f"step {i}", spared=self.may_destroy(name, step))

    def write(self, name: str) -> None:
        self.written |= {name}
        self.memory.write(self.offset[name], self.offset[name] + self.size[name], name)

    def faults(self, name: str, where: str, *, spared: frozenset[str] = frozenset()) -> Iterator[str]:
        """Report `name` if its bytes are not from its last write; bytes overwritten by storages in `spared` are accepted."""
        if name not in self.written:
            yield f"{where} reads {name}, which nothing has written"
            return
        start = self.offset[name]
        names = {t or "nothing" for t in self.memory.read(start, start + self.size[name]) if t != name} - spared
        if names:
            yield f"{where} reads {name}, but part of it was overwritten by {', '.join(sorted(names))}"

    def may_destroy(self, name: str, step: Step) -> frozenset[str]:
        """The storages that the step may write over `name`, given the distances that the plan keeps."""
        kept: dict[str, bool] = {}
        for c in step.distances:
            if c.min_distance is not None and name in (c.a, c.b):
                other = c.b if name == c.a else c.a
                kept[other] = kept.get(other, True) and self.offset[c.b] - self.offset[c.a] >= c.min_distance
        return frozenset(w for w, fine in kept.items() if fine and w in step.writes)
