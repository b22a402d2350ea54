"""Functions of one text under one name."""

from __future__ import annotations

import re

import pytest

from aot.driver.build import build, compile_model
from aot.driver.options import Options
from aot.executor.lower_main import without_extents
from aot.support.names import SIGNIFICANT
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


_IDENTIFIER = re.compile(r"\b[A-Za-z_]\w*")
_NOT_CODE = re.compile(r"/\*.*?\*/|\"[^\"\n]*\"", re.DOTALL)


def check_names(model: bytes, name: str) -> None:
    """No name of the generated C is longer than C tells apart, and what calls a kernel says so by the same name."""
    artifact = build(model, name=name, options=Options(opt="speed"))  # each layer has a function of its own
    code = {file: _NOT_CODE.sub("", text) for file, text in artifact.files.items()}
    found = {word for text in code.values() for word in _IDENTIFIER.findall(text)}
    assert max(map(len, found)) <= SIGNIFICANT, max(found, key=len)
    defined = re.findall(rf"^AOT_KERNEL void ({name}_\w+)\(", code[f"{name}_kernels.c"], re.MULTILINE)
    assert len(set(defined)) == len(defined)
    assert {layer["function"] for layer in artifact.metadata["layers"]} == set(defined)
    assert any("_etc_" in function for function in defined)
    for function in defined:
        assert f"{function}(" in code[f"{name}.c"]


def test_names_of_long_chains_fit() -> None:
    """A step of an LSTM is one function of up to 21 operators, whose names together take 240 characters."""
    check_names(read("lstm_bidirectional.float32.tflite"), "forty_characters_that_some_user_has_made")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["m", "gru_stacked_float32", "forty_characters_that_some_user_has_made"])
@pytest.mark.parametrize("network", ["gru_stacked", "lstm_sequences", "lstm_unrolled"])
def test_names_of_long_chains_fit_in_all_networks(network: str, name: str) -> None:
    check_names(read(f"{network}.float32.tflite"), name)


def test_names_that_fit_are_not_shortened() -> None:
    functions = [layer["function"] for layer in build(read("gru_stacked.float32.tflite"), name="g").metadata["layers"]]
    assert "g_strided_slice_strided_slice_add_sigmoid_multiply_31" in functions
