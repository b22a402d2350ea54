"""The pattern language: what matches, what stands where, rewriting, wrong use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aot import relay
from aot.errors import UsageError
from aot.ir import IRModule
from aot.relay.dataflow_pattern import is_constant, is_op, is_tuple, is_tuple_get_item, is_var, rewrite, wildcard
from aot.relay.expr import Call, Function

X = relay.var("x", shape=(1, 4, 4, 2), dtype="int8")
W = np.ones((3, 1, 1, 2), np.int8)
CONV = relay.nn.conv2d(X, W)
BIASED = relay.nn.bias_add(CONV, np.arange(3, dtype=np.int32))
OUT = relay.qnn.requantize(BIASED, 0.5)


def test_match_and_what_stands_where() -> None:
    data, weight = wildcard(), is_constant()
    conv = is_op("nn.conv2d")(data, weight)
    whole = is_op("qnn.requantize")(is_op("nn.bias_add")(conv, is_constant()))
    match = whole.find(OUT)
    assert match is not None
    assert match[data] is X
    assert match[conv] is CONV
    assert match[whole] is OUT
    assert not whole.match(BIASED)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (is_op("nn.conv2d"), True),
        (is_op("nn.dense"), False),
        (is_op("nn.dense", "nn.conv2d")(wildcard(), wildcard()), True),
        (is_op("nn.conv2d")(wildcard()), False),
        (is_op("nn.conv2d")(is_var("x"), wildcard()), True),
        (is_op("nn.conv2d")(is_var("y"), wildcard()), False),
        (is_op("nn.conv2d")(is_constant(), wildcard()), False),
        (is_op("nn.conv2d")(relay.is_expr(X), wildcard()), True),
        (is_op("nn.conv2d").has_attr({"strides": (1, 1)}), True),
        (is_op("nn.conv2d").has_attr({"strides": (1, 1)})(wildcard(), is_constant()), True),
        (is_op("nn.conv2d").has_attr({"strides": (2, 1)}), False),
        (wildcard().has_dtype("int32"), True),
        (wildcard().has_dtype("int8"), False),
        (wildcard().has_shape((1, 4, 4, 3)), True),
        (wildcard().where(lambda e: e is X), False),
        (is_op("nn.dense") | is_op("nn.conv2d"), True),
        (is_tuple(), False),
    ],
)
def test_forms(pattern: relay.dataflow_pattern.Pattern, expected: bool) -> None:
    assert pattern.match(CONV) is expected


def test_optional_and_alternatives() -> None:
    layer = is_op("qnn.requantize")(wildcard())
    pattern = layer.optional(lambda x: is_op("clip")(x))
    clipped = relay.clip(OUT, 0, 9)
    match = pattern.find(clipped)
    assert match is not None
    assert match[layer] is OUT
    assert pattern.match(OUT)
    assert not pattern.match(BIASED)


def test_one_pattern_twice_is_one_expression() -> None:
    x = wildcard()
    twice = is_op("qnn.add")(x, x)
    scales = {"scales": (1.0, 1.0, 1.0)}
    assert twice.match(relay.qnn.add(X, X, **scales))
    assert not twice.match(relay.qnn.add(X, relay.clip(X, 0, 1), **scales))


def test_operands_of_a_commutative_operator_in_either_order() -> None:
    a = relay.cast(X, "int32")
    pattern = is_op("add")(is_constant(), is_op("cast")(wildcard()))
    assert pattern.match(relay.add(a, 3))
    assert not is_op("subtract")(is_constant(), wildcard()).match(relay.subtract(a, 3))


def test_tuples() -> None:
    pair = relay.make_tuple([X, OUT])
    assert is_tuple([is_var(), is_op("qnn.requantize")]).match(pair)
    assert not is_tuple([is_var()]).match(pair)
    item = relay.get_item(pair, 1)
    assert is_tuple_get_item(is_tuple(), 1).match(item)
    assert is_tuple_get_item(wildcard()).match(item)
    assert not is_tuple_get_item(wildcard(), 0).match(item)


def test_rewrite_replaces_every_place() -> None:
    x = wildcard()
    twice = is_op("clip")(is_op("clip")(x))
    graph = relay.clip(relay.clip(relay.clip(relay.clip(X, 0, 9), 1, 8), 2, 7), 3, 6)
    new = rewrite(twice, lambda match: relay.clip(match[x], 3, 6), graph)
    assert isinstance(new, Call)
    assert new.args[0] is X
    func = IRModule.from_expr(graph)["main"]
    assert isinstance(func, Function)
    assert rewrite(is_op("nn.dense"), lambda match: match.root, func) is func


def test_match_does_not_know_other_patterns() -> None:
    match = is_op("nn.conv2d").find(CONV)
    assert match is not None
    assert wildcard() not in match
    with pytest.raises(UsageError, match="E5106"):
        match[wildcard()]


WRONG: list[Callable[[], Any]] = [
    lambda: is_op(),
    lambda: is_op(3),  # type: ignore[arg-type]
    lambda: is_op("clip")(X),  # type: ignore[arg-type]
    lambda: is_op("clip") | 3,  # type: ignore[operator]
    lambda: is_op("clip").has_attr(3),  # type: ignore[arg-type]
    lambda: is_op("nn.conv2d").has_attr({"no_such": 1}),
    lambda: wildcard().has_dtype("int9"),
    lambda: wildcard().where(3),  # type: ignore[arg-type]
    lambda: wildcard().optional(3),  # type: ignore[arg-type]
    lambda: wildcard().optional(lambda x: 3),  # type: ignore[arg-type, return-value]
    lambda: wildcard().has_dtype("int8")(wildcard()),  # type: ignore[operator]
    lambda: relay.is_expr(3),  # type: ignore[arg-type]
    lambda: is_tuple([3]),  # type: ignore[list-item]
    lambda: rewrite(3, lambda m: m.root, X),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("index", range(len(WRONG)))
def test_wrong_use(index: int) -> None:
    with pytest.raises(UsageError, match=r"E5106 test_dataflow_pattern\.py:\d+"):
        WRONG[index]()
