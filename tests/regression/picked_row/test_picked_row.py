"""STRIDED_SLICE that picks a position known at run time, as x[t] in a loop of one's own: it was refused (E1204, E1213)."""

from __future__ import annotations

import numpy as np
import pytest

from aot.driver.build import build
from aot.frontend.tflite import check_model
from aot.runtime.module import load
from aot.testing import HAVE_LITERT
from aot.testing.text_model import text_model
from tests.converter.judge import Step, by_reference, same

ROW = """
in x float32[4,2,3]
in t int32[]
const one int32[] data=1
const step int32[1] data=1
tensor next int32[]
tensor begin int32[1]
tensor end int32[1]
out y float32[2,3]
PACK t -> begin axis=0 values_count=1
ADD t one -> next
PACK next -> end axis=0 values_count=1
STRIDED_SLICE x begin end step -> y shrink_axis_mask=1
"""
ELEMENT = """
in x float32[4,2,3]
in begin int32[2]
const ones int32[2] data=1,1
tensor end int32[2]
out y float32[3]
ADD begin ones -> end
STRIDED_SLICE x begin end ones -> y shrink_axis_mask=3
"""
X = np.arange(24, dtype=np.float32).reshape(4, 2, 3)


@pytest.mark.parametrize("t", [0, 2, 3, -1, -4])
def test_a_row(t: int) -> None:
    """From the end, too."""
    host = load(build(text_model(ROW), target="host", name="m"))
    found = host.run([X, np.array(t, np.int32)])
    assert np.array_equal(found[0], X[t])


@pytest.mark.parametrize("t", [4, 100, -5, -(2**31), 2**31 - 1])
def test_outside(t: int) -> None:
    """Nothing is read beside the tensor: some row comes out."""
    found = load(build(text_model(ROW), target="host", name="m")).run([X, np.array(t, np.int32)])
    assert any(np.array_equal(found[0], row) for row in X)


@pytest.mark.skipif(not HAVE_LITERT, reason="ai-edge-litert is not installed")
@pytest.mark.parametrize("begin", [(0, 0), (3, 1), (2, 0)])
def test_an_element(begin: tuple[int, int]) -> None:
    """Two dimensions at once, as LiteRT has it."""
    model, inputs = text_model(ELEMENT), [X, np.array(begin, np.int32)]
    found = load(build(model, target="host", name="m")).run(inputs)
    assert same([found], by_reference(model, [Step(None, inputs)]))


def test_others_are_refused_as_before() -> None:
    """A slice whose length only the run knows."""
    problems = check_model(
        text_model(ROW.replace("shrink_axis_mask=1", "shrink_axis_mask=0").replace("out y float32[2,3]", "out y float32[1,2,3]"))
    )
    assert [p.code for p in problems] == ["E1213"]
