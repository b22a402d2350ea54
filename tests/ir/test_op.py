"""The operator registry: what is asked, what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from aot.errors import UsageError
from aot.ir.op import OP_INFO, VARIABLE, Op, OpPattern, op_info, register_op, reset_op


@dataclass(frozen=True, slots=True)
class Attrs:
    """Of the operators here."""

    n: int = 0


RIGHT: dict[str, Any] = {
    "arguments": [("data", "int8", "the operand")],
    "attrs_type": Attrs,
    "pattern": OpPattern.ELEMWISE,
    "infer_type": lambda types, attrs: types[0],
    "evaluate": lambda x, attrs, out_type: x,
    "doc": "x",
}


@pytest.fixture
def own() -> Iterator[Op]:
    yield register_op("tests.own", 1, **RIGHT)
    if "tests.own" in OP_INFO:
        reset_op("tests.own")


def test_what_is_known(own: Op) -> None:
    assert Op.get("tests.own") == own
    assert "tests.own" in Op.list_op_names()
    assert (own.num_inputs, own.attrs_type, own.arguments[0].name) == (1, Attrs, "data")
    assert own.get_attr("TOpPattern") is OpPattern.ELEMWISE
    assert not own.has_attr("FTe")
    own.set_attr("FTe", len)
    assert own.get_attr("FTe") is len
    with pytest.raises(UsageError, match="E5102"):
        own.set_attr("FTe", len)
    own.set_attr("FTe", max, plevel=11)
    assert own.get_attr("FTe") is max
    own.reset_attr("FTe")
    assert not own.has_attr("FTe")


def test_reset_forgets_everything(own: Op) -> None:
    own.set_attr("FTe", len)
    reset_op("tests.own")
    assert not own.has_attr("FTe")
    with pytest.raises(UsageError, match=r"E5101 test_op\.py:\d+: there is no operator 'tests.own'"):
        op_info("tests.own")
    with pytest.raises(UsageError, match="E5101"):
        reset_op("tests.own")


def test_similar_names_are_offered() -> None:
    with pytest.raises(UsageError, match=r"did you mean .*nn\.conv2d"):
        Op.get("nn.con2d")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "nn conv"}, "needs a dotted name"),
        ({"name": 3}, "needs a dotted name"),
        ({"name": "nn.conv2d"}, "is registered already"),
        ({"num_inputs": 2}, "has num_inputs 2"),
        ({"num_inputs": None}, "has num_inputs None"),
        ({"num_inputs": VARIABLE}, "has num_inputs -1"),
        ({"arguments": [("*xs", "t", "d")], "num_inputs": 1}, "make -1"),
        ({"arguments": [("*xs", "t", "d"), ("y", "t", "d")], "num_inputs": VARIABLE}, "only repeat its last argument"),
        ({"arguments": [("x", "t", "d"), ("x", "t", "d")], "num_inputs": 2}, "two arguments of one name"),
        ({"arguments": [("data", "t")]}, "triples of strings"),
        ({"arguments": [("data", "t", 3)]}, "triples of strings"),
        ({"arguments": 3}, "triples of strings"),
        ({"attrs_type": dict}, "not a dataclass"),
        ({"attrs_type": Attrs()}, "not a dataclass"),
        ({"pattern": 3}, "OpPattern.ELEMWISE"),
        ({"infer_type": None}, "infer_type"),
        ({"infer_type": lambda types: types}, "infer_type"),
        ({"evaluate": "x"}, "evaluate"),
        ({"doc": None}, "doc"),
    ],
)
def test_wrong_registrations(changes: dict[str, Any], message: str) -> None:
    Op.list_op_names()
    given = {"name": "tests.wrong", "num_inputs": 1, **RIGHT, **changes}
    with pytest.raises(UsageError, match=r"E5102 test_op\.py:\d+") as caught:
        register_op(given.pop("name"), given.pop("num_inputs"), **given)
    assert message in str(caught.value)
    assert "tests.wrong" not in OP_INFO
