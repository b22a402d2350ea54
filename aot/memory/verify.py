"""An independent check of a memory plan: the program is replayed on tagged bytes.

It shares no code with liveness or planner.  Every storage that a step writes leaves its tag on the bytes of its interval; a read
must find the tag of that storage's own last write on each byte.  So an overlap matters exactly if it destroys something that is
still read.  While a step runs, it may destroy what it reads where it says so (`Step.distances`) and the plan keeps the distance.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from aot.errors import InternalError, Problem
from aot.memory.liveness import Step, StorageTrace
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


def verify_plan(program: StorageTrace, plan: MemoryPlan) -> None:
    """Raise E9005 with every fault: a place outside the workspace, a wrong alignment, a value destroyed before it is read."""
    problems = list(_static_faults(program, plan)) or list(_replay_faults(program, plan))
    if problems:
        raise InternalError(*(Problem("E9005", p) for p in problems))


def _static_faults(program: StorageTrace, plan: MemoryPlan) -> Iterator[str]:
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


def _replay_faults(program: StorageTrace, plan: MemoryPlan) -> Iterator[str]:
    replay = _Replay(program, plan)
    for name in program.inputs:
        replay.write(name, -1)
    for name in program.inputs:
        yield from replay.faults(name, "entry")
    scratch = {s.name for s in program.storages if s.kind == "scratch"}
    for i, step in enumerate(program.steps):
        for name in step.reads:
            yield from replay.faults(name, f"step {i}")
        # results last: where they may lie over scratch memory, it is they that must survive
        for name in sorted(step.writes, key=lambda n: n not in scratch):
            replay.write(name, i)
        # what the step reads must survive all of its writes, as a kernel reads while it writes; and so must what it wrote
        for name in (*step.reads, *step.writes):
            yield from replay.faults(name, f"step {i}", spared=replay.may_destroy(name, step))
    for source, target in program.copies:
        if source:
            yield from replay.faults(source, "the end")
        replay.write(target, len(program.steps))
    for name in program.outputs:
        yield from replay.faults(name, "the caller")


class _Replay:
    """The workspace while the program runs."""

    def __init__(self, program: StorageTrace, plan: MemoryPlan) -> None:
        self.views = program.views
        self.offset = plan.offset
        self.memory = TaggedMemory(max(plan.size, 1))
        self.size = {s.name: s.size for s in program.storages}
        self.version: dict[str, int] = {}

    def place(self, name: str) -> tuple[str, int, int]:
        """Storage, first byte and end of a name."""
        seen = 0
        while name in self.views and seen <= len(self.views):
            name, seen = self.views[name], seen + 1
        return name, self.offset[name], self.offset[name] + self.size[name]

    def write(self, name: str, when: int) -> None:
        root, start, stop = self.place(name)
        self.version[root] = when
        self.memory.write(start, stop, (root, when))

    def faults(self, name: str, where: str, *, spared: frozenset[str] = frozenset()) -> Iterator[str]:
        """Whether the bytes of `name` are those of its last write; what a storage of `spared` overwrote counts as right."""
        root, start, stop = self.place(name)
        if root not in self.version:
            yield f"{where} reads {name}, which nothing has written"
            return
        foreign = {t for t in self.memory.read(start, stop) if t != (root, self.version[root])}
        names = {t[0] if t else "nothing" for t in foreign} - spared
        if names:
            yield f"{where} reads {name}, but part of it was overwritten by {', '.join(sorted(names))}"

    def may_destroy(self, name: str, step: Step) -> frozenset[str]:
        """The storages that the step may write over `name` with the distances that the plan keeps."""
        root = self.place(name)[0]
        written = {self.place(w)[0] for w in step.writes}
        kept: dict[str, bool] = {}
        for c in step.distances:
            if c.min_distance is None:
                continue
            (a, low, _), (b, high, _) = self.place(c.a), self.place(c.b)
            if root in (a, b):
                other = b if root == a else a
                kept[other] = kept.get(other, True) and high - low >= c.min_distance
        return frozenset(w for w, fine in kept.items() if fine and w in written)
