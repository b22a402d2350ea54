"""Random and model-like programs for the planner."""

from __future__ import annotations

import random

from aot.memory.liveness import Step, Storage, StorageTrace
from aot.memory.plan import BufferInfo


def chain(*sizes: int, align: int = 1) -> StorageTrace:
    """A network without branches: tensor i is made from tensor i - 1."""
    storages = tuple(Storage(f"t{i}", s, align) for i, s in enumerate(sizes))
    steps = tuple(Step((f"t{i}",), (f"t{i + 1}",)) for i in range(len(sizes) - 1))
    return StorageTrace(storages, steps, ("t0",), (f"t{len(sizes) - 1}",))


def random_program(seed: int, *, steps: int = 20) -> StorageTrace:
    """Branches, several inputs and outputs, scratch memory, empty buffers, mixed alignments."""
    rng = random.Random(seed)
    storages = [Storage(f"in{i}", rng.randint(1, 60), rng.choice([1, 4]), "input") for i in range(rng.randint(1, 2))]
    names = [s.name for s in storages]
    made: list[Step] = []
    for i in range(rng.randint(1, steps)):
        reads = tuple({rng.choice(names[-6:]) for _ in range(rng.randint(1, 3))})
        writes = [f"t{i}"]
        storages.append(Storage(f"t{i}", rng.choice([0, *range(1, 100)]), rng.choice([1, 1, 4, 8])))
        if rng.random() < 0.3:
            storages.append(Storage(f"s{i}", rng.randint(1, 40), 4, "scratch"))
            writes.append(f"s{i}")
        made.append(Step(reads, tuple(writes)))
        names.append(f"t{i}")
        if rng.random() < 0.2:  # is read more often
            names.append(f"t{i}")
    inputs = tuple(s.name for s in storages if s.kind == "input")
    outputs = tuple(dict.fromkeys(rng.choice(names) for _ in range(rng.randint(1, 2))))
    copies: tuple[tuple[str, str], ...] = ()
    if rng.random() < 0.3:
        storages.append(Storage("copy", rng.randint(1, 20), 1, "output"))
        copies = ((rng.choice(["", names[-1]]), "copy"),)
        outputs += ("copy",)
    return StorageTrace(tuple(storages), tuple(made), inputs, outputs, copies)


def overlap_in_time(a: BufferInfo, b: BufferInfo) -> bool:
    return a.first <= b.last and b.first <= a.last
