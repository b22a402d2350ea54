"""Loops over TensorFlow's lists of tensors, as recurrent layers have them with SELECT_TF_OPS, compile as plain tensors."""

from __future__ import annotations

import numpy as np
import pytest

from aot.driver.build import build, compile_model
from aot.errors import AotError
from aot.frontend.choice import Choice
from aot.frontend.specialize import specialize
from aot.frontend.tflite import check_model
from aot.runtime.module import load
from aot.testing import HAVE_LITERT
from aot.testing.text_model import text_model
from tests.converter.judge import by_reference, same, steps_for

LOOP = """
in x float32[4,1,3]
const zero int32[] data=0
const steps int32[] data=4
const element int32[2] data=-1,3
const h float32[1,3] data=0.5
tensor list variant[]
tensor read variant[]
tensor t int32[]
tensor last_list variant[]
tensor last_h float32[1,3] STATE
tensor read_last variant[]
out y float32[4,1,3] SIGNATURE
CUSTOM:FlexTensorListReserve element steps -> list
CUSTOM:FlexTensorListFromTensor x element -> read
WHILE zero list h read -> t last_list last_h read_last cond_subgraph_index=1 body_subgraph_index=2
CUSTOM:FlexTensorListStack last_list element -> y
graph condition
in t int32[]
in list variant[]
in h float32[1,3]
in read variant[]
const steps int32[] data=4
out go bool[]
LESS t steps -> go
graph body
in t int32[]
in list variant[]
in h float32[1,3]
in read variant[]
const one int32[] data=1
const element int32[2] data=-1,3
tensor row float32[1,3]
out next int32[]
out written variant[]
out sum float32[1,3]
out read
CUSTOM:FlexTensorListGetItem read t element -> row
ADD row h -> sum
CUSTOM:FlexTensorListSetItem list t sum -> written
ADD t one -> next
"""
"""Sums over time: the layer of a recurrent network without its weights."""
FIXED = LOOP.replace(" SIGNATURE", "").replace(" STATE", "")


OPEN = LOOP.replace("SIGNATURE", "shape_signature=4,-1,3").replace("STATE", "shape_signature=-1,3")


def model(text: str = FIXED) -> bytes:
    return text_model(text)


def test_a_list_is_a_tensor() -> None:
    """Each step's sum, in the place of the step."""
    x = np.arange(12, dtype=np.float32).reshape(4, 1, 3)
    found = load(build(model(), target="host", name="m")).run([x])
    assert np.array_equal(found[0], np.cumsum(x, axis=0) + np.float32(0.5))


def test_an_open_batch_is_one() -> None:
    """The converter leaves the batch open in what a list holds, too."""
    x = np.ones((4, 1, 3), np.float32)
    found = load(build(model(OPEN), target="host", name="m")).run([x])
    assert np.array_equal(found[0], np.cumsum(x, axis=0) + np.float32(0.5))


@pytest.mark.skipif(not HAVE_LITERT, reason="ai-edge-litert is not installed")
def test_the_reference_runs_it() -> None:
    """The file that is compiled has builtin operators only, so LiteRT is an independent reference."""
    steps = steps_for(model(), 3)
    host = load(build(model(), target="host", name="m"))
    assert same([host.run(s.inputs) for s in steps], by_reference(specialize(model()), steps))


def test_the_list_is_not_copied_in_the_loop() -> None:
    """One list of four rows, and not a second one for each step's writing."""
    workspace = compile_model(model(), name="m").artifact.metadata["workspace"]["size"]
    rows = 4 * 3 * 4
    assert workspace < 3 * rows, "the input, the list, and less than a further list"


REFUSED = {
    "push": (FIXED.replace("FlexTensorListReserve", "FlexEmptyTensorList"), "E1262", "FlexEmptyTensorList"),
    "length": (
        FIXED.replace("const steps int32[] data=4\nconst element", "in steps int32[]\nconst element"),
        "E1263",
        "number of",
    ),
    "extents": (FIXED.replace("element int32[2] data=-1,3", "element int32[2] data=-1,5"), "E1263", "[3, 5]"),
    "types": (FIXED.replace("in x float32[4,1,3]", "in x int32[4,1,3]"), "E1262", "float32"),
    "rows": (FIXED.replace("tensor row float32[1,3]", "tensor row float32[2,3]"), "E1263", "[1, 2]"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    """One error that names the operator and says how to convert; nothing of tensors of type variant."""
    text, code, words = REFUSED[name]
    problems = check_model(model(text))
    assert problems[0].code == code
    assert words in problems[0].message
    assert "unroll=True" in problems[0].message
    assert "TensorList" in problems[0].where
    assert "E1218" not in {p.code for p in problems}


def test_other_operators_of_tensorflow_are_named_alone() -> None:
    """Lists are no reason for a refusal where something else is."""
    text = FIXED.replace("ADD row h -> sum", "CUSTOM:FlexErf row -> sum")
    problems = check_model(model(text))
    assert [p.code for p in problems] == ["E1211"]
    assert "FlexErf" in problems[0].message
    assert "TensorList" not in problems[0].message


def test_a_damaged_file_is_refused_with_a_code() -> None:
    """Bytes changed at random: a model or coded problems."""
    whole, rng = bytearray(model()), np.random.default_rng(1)
    for _ in range(150):
        data = bytearray(whole)
        for position in rng.integers(8, len(data), 3):
            data[position] = rng.integers(256)
        try:
            found = specialize(bytes(data), Choice())
        except AotError:
            continue
        assert all(p.code != "E1124" for p in check_model(found))
