"""Functions of one text under one name."""

from __future__ import annotations

import pytest

from aot.driver.build import compile_model
from aot.driver.options import Options
from aot.executor.codegen.link import without_extents
from aot.tir.builder import IRBuilder
from aot.tir.function import PrimFunc
from tests.converter.models import read


def first_three(of: int, name: str) -> PrimFunc:
    b = IRBuilder(name)
    data, out = b.input("data", (of,), "int8"), b.output("out", (3,), "int8")
    with b.for_("i", 3) as i:
        b.store(out, i, data[i])
    return b.finish()


def test_sizes_that_differ_are_none() -> None:
    twelve, nine = first_three(12, "a"), first_three(9, "b")
    assert without_extents([twelve, twelve]) is twelve
    for funcs in ([twelve, nine], [nine, twelve]):
        shared = without_extents(funcs)
        assert [b.is_sized for b in shared.buffers] == [False, True]


def geometry_in(of: int, name: str) -> PrimFunc:
    """Reads how much to do from its constants, whose size and whose scratch memory differ from layer to layer."""
    b = IRBuilder(name)
    data, out = b.input("data", (3,), "int8"), b.output("out", (3,), "int8")
    params, room = b.const("params", (of,), "int8"), b.scratch("room", (of,), "int8")
    b.store(room, 0, data[0] + params[0])
    b.store(out, 0, room[0])
    return b.finish()


def test_sizes_of_constants_and_scratch_memory_too() -> None:
    shared = without_extents([geometry_in(12, "a"), geometry_in(9, "b")])
    assert [(b.name, b.is_sized) for b in shared.buffers] == [
        ("data", True), ("out", True), ("params", False), ("room", False)
    ]  # fmt: skip


@pytest.mark.slow
def test_slices_of_unequal_tensors() -> None:
    """A copy of 3 from 9 numbers at the workspace's end, with the function that copies 3 from 12: E9103 once."""
    model = read("gru_stacked.int8.tflite")
    output = compile_model(model, target="cortex-m55", name="m", options=Options(opt="speed"))
    assert "int8[...]" in output.artifact.files["m_kernels.c"]
