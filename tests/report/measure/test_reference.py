"""Which engine a model is compared with."""

from __future__ import annotations

import numpy as np
import pytest

from aot.report.measure.reference import OWN, find_reference, trace
from aot.testing import HAVE_LITERT
from tests.op._svdf_models import Svdf, svdf_model

pytestmark = pytest.mark.skipif(not HAVE_LITERT, reason="ai-edge-litert is not installed")


def layer(kind: str) -> bytes:
    return svdf_model(Svdf(kind, batch=1, depth=9, units=3, rank=5, memory=10))


def test_a_model_that_the_reference_would_not_survive() -> None:
    """LiteRT's SVDF writes past the end of an int8 state and aborts the process."""
    found = find_reference(layer("int8-state"), "litert", outputs=1)
    assert found.name == f"{OWN}, as ai-edge-litert treats the int8 state of SVDF as int16 and crashes (--oracle tflm handles it)"
    assert not found.independent
    assert found.outputs([[np.ones((1, 9), np.int8)]])
    assert trace(layer("int8-state"), "litert", [np.ones((1, 9), np.int8)])[0].name == OWN


def test_a_state_that_the_reference_takes() -> None:
    assert find_reference(layer("int8"), "litert", outputs=1).name.startswith("ai-edge-litert")
