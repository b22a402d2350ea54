from __future__ import annotations

from aot.memory.liveness import Step, Storage, StorageTrace, liveness
from aot.memory.plan import BufferInfo


def test_lives_of_inputs_outputs_and_scratch() -> None:
    program = StorageTrace(
        (
            Storage("x", 10, 1, "input"),
            Storage("idle", 3, 1, "input"),
            Storage("a", 20, 4),
            Storage("s", 8, 4, "scratch"),
            Storage("y", 5, 1, "output"),
            Storage("ghost", 9),
        ),
        (Step(("x",), ("a", "s")), Step((), ()), Step(("a",), ("y",))),
        inputs=("x", "idle"),
        outputs=("y",),
    )
    assert liveness(program) == (
        BufferInfo("x", 10, 1, -1, 0, "input"),
        BufferInfo("idle", 3, 1, -1, -1, "input"),
        BufferInfo("a", 20, 4, 0, 2),
        BufferInfo("s", 8, 4, 0, 0, "scratch"),
        BufferInfo("y", 5, 1, 2, 3, "output"),
    )


def test_what_is_copied_at_the_end_lives_until_then() -> None:
    program = StorageTrace(
        (Storage("x", 4), Storage("y", 4), Storage("z", 4)), (Step(("x",), ("y",)),), ("x",), ("y", "z"), copies=(("x", "z"),)
    )
    assert [(b.name, b.first, b.last) for b in liveness(program)] == [("x", -1, 1), ("y", 0, 1), ("z", 1, 1)]
