"""interleave_concat: channel shuffles behind concatenations, by hand and drawn."""

from __future__ import annotations

from collections.abc import Sequence

import hypothesis.strategies as st
import numpy as np
import pytest

from aot.ir.type import TensorType
from aot.op import load_all
from aot.relay.construct import constructor
from aot.relay.expr import Expr, Function, Var, const, is_call, make_tuple, post_order, tensor_type
from aot.relay.transform.transposes import interleave_concat
from tests.relay.check import drawn_tests, ops, run

load_all()


def var(name: str = "x", shape: Sequence[int] = (1, 3, 2, 4)) -> Var:
    return Var(name, TensorType(tuple(shape), "int8"))


def op(name: str, *args: object, **attrs: object) -> Expr:
    return constructor(name)(*args, **attrs)


def shuffled(x: Expr, groups: int = 2) -> Expr:
    *outer, channels = tensor_type(x).shape
    box = op("reshape", x, newshape=(int(np.prod(outer)), groups, channels // groups))
    return op("reshape", op("transpose", box, axes=(0, 2, 1)), newshape=tensor_type(x).shape)


def interleaved(*body: Expr) -> Function:
    params = [e for e in post_order(make_tuple(list(body))) if isinstance(e, Var)]
    return run(interleave_concat, Function(tuple(params), body[0] if len(body) == 1 else make_tuple(list(body))))


def joined(*args: Expr) -> Expr:
    return op("concatenate", list(args), axis=len(tensor_type(args[0]).shape) - 1)


def padded(x: Expr, last: int = 0) -> Expr:
    return op("nn.pad", x, pad_width=((0, 0), (1, 0), (1, 1), (last, last)), pad_value=3)


def test_the_transpose_goes() -> None:
    assert "transpose" not in ops(interleaved(shuffled(joined(var(), var("y")))))
    three = [var(n) for n in "abc"]
    assert "transpose" not in ops(interleaved(shuffled(joined(*three), 3)))


def test_through_functions_and_borders() -> None:
    x = op("clip", joined(var(), var("y")), lo=-100, hi=90)
    new = interleaved(shuffled(x), shuffled(padded(x)))
    assert ops(new).count("concatenate") == 1
    assert "transpose" not in ops(new)


@pytest.mark.parametrize(
    "body",
    [
        lambda x, y: [shuffled(joined(x, y), 4)],
        lambda x, y: [shuffled(padded(joined(x, y), 1))],
        lambda x, y: [shuffled(op("concatenate", [x, y], axis=2))],
        lambda x, y: [shuffled(op("bitwise_xor", joined(x, y), const(np.arange(8).astype(np.int8))))],
        lambda x, y: [shuffled(z := joined(x, y)), z],
        lambda x, y: [shuffled(z := joined(x, y)), op("clip", z, lo=0, hi=9)],
        lambda x, y: [shuffled(x)],
    ],
)  # fmt: skip
def test_others_stay(body: object) -> None:
    new = interleaved(*body(var(), var("y")))  # type: ignore[operator]
    assert "transpose" in ops(new)


def test_operands_of_two_widths_stay() -> None:
    body = shuffled(joined(var(shape=(1, 2, 2)), var("y", (1, 2, 4))))
    assert "transpose" in ops(interleaved(body))


@st.composite
def graphs(draw: st.DrawFn) -> Function:
    """Concatenations, functions, borders and shuffles in any order; later ones read any earlier one."""
    shape = (1, *draw(st.lists(st.integers(1, 3), min_size=1, max_size=2)), draw(st.sampled_from([1, 2, 4])))
    params = [var(n, shape) for n in "abc"]
    nodes: list[Expr] = [*params]
    for _ in range(draw(st.integers(2, 9))):
        data = draw(st.sampled_from(nodes[-3:]))
        channels = tensor_type(data).shape[-1]
        kind = draw(st.sampled_from(["join", "shuffle", "shuffle", "clip", "pad"]))
        if kind == "join" and channels <= 16:
            alike = [n for n in nodes if tensor_type(n).shape == tensor_type(data).shape]
            others = draw(st.lists(st.sampled_from(alike), min_size=1, max_size=3))
            nodes.append(joined(data, *others))
        elif kind == "shuffle":
            nodes.append(shuffled(data, draw(st.sampled_from([g for g in (1, 2, 3, 4) if channels % g == 0]))))
        elif kind == "clip":
            nodes.append(op("clip", data, lo=-50, hi=60))
        elif kind == "pad":
            width = [(draw(st.integers(0, 1)), 0) for _ in tensor_type(data).shape]
            nodes.append(op("nn.pad", data, pad_width=tuple(width), pad_value=5))
    result = make_tuple([nodes[-1], draw(st.sampled_from(nodes))])
    return Function(tuple(params), result)


def check_drawn(func: Function) -> None:
    new = run(interleave_concat, func)
    assert count(new, "transpose") <= count(func, "transpose")
    assert count(new, "concatenate") == count(func, "concatenate")


def count(func: Function, name: str) -> int:
    return sum(is_call(e, name) for e in post_order(func.body))


test_drawn, test_drawn_often = drawn_tests(graphs(), check_drawn, few=40)
