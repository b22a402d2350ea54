"""Groups of element-wise operators in one loop against the operators' meaning: cells of recurrent networks, drawn programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import islice

import numpy as np
import pytest

from aot.ir.type import TensorType
from aot.op.qnn.arithmetic import AddAttrs, MultiplyAttrs, add_attrs
from aot.op.qnn.lut import LutAttrs
from aot.op.tensor import StridedSliceAttrs
from aot.relay.expr import Expr, Function, Var, call, const, post_order
from aot.relay.interpreter import evaluate
from aot.tir.analysis import safe_distances
from aot.topi.arm_dsp.elementwise_group import contiguous_from
from tests.topi.drawn import Case, pick
from tests.topi.groups import check_group, data_of, lowered
from tests.topi.runs import interpreted

LANES = (1, 2, 4)
MUL = MultiplyAttrs((-128, 3), 1340000000, -7, 5, -128, 127)
SIGMOID = LutAttrs(tuple(int(256 / (1 + np.exp(-q / 20))) - 128 for q in range(-128, 128)))


def kernel(lanes: int) -> str:
    return f"arm_dsp.elementwise_{lanes}"


@cache
def sum_of(seed: int, sign: int = 1) -> AddAttrs:
    """One of some hundred ADDs and SUBs that have a form in 32 bits."""
    rng = np.random.default_rng(seed)
    for _ in range(1000):
        scales = tuple(float(s) for s in rng.uniform(0.002, 0.05, 3))
        zps = tuple(pick(rng, -128, 127, 0, int(rng.integers(-128, 128))) for _ in range(3))
        found = add_attrs("int8", scales, zps, limits=(-128, 127), sign=sign)
        if found is not None:
            return found
    raise AssertionError(seed)


def variable(name: str, *shape: int) -> Var:
    return Var(name, TensorType(shape, "int8"))


def part(x: Expr, begin: int, size: int) -> Expr:
    return call("strided_slice", [x], StridedSliceAttrs((0, begin), (1, 1), (1, size)))


def gated(size: int) -> tuple[tuple[Var, ...], Expr]:
    """The cell of a GRU as converters write it, on two tensors of three gates each and the state."""
    a, b, h = variable("a", 1, 3 * size), variable("b", 1, 3 * size), variable("h", 1, size)
    update = call("qnn.add", [part(a, 0, size), part(b, 0, size)], sum_of(1))
    reset = call("qnn.lut", [call("qnn.add", [part(a, size, size), part(b, size, size)], sum_of(2))], SIGMOID)
    fresh = call("qnn.add", [part(a, 2 * size, size), call("qnn.multiply", [reset, part(b, 2 * size, size)], MUL)], sum_of(3))
    kept = call("qnn.multiply", [call("qnn.lut", [update], SIGMOID), h], MUL)
    other = call("qnn.multiply", [update, call("qnn.lut", [fresh], SIGMOID)], replace(MUL, input_zp=(5, 0)))
    return (a, b, h), call("qnn.add", [kept, other], sum_of(4))


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("size", [16, 19, 48])
def test_the_cell_of_a_gru(lanes: int, size: int) -> None:
    low = check_group(kernel(lanes), *gated(size), seed=size)
    assert low.func.attrs.kernel == f"arm_dsp.elementwise(lanes={lanes})"


@pytest.mark.parametrize("lanes", LANES)
def test_the_result_may_lie_over_what_was_read(lanes: int) -> None:
    """A turn loads all its elements before it stores them, so the result may start where an operand does."""
    low = lowered(kernel(lanes), *gated(19))
    assert low is not None
    assert [safe_distances(low.func)[x, low.func.outputs[0]].up for x in low.func.inputs] == [0, 0, 0]


@pytest.mark.parametrize("lanes", LANES)
def test_a_clamp_within_bytes_a_constant_and_one_tensor_twice(lanes: int) -> None:
    x, y = variable("x", 1, 33), variable("y", 33)
    table = const(np.random.default_rng(0).integers(-128, 128, (1, 33)).astype(np.int8))
    total = call("qnn.add", [x, y], replace(sum_of(5), lo=-20, hi=100))
    check_group(kernel(lanes), (x, y), call("qnn.multiply", [table, total], MUL))
    check_group(kernel(lanes), (x, y), call("qnn.multiply", [total, total], replace(MUL, lo=-7)))
    check_group(kernel(lanes), (x,), call("qnn.add", [x, call("qnn.multiply", [x, x], MUL)], sum_of(6, -1)))


def test_more_tensors_than_pointers_have_registers() -> None:
    many = tuple(variable(f"x{i}", 1, 24) for i in range(11))
    body: Expr = many[0]
    for x in many[1:]:
        body = call("qnn.add", [body, x], sum_of(7))
    for lanes in LANES:
        check_group(kernel(lanes), many, body)


def test_what_is_left_to_others() -> None:
    x, y = variable("x", 1, 33), variable("y", 1, 33)
    total = call("qnn.add", [x, y], sum_of(5))
    squared = call("qnn.multiply", [total, y], MUL)
    assert lowered(kernel(4), (x, y), squared, cpu="cortex-m3") is None
    assert lowered(kernel(4), (x, y), total) is None
    assert lowered(kernel(4), (x, y), call("qnn.multiply", [total, y], replace(MUL, shift=1))) is None
    few = variable("x", 1, 15), variable("y", 1, 15)
    assert lowered(kernel(4), few, call("qnn.multiply", [call("qnn.add", few, sum_of(5)), few[0]], MUL)) is None
    gate = variable("gate", 1, 1)
    assert lowered(kernel(4), (x, gate), call("qnn.multiply", [call("qnn.add", [x, x], sum_of(5)), gate], MUL)) is None


@pytest.mark.parametrize(
    ("shape", "begin", "extents", "first"),
    [((1, 9), (0, 3), (1, 6), 3), ((4, 9), (1, 0), (2, 9), 9), ((4, 9), (1, 2), (1, 3), 11), ((4, 9), (1, 2), (2, 3), None)],
)
def test_parts_in_one_piece(
    shape: tuple[int, ...], begin: tuple[int, ...], extents: tuple[int, ...], first: int | None
) -> None:  # fmt: skip
    assert contiguous_from(call("strided_slice", [variable("x", *shape)], StridedSliceAttrs(begin, (1, 1), extents))) == first


def draw(rng: np.random.Generator) -> tuple[tuple[Var, ...], Expr]:
    """Up to four tensors, some of which are read in part, under up to nine operators; results may be used more than once."""
    size = pick(rng, 16, 17, 18, 23, 32, 51)
    params, values = [], []
    for i in range(pick(rng, 1, 2, 3, 4, 6)):
        if rng.random() < 0.3:
            params.append(variable(f"x{i}", 1, 3 * size))
            values += [part(params[-1], k * size, size) for k in range(3) if rng.random() < 0.8] or [part(params[-1], 5, size)]
        else:
            params.append(variable(f"x{i}", 1, size))
            values.append(params[-1])
    if rng.random() < 0.3:
        values.append(const(rng.integers(-128, 128, (1, size)).astype(np.int8)))
    first = len(values)
    for _ in range(pick(rng, 2, 3, 4, 6, 9)):
        recent = values[first:]
        one = recent[-1] if recent and rng.random() < 0.6 else values[int(rng.integers(len(values)))]
        values.append(_operator(rng, one, values[int(rng.integers(len(values)))]))
    return tuple(params), values[-1]


def _operator(rng: np.random.Generator, one: Expr, other: Expr) -> Expr:
    """ADD, SUB, MUL or a table of awkward numbers."""
    if rng.random() < 0.25:
        return call("qnn.lut", [one], LutAttrs(tuple(map(int, rng.integers(-128, 128, 256)))))
    pair = [one, other] if rng.random() < 0.5 else [other, one]
    limits = (-128, 127) if rng.random() < 0.8 else (int(rng.integers(-128, 0)), int(rng.integers(0, 128)))
    if rng.random() < 0.5:
        attrs = sum_of(int(rng.integers(100)), pick(rng, 1, 1, -1))
        return call("qnn.add", pair, replace(attrs, lo=limits[0], hi=limits[1]))
    zps = (pick(rng, -128, 0, 127, -7), pick(rng, -128, -128, 0, 127, 9))
    multiplier = int(rng.integers(1 << 30, 1 << 31)) if rng.random() < 0.8 else 1 << 30
    shift, zp = -pick(rng, 1, 5, 6, 7, 8, 9), pick(rng, -128, 0, 127, 5)
    return call("qnn.multiply", pair, MultiplyAttrs(zps, multiplier, shift, zp, *limits))


def used(params: tuple[Var, ...], body: Expr) -> tuple[Var, ...]:
    """Those of the variables that the body reads."""
    nodes = {id(e) for e in post_order(body)}
    return tuple(v for v in params if id(v) in nodes)


def cases(seed: int, *, lanes: int | None = None) -> Iterator[Case]:
    """Endless groups that the kernels take, with `lanes` or each with the next of LANES.

    Every fourth one has operands at the ends of their ranges alone.
    """
    rng = np.random.default_rng(seed)
    for n in range(1 << 30):
        params, body = draw(rng)
        params, name = used(params, body), kernel(lanes or LANES[n % len(LANES)])
        low = lowered(name, params, body)
        if low is None:
            continue
        inputs = [data_of(v, seed + n + i) for i, v in enumerate(params)]
        if n % 4 == 0:
            inputs = [np.where(x < 0, -128, 127).astype(np.int8) for x in inputs]
        yield Case(f"{name} {seed} {n}", low, inputs, evaluate(Function(params, body), inputs))


def test_some_in_the_interpreter() -> None:
    interpreted(islice(cases(1), 3))
