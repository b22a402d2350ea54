"""sink_transpose: operator by operator, and drawn graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import hypothesis.strategies as st
import numpy as np
import pytest

from aot.ir.type import TensorType
from aot.op import load_all
from aot.op.reduce import ReduceAttrs
from aot.relay.construct import constructor
from aot.relay.expr import Constant, Expr, Function, Var, call, const, is_call, make_tuple, post_order, tensor_type
from aot.relay.transform.transposes import Rearrangement, sink_transpose
from tests.relay.check import drawn_tests, ops, run

load_all()
RNG = np.random.default_rng(3)
FORTH, BACK = (0, 3, 1, 2), (0, 2, 3, 1)
X = (1, 6, 5, 4)


def var(shape: Sequence[int] = X, dtype: str = "float32", name: str = "x") -> Var:
    return Var(name, TensorType(tuple(shape), dtype))


def op(name: str, *args: object, **attrs: object) -> Expr:
    return constructor(name)(*args, **attrs)


def forth(x: Expr) -> Expr:
    return op("transpose", x, axes=FORTH)


def back(x: Expr) -> Expr:
    return op("transpose", x, axes=BACK)


def floats(*shape: int) -> Constant:
    return const(RNG.normal(size=shape).astype(np.float32))


def reduced(kind: str, x: Expr, axes: tuple[int, ...], *, keepdims: bool) -> Expr:
    return call(kind, [x], ReduceAttrs(kind, axes, keepdims))


def sink(*body: Expr) -> Function:
    params = [e for e in post_order(make_tuple(list(body))) if isinstance(e, Var)]
    return run(sink_transpose, Function(tuple(params), body[0] if len(body) == 1 else make_tuple(list(body))))


def moves(func: Function) -> int:
    """Elements that transposes move."""
    found = [e for e in post_order(func.body) if is_call(e, "transpose")]
    kinds = [Rearrangement.of(tensor_type(e.args[0]).shape, e.attrs.axes) for e in found]  # type: ignore[attr-defined]
    return sum(0 if by.is_identity else by.elements for by in kinds)


BETWEEN: dict[str, Callable[[Expr], Expr]] = {
    "unary": lambda x: op("relu", x),
    "pad": lambda x: op("nn.pad", x, pad_width=((0, 0), (0, 0), (2, 1), (1, 0)), pad_value=0.5),
    "channels of a slice": lambda x: op("strided_slice", x, begin=(0, 1, 0, 0), end=(1, 3, 6, 5)),
    "steps of a slice": lambda x: op("strided_slice", x, begin=(0, 0, 1, 0), end=(1, 4, 6, 5), strides=(1, 1, 2, 1)),
    "a constant of each channel": lambda x: op("multiply", x, floats(1, 4, 1, 1)),
    "a constant of each pixel": lambda x: op("add", x, floats(6, 5)),
    "a whole constant": lambda x: op("add", floats(1, 4, 6, 5), x),
    "a number": lambda x: op("subtract", x, floats()),
    "a vector of each channel": lambda x: op("multiply", x, op("reshape", var((4,), name="v"), newshape=(1, 4, 1, 1))),
    "itself": lambda x: op("multiply", x, op("sigmoid", x)),
    "channels joined": lambda x: op("concatenate", [x, op("tanh", x)], axis=1),
    "rows joined": lambda x: op("concatenate", [x, op("tanh", x)], axis=2),
    "without ones": lambda x: op("reshape", op("relu", op("reshape", x, newshape=(4, 6, 5))), newshape=(1, 4, 6, 5)),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_cancels_behind(name: str) -> None:
    assert "transpose" not in ops(sink(back(BETWEEN[name](forth(var())))))


@pytest.mark.parametrize("keepdims", [True, False])
@pytest.mark.parametrize("kind", ["average", "reduce_max", "sum"])
def test_reduction_of_the_image(kind: str, *, keepdims: bool) -> None:
    assert "transpose" not in ops(sink(reduced(kind, forth(var()), (2, 3), keepdims=keepdims)))


def test_reduction_in_another_order_stays() -> None:
    """Floats are added column by column there."""
    x = op("transpose", var(), axes=(0, 3, 2, 1))
    assert ops(sink(reduced("average", x, (2, 3), keepdims=False))) == ["transpose", "average"]


def test_gelu_stays() -> None:
    """The reference takes the last elements one by one, wherever they come from."""
    assert ops(sink(back(op("gelu", forth(var()))))) == ["transpose", "gelu", "transpose"]


def test_pixel_shuffle_is_one() -> None:
    x = forth(var((1, 4, 4, 8)))
    y = op("transpose", op("reshape", x, newshape=(1, 2, 2, 2, 4, 4)), axes=(0, 1, 4, 2, 5, 3))
    new = sink(back(op("reshape", y, newshape=(1, 2, 8, 8))))
    assert ops(new).count("transpose") == 1


def test_channel_shuffle_is_one() -> None:
    x = op("reshape", forth(var((1, 6, 5, 8))), newshape=(1, 2, 4, 6, 5))
    y = op("reshape", op("transpose", x, axes=(0, 2, 1, 3, 4)), newshape=(1, 8, 6, 5))
    assert ops(sink(back(y))).count("transpose") == 1


def test_dense_of_integers_reads_the_image_as_it_lies() -> None:
    x, w = var(dtype="int8"), const(RNG.integers(-127, 128, (3, 120)).astype(np.int8))
    new = sink(op("nn.dense", op("reshape", forth(x), newshape=(1, 120)), w))
    assert "transpose" not in ops(new)


def test_dense_of_rows_that_stay() -> None:
    x, w = var((2, 3, 4), "int8"), const(RNG.integers(-127, 128, (3, 12)).astype(np.int8))
    new = sink(op("nn.dense", op("reshape", op("transpose", x, axes=(0, 2, 1)), newshape=(2, 12)), w))
    assert "transpose" not in ops(new)
    over = op("nn.dense", op("reshape", op("transpose", x, axes=(1, 0, 2)), newshape=(2, 12)), w)
    assert ops(sink(over)).count("transpose") == 1


def test_a_residual_block() -> None:
    x = forth(var())
    left = forth(op("nn.pad", back(op("relu", x)), pad_width=((0, 0), (0, 0), (0, 0), (0, 0))))
    assert "transpose" not in ops(sink(back(op("add", x, left))))


def test_what_would_be_moved_twice_stays() -> None:
    """Two results in the layout of the outside: one transpose serves both as it is."""
    x = forth(var())
    func = Function((x.args[0],), make_tuple([op("gelu", x), op("relu", x)]))  # type: ignore[attr-defined]
    assert run(sink_transpose, func) is func


def test_one_transpose_serves_two_readers() -> None:
    """Both GELUs need the layout of the outside; the one in front of ABS is enough."""
    x = forth(op("relu", forth(back(var()))))
    new = sink(op("gelu", x), op("gelu", op("abs", x)))
    assert ops(new).count("transpose") == 1


def test_operands_of_two_layouts_stay() -> None:
    x, y = var(), var((1, 4, 6, 5), name="y")
    assert ops(sink(op("add", forth(x), y))) == ["transpose", "add"]


STEPS = ("transpose", "reshape", "unary", "constant", "pad", "slice", "join", "add", "reduce")


@st.composite
def graphs(draw: st.DrawFn) -> Function:
    """Transposes and what they may pass, up to twelve operators; later ones read any earlier one."""
    dtype = draw(st.sampled_from(["float32", "int8"]))
    x = var(draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=2, max_size=4)), dtype)
    nodes: list[Expr] = [x]
    for _ in range(draw(st.integers(2, 12))):
        data = nodes[draw(st.integers(max(0, len(nodes) - 3), len(nodes) - 1))]
        nodes.append(draw(step(draw(st.sampled_from(STEPS)), data, nodes)))
    return Function((x,), make_tuple([nodes[-1], nodes[-2]]) if draw(st.booleans()) else nodes[-1])


@st.composite
def step(draw: st.DrawFn, kind: str, data: Expr, nodes: Sequence[Expr]) -> Expr:
    shape, dtype = tensor_type(data).shape, tensor_type(data).dtype
    axis, rank = draw(st.integers(0, len(shape) - 1)), len(shape)
    match kind:
        case "transpose":
            return op("transpose", data, axes=tuple(draw(st.permutations(range(rank)))))
        case "reshape":
            return op("reshape", data, newshape=draw(shapes_of(tensor_type(data).size)))
        case "unary":
            return op("negative", data) if dtype == "float32" else op("clip", data, lo=-100, hi=90)
        case "constant" if dtype == "float32":
            kept = [n if draw(st.booleans()) else 1 for n in shape][draw(st.integers(0, rank - 1)) :]
            return op("multiply", data, floats(*kept))
        case "pad":
            width = tuple((draw(st.integers(0, 2)), draw(st.integers(0, 1))) if a == axis else (0, 0) for a in range(rank))
            return op("nn.pad", data, pad_width=width, pad_value=1)
        case "slice":
            begin = tuple(draw(st.integers(0, n - 1)) for n in shape)
            return op("strided_slice", data, begin=begin, end=shape)
        case "join":
            return op("concatenate", [data, data], axis=axis)
        case "add" if dtype == "float32":
            alike = [n for n in nodes if tensor_type(n).shape == shape]
            return op("add", data, draw(st.sampled_from(alike)))
        case "reduce" if dtype == "float32":
            axes = tuple(sorted(draw(st.sets(st.integers(0, rank - 1), min_size=1))))
            return reduced("average", data, axes, keepdims=True)
    return op("abs", data) if dtype == "float32" else data


@st.composite
def shapes_of(draw: st.DrawFn, count: int) -> tuple[int, ...]:
    found = []
    while count > 1 and len(found) < 4:
        found.append(draw(st.sampled_from([n for n in (2, 3, 4, count) if count % n == 0])))
        count //= found[-1]
    return (*found, count)


def check_drawn(func: Function) -> None:
    new = run(sink_transpose, func)
    assert moves(new) <= moves(func)
    if new is not func:
        assert moves(new) < moves(func)
        assert run(sink_transpose, new) is new, "a second run finds nothing"


test_drawn, test_drawn_often = drawn_tests(graphs(), check_drawn, few=60)
