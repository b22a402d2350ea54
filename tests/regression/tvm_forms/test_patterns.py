"""`is_op(NAME)` matches what `relay.NAME` makes, whatever the element type, and refuses what would never match."""

from __future__ import annotations

import numpy as np
import pytest

from aot import relay
from aot.errors import UsageError
from aot.relay.dataflow_pattern import FORMS, is_op, wildcard
from aot.relay.expr import Expr

IMAGE = {dtype: relay.var("x", shape=(1, 4, 4, 2), dtype=dtype) for dtype in ("int8", "float32")}
ROW = {dtype: relay.var("x", shape=(1, 8), dtype=dtype) for dtype in ("int8", "float32")}


def made(name: str, dtype: str) -> Expr:
    """A call that the constructor makes."""
    weights = np.ones((2, 3, 3, 2), dtype)
    if name in ("nn.conv2d", "nn.depthwise_conv2d"):
        return getattr(relay.nn, name.removeprefix("nn."))(IMAGE[dtype], weights if name == "nn.conv2d" else weights[:1])
    if name == "nn.dense":
        return relay.nn.dense(ROW[dtype], np.ones((3, 8), dtype))
    if name in ("nn.max_pool2d", "nn.avg_pool2d"):
        return getattr(relay.nn, name.removeprefix("nn."))(IMAGE[dtype], 2)
    if name == "clip":
        return relay.clip(ROW[dtype], 0, 6)
    if name == "reshape":
        return relay.reshape(ROW[dtype], (2, 4))
    return getattr(relay, name)(ROW[dtype], ROW[dtype])


@pytest.mark.parametrize("dtype", ["int8", "float32"])
@pytest.mark.parametrize(
    "name",
    ["nn.conv2d", "nn.depthwise_conv2d", "nn.dense", "nn.max_pool2d", "nn.avg_pool2d", "clip", "reshape", "maximum"],
)
def test_a_name_matches_what_its_constructor_makes(name: str, dtype: str) -> None:
    assert is_op(name).match(made(name, dtype))
    assert is_op(name).has_dtype("int8" if dtype == "float32" else "float32").match(made(name, dtype)) is False


def test_forms_are_operators() -> None:
    for name, forms in FORMS.items():
        assert is_op(*forms).ops[: len(forms)] == is_op(name).ops


@pytest.mark.parametrize("name", ["bogus", "nn.conv9d", "nn.relu"])
def test_a_name_that_no_operator_has(name: str) -> None:
    with pytest.raises(UsageError, match=f"E5101 test_patterns.py:.*there is no operator '{name}'"):
        is_op(name)(wildcard())


def test_conditions_that_never_hold() -> None:
    with pytest.raises(UsageError, match=r"E5106.*stride is no attribute.*strides"):
        is_op("nn.conv2d").has_attr({"stride": 1})
    with pytest.raises(UsageError, match=r"E5106.*no element type 'int9'"):
        is_op("nn.conv2d")(wildcard(), wildcard()).has_dtype("int9")
    assert is_op("nn.conv2d", "nn.dense").has_attr({"strides": (1, 1)}).match(made("nn.conv2d", "int8"))
