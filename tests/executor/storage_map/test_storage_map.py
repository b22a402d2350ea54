"""Where every tensor of a small module lies, in an arena and with the caller's own tensors."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from aot.executor.config import Io
from aot.executor.lowered import LoweredModule
from aot.executor.storage_map import StorageInfo, make_layout
from tests.executor.nets import odd_outputs, small_net


def with_io(lowered: LoweredModule, io: Io) -> LoweredModule:
    return replace(lowered, planning=replace(lowered.planning, io=io))


def test_an_arena_holds_inputs_and_outputs() -> None:
    lowered = small_net()
    found = make_layout(with_io(lowered, "arena"))
    assert {p.where for p in found.places.values()} == {"workspace"}
    assert [len(names) for names in found.scratch] == [1, 1, 0]
    assert found.output_slots == (found.places[lowered.outputs[0]],)
    assert not found.copies
    view = lowered.calls[1].inputs[0]
    assert lowered.root(view) in found.places
    assert view not in found.places, "a view has no storage of its own"


def test_the_callers_tensors_take_no_workspace() -> None:
    lowered = small_net()
    found = make_layout(with_io(lowered, "user"))
    assert found.places[lowered.inputs[0]] == StorageInfo("input", index=0)
    assert found.output_slots == (StorageInfo("output", index=0),)
    assert set(make_layout(with_io(lowered, "arena")).plan.offset) - set(found.plan.offset) == {"input/x", "StatefulCall:0"}


@pytest.mark.parametrize("io", ["arena", "user"])
def test_what_is_alive_together_lies_apart_or_at_a_safe_distance(io: str) -> None:
    found = make_layout(with_io(small_net(), io))  # type: ignore[arg-type]
    buffers = [b for b in found.buffers if b.size]
    apart = 0
    for a, b in itertools.combinations(buffers, 2):
        if a.first <= b.last and b.first <= a.last:
            start, other = found.plan.offset[a.name], found.plan.offset[b.name]
            apart += start + a.size <= other or other + b.size <= start
    assert apart
    assert all(found.plan.offset[b.name] % b.align == 0 for b in buffers)


@pytest.mark.parametrize("io", ["arena", "user"])
def test_results_that_lie_elsewhere_are_copied(io: str) -> None:
    """Outputs that are one tensor twice, a view of it, an input, a constant, and a tensor that is read on."""
    found = make_layout(with_io(odd_outputs(), io))  # type: ignore[arg-type]
    copied = {k for _, k in found.copies}
    assert len(found.output_slots) == 6
    assert 4 in copied, "a constant always is"
    assert copied == ({4} if io == "arena" else {1, 2, 3, 4})
    for place, k in found.copies:
        assert place != found.output_slots[k]
