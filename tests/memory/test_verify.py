"""The plan verifier must refuse every plan that destroys a value."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from aot.errors import InternalError
from aot.memory.liveness import Step, Storage, StorageTrace, liveness
from aot.memory.plan import MemoryPlan
from aot.memory.planner import plan
from aot.memory.verify import TaggedMemory, verify_plan
from tests.memory.programs import chain, overlap_in_time, random_program


def refused(program: StorageTrace, offset: dict[str, int], size: int, match: str) -> None:
    with pytest.raises(InternalError, match=match) as caught:
        verify_plan(program, MemoryPlan(offset, size, 0))
    assert {p.code for p in caught.value.problems} == {"E9005"}


def test_overlap_of_input_and_output_of_a_step() -> None:
    refused(chain(10, 10), {"t0": 0, "t1": 9}, 19, "step 0 reads t0, but part of it was overwritten by t1")
    verify_plan(chain(10, 10), MemoryPlan({"t0": 0, "t1": 10}, 20, 20))


def test_value_lost_between_its_writer_and_its_reader() -> None:
    program = StorageTrace(
        (Storage("x", 4), Storage("a", 4), Storage("b", 4), Storage("c", 4)),
        (Step(("x",), ("a",)), Step(("x",), ("b",)), Step(("a", "b"), ("c",))),
        ("x",),
        ("c",),
    )
    refused(program, {"x": 0, "a": 4, "b": 4, "c": 8}, 12, "a, but part of it was overwritten by b")


def test_outside_alignment_and_missing_place() -> None:
    refused(chain(10, 10), {"t0": 0, "t1": 10}, 19, "outside")
    refused(chain(8, 8, align=4), {"t0": 0, "t1": 10}, 32, "not aligned to 4")
    refused(chain(8, 8), {"t0": 0}, 32, "t1 has no place")


def test_read_before_write() -> None:
    program = StorageTrace((Storage("a", 4), Storage("b", 4)), (Step(("a",), ("b",)),), (), ("b",))
    refused(program, {"a": 0, "b": 4}, 8, "nothing has written")


def test_output_overwritten_by_a_copy_at_the_end() -> None:
    program = StorageTrace((Storage("x", 4), Storage("y", 4)), (), ("x",), ("x", "y"), copies=(("x", "y"),))
    refused(program, {"x": 0, "y": 2}, 8, "the caller reads x")


def test_two_inputs_over_each_other() -> None:
    program = StorageTrace((Storage("x", 4), Storage("y", 4)), (), ("x", "y"), ())
    refused(program, {"x": 0, "y": 0}, 4, "entry reads x")


@pytest.mark.parametrize("seed", range(30))
def test_every_forced_overlap_is_found(seed: int) -> None:
    """Moving one buffer over another that is live at the same step is always refused."""
    program = random_program(seed, steps=8)
    buffers = liveness(program)
    good = plan(buffers, effort=1000)
    pairs = [(a, b) for a in buffers for b in buffers if a.name < b.name and a.size and b.size and overlap_in_time(a, b)]
    for a, b in random.Random(seed).sample(pairs, min(5, len(pairs))):
        offset = {**good.offset, a.name: good.offset[b.name]}
        moved = replace(good, offset=offset, size=good.size + 200)
        with pytest.raises(InternalError, match="E9005"):
            verify_plan(program, moved)


def test_tagged_memory_equals_a_plain_array() -> None:
    rng = random.Random(3)
    memory, plain = TaggedMemory(50), [None] * 50
    for i in range(500):
        start, stop = sorted((rng.randint(0, 50), rng.randint(0, 50)))
        memory.write(start, stop, ("t", i))
        plain[start:stop] = [("t", i)] * (stop - start)
        start, stop = sorted((rng.randint(0, 50), rng.randint(0, 50)))
        assert set(memory.read(start, stop)) == set(plain[start:stop])
