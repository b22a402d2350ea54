"""Loops over TensorFlow's lists of tensors, as recurrent layers have them with SELECT_TF_OPS, compile as plain tensors."""

from __future__ import annotations

import numpy as np
import pytest

from aot.driver.build import build, compile_model
from aot.driver.options import Options
from aot.errors import AotError
from aot.frontend.formats import Choice
from aot.frontend.tflite import check_model
from aot.frontend.tflite.specialize import specialize
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


STEPS = (
    LOOP.replace("in x float32[4,1,3]", "in x float32[1,1,3] shape_signature=-1,-1,3")
    .replace("const steps int32[] data=4\nconst element", "const element")
    .replace("data=-1,3\nconst h", "data=-1,3\nconst at int32[1] data=0\nconst one int32[1] data=1\nconst h", 1)
    .replace(
        "tensor list",
        "const swap int32[3] data=1,0,2\ntensor turned float32[1,1,3] shape_signature=-1,-1,3\ntensor shape int32[3]\n"
        "tensor steps int32[]\ntensor last_steps int32[]\ntensor list",
        1,
    )
    .replace(
        "CUSTOM:FlexTensorListReserve",
        "TRANSPOSE x swap -> turned\nSHAPE turned -> shape out_type=INT32\n"
        "STRIDED_SLICE shape at one one -> steps shrink_axis_mask=1\nCUSTOM:FlexTensorListReserve",
        1,
    )
    .replace("FromTensor x", "FromTensor turned")
    .replace(
        "WHILE zero list h read -> t last_list last_h read_last",
        "WHILE zero list h read steps -> t last_list last_h read_last last_steps",
    )
    .replace("in read variant[]\nconst steps int32[] data=4\nout go", "in read variant[]\nin steps int32[]\nout go")
    .replace("in read variant[]\nconst one", "in read variant[]\nin steps int32[]\nconst one")
    .replace("out read\n", "out read\nout steps\n")
    .replace("out y float32[4,1,3] SIGNATURE", "out y float32[1,1,3] shape_signature=-1,-1,3")
    .replace("STATE", "shape_signature=-1,3")
)
"""As LOOP, with a number of steps that the graph reads from the shape of its input."""


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_the_number_of_steps_is_chosen(steps: int) -> None:
    """--shape makes the length of lists known, which is computed from it."""
    x = np.arange(3 * steps, dtype=np.float32).reshape(1, steps, 3)
    options = Options(choice=Choice(shapes=(("x", x.shape),)))
    found = load(build(model(STEPS), target="host", name="m", options=options)).run([x])
    assert np.array_equal(found[0], np.cumsum(x.transpose(1, 0, 2), axis=0) + np.float32(0.5))


def test_an_open_number_of_steps_is_asked_for() -> None:
    """The problem is the size of the input, which the user chooses, and not a list."""
    problems = check_model(model(STEPS))
    assert [p.code for p in problems] == ["E1214"]
    assert "--shape x=1,96,3" in problems[0].message


PAIR = """
in x float32[2,3]
const steps int32[] data=2
const any int32[] data=-1
const number int32[0]
const row int32[1] data=3
const first int32[] data=0
const second int32[] data=1
const axis int32[1] data=0
const zeros int32[2] data=0,0
const one_row int32[2] data=1,3
tensor piece float32[1,3]
tensor line float32[3]
tensor sum float32[]
tensor list variant[]
tensor numbers variant[]
tensor rows variant[]
out some float32[2]
out lines float32[2,3]
CUSTOM:FlexTensorListReserve any steps -> list
SLICE x zeros one_row -> piece
RESHAPE piece row -> line
SUM line axis -> sum
CUSTOM:FlexTensorListSetItem list second sum -> numbers
CUSTOM:FlexTensorListSetItem list first line -> rows
CUSTOM:FlexTensorListStack numbers number -> some
CUSTOM:FlexTensorListStack rows row -> lines
"""


def test_one_new_list_of_two_shapes() -> None:
    """The converter makes one list of two that begin alike: here one of numbers and one of rows."""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    some, lines = load(build(model(PAIR), target="host", name="m")).run([x])
    assert some.tolist() == [0, 3]
    assert lines.tolist() == [[0, 1, 2], [0, 0, 0]]


READ = """
in x float32[4,2,3]
const element int32[2] data=2,3
const which int32[3] data=3,0,3
const lead int64[0]
tensor list variant[]
out chosen float32[3,2,3]
out joined float32[8,3]
out each int64[4]
out length int32[]
CUSTOM:FlexTensorListFromTensor x element -> list
CUSTOM:FlexTensorListGather list which element -> chosen
CUSTOM:FlexTensorListConcatV2 list element lead -> joined each
CUSTOM:FlexTensorListLength list -> length
"""


def test_what_else_reads_a_list() -> None:
    """Gather, ConcatV2 and Length."""
    x = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    chosen, joined, each, length = load(build(model(READ), target="host", name="m")).run([x])
    assert np.array_equal(chosen, x[[3, 0, 3]])
    assert np.array_equal(joined, x.reshape(8, 3))
    assert each.tolist() == [2, 2, 2, 2]
    assert int(length.reshape(())) == 4


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
