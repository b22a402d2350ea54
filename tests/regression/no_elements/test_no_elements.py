"""Converters leave constants of no elements in files; the graph may join them with others."""

from __future__ import annotations

import numpy as np

from aot import relay
from aot.relay.expr import tensor_type
from aot.testing import ModelBuilder
from tests.op._differential import check


def test_in_a_model() -> None:
    b = ModelBuilder()
    x, y = b.tensor("x", (3,), "float32"), b.tensor("y", (3,), "float32")
    nothing = b.tensor("nothing", (0,), "float32", data=b"")
    b.op("CONCATENATION", [x, nothing], [y], axis=0, fused_activation_function="NONE")
    check(b.build([x], [y]))


def test_in_python() -> None:
    assert tensor_type(relay.const(np.zeros((0, 4), np.float32))).shape == (0, 4)
