"""Arithmetic of floats without clamps that finite results do not need, against the operators' meaning."""

from __future__ import annotations

import numpy as np
import pytest

from aot.executor.candidates import candidates
from aot.executor.config import SelectionConfig
from aot.ir.op import Array
from aot.ir.type import TensorType
from aot.op.math.arithmetic import BinaryAttrs
from aot.op.math.unary import UnaryAttrs
from aot.op.qnn.quantize import QuantizeAttrs
from aot.op.tensor import PadAttrs, StridedSliceAttrs, TransposeAttrs
from aot.relay.expr import Call, Expr, Function, Var, call, const, post_order, tensor_type
from aot.relay.interpreter import evaluate
from aot.target.target import find_target
from aot.topi.generic.te_group import CLAMP, without_clamps
from tests.topi.groups import check_group, lowered, run_lowered

KERNEL = "generic.finite"
FINITE = BinaryAttrs(*CLAMP)
RELU = BinaryAttrs(0.0, CLAMP[1])
Case = tuple[tuple[Var, ...], Expr]


def var(*shape: int, name: str = "x") -> Var:
    return Var(name, TensorType(shape, "float32"))


def check(params: tuple[Var, ...], body: Expr, inputs: list[Array]) -> None:
    low = lowered(KERNEL, params, body)
    assert low is not None
    with np.errstate(all="ignore"):
        (expected,) = evaluate(Function(params, body), inputs)
    np.testing.assert_array_equal(run_lowered(low, inputs, body.type), expected)


def normalised(x: Var, mean: Var, factor: Var) -> Call:
    return call("multiply", [call("subtract", [x, mean], FINITE), factor], FINITE)


def test_normalisation_equals_meaning() -> None:
    x, mean, factor = var(3, 5, 12), var(3, 5, 1, name="mean"), var(12, name="factor")
    low = check_group(KERNEL, (x, mean, factor), normalised(x, mean, factor))
    assert low.func.attrs.kernel == "generic.subtract_multiply(unroll=4)"


@pytest.mark.parametrize("attrs", [FINITE, RELU, BinaryAttrs(0.0, 6.0)])
def test_numbers_that_overflow_on_the_way(attrs: BinaryAttrs) -> None:
    """3e38 + 3e38 is the largest number, and half of it finite: one result of four shows that."""
    x, y, z = (var(2, 8, name=n) for n in "xyz")
    body = call("multiply", [call("add", [x, y], attrs), z], FINITE)
    rng = np.random.default_rng(1)
    numbers = np.array([3e38, -3e38, 3.4028235e38, 1.0, -0.5, np.inf, -np.inf, 1e-40], np.float32)
    check((x, y, z), body, [rng.choice(numbers, v.type.shape) for v in (x, y, z)])


def test_what_is_no_number() -> None:
    x, y = var(1, 4), var(1, 4, name="y")
    nan = np.array([[np.nan, 1, 2, np.inf]], np.float32)
    check((x, y), call("add", [x, y], FINITE), [nan, nan])


def test_quantised_and_moved() -> None:
    x, y = var(2, 6, 4), var(4, name="y")
    moved = call("transpose", [call("multiply", [x, y], FINITE)], TransposeAttrs((0, 2, 1)))
    low = check_group(KERNEL, (x, y), call("qnn.quantize", [moved], QuantizeAttrs(0.02, 3, -128, 127)))
    assert low.func.attrs.kernel == "generic.multiply_transpose_quantize(unroll=3)"


def clamps(expr: Call) -> list[tuple[float | None, float | None]]:
    return [(e.attrs.lo, e.attrs.hi) for e in post_order(expr) if isinstance(e, Call)]


def test_which_clamps_go() -> None:
    """Not those in front of a bound that hides an infinity, nor in front of other operators."""
    x, y = var(8), var(8, name="y")
    total = call("add", [x, y], FINITE)
    assert clamps(without_clamps(call("multiply", [total, y], FINITE))) == [(None, None), (None, None)]
    assert clamps(without_clamps(call("multiply", [total, y], RELU))) == [CLAMP, (0.0, None)]
    assert clamps(without_clamps(call("subtract", [call("relu", [total], UnaryAttrs(lo=0.0, hi=6.0)), total], FINITE))) == [
        CLAMP,
        (0.0, 6.0),
        (None, None),
    ]


def test_what_is_left_to_others() -> None:
    x, y = var(4, 8), var(4, 8, name="y")
    assert lowered(KERNEL, (x, y), call("add", [x, y], BinaryAttrs())) is None  # no clamp
    assert lowered(KERNEL, (x, y), call("divide", [x, y], FINITE)) is None  # 1 / inf is 0
    assert lowered(KERNEL, (x, y), call("add", [x, y], FINITE), cpu="cortex-m3") is None
    p, q = var(4, 7), var(4, 7, name="q")
    assert lowered(KERNEL, (p, q), call("add", [p, q], FINITE)) is None


def test_not_for_size() -> None:
    x, y = var(4, 8), var(4, 8, name="y")
    func = Function((x, y), call("add", [x, y], FINITE), {"Primitive": 1})

    def kernels(opt: str) -> list[str]:
        return [c.kernel for c in candidates(func, find_target("cortex-m4"), "kernel", SelectionConfig(opt))]

    assert kernels("size") == ["generic.add"]
    assert kernels("speed") == ["generic.add(unroll=4)"]


def draw_finite(_kind: str, rng: np.random.Generator) -> Case:
    """One to four sums, differences and products with broadcast operands and clamps, moved, cut, padded, quantised or not."""
    shape = tuple(int(n) for n in (*rng.integers(1, 5, int(rng.integers(0, 3))), rng.choice([2, 3, 4, 5, 6, 8, 12, 15])))
    params = [Var(n, TensorType(shape if rng.random() < 0.6 else _broadcast(shape, rng), "float32")) for n in "xyz"]
    params[0] = Var("x", TensorType(shape, "float32"))
    body: Expr = params[0]
    for _ in range(int(rng.integers(1, 5))):
        other = params[int(rng.integers(3))] if rng.random() < 0.8 else const(np.float32(rng.standard_normal()))
        pair = [body, other] if rng.random() < 0.7 else [other, body]
        attrs = (FINITE, FINITE, FINITE, RELU, BinaryAttrs(), BinaryAttrs(-1.0, 1.0))[int(rng.integers(6))]
        body = call(str(rng.choice(["add", "subtract", "multiply"])), pair, attrs)
    body = call("relu", [body], UnaryAttrs(lo=0.0)) if rng.random() < 0.1 else body
    body = _moved(body, rng)
    if rng.random() < 0.3:
        body = call("qnn.quantize", [body], QuantizeAttrs(float(rng.random() * 0.1 + 0.01), int(rng.integers(-9, 9)), -128, 127))
    used = {id(e) for e in post_order(body)}
    return tuple(v for v in params if id(v) in used), body


def _broadcast(shape: tuple[int, ...], rng: np.random.Generator) -> tuple[int, ...]:
    return tuple(1 if rng.random() < 0.5 else n for n in shape)


def _moved(body: Expr, rng: np.random.Generator) -> Expr:
    shape = tensor_type(body).shape
    match rng.integers(6):
        case 0:
            return call("transpose", [body], TransposeAttrs(tuple(int(a) for a in rng.permutation(len(shape)))))
        case 1:
            return call("nn.pad", [body], PadAttrs(tuple((1, int(rng.integers(3))) for _ in shape), 0.0))
        case 2:
            begin = tuple(int(rng.integers(n)) for n in shape)
            extents = tuple(n - i for n, i in zip(shape, begin, strict=True))
            return call("strided_slice", [body], StridedSliceAttrs(begin, tuple(1 for _ in shape), extents))
        case _:
            return body
