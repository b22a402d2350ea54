"""Element-wise operators by vectors against the operators' meaning; on the core and many: tests/topi/test_drawn.py."""

from __future__ import annotations

from fractions import Fraction
from itertools import islice

import numpy as np
import pytest

from aot.ir.type import TensorType
from aot.numerics.fixed_point import softmax_scaling
from aot.op.common.binary import RescaledAttrs
from aot.op.qnn.quantize import QuantizeAttrs, Requantize8Attrs, evaluate_quantize
from aot.op.qnn.softmax import SoftmaxAttrs
from aot.relay.expr import Function, Var, call
from aot.relay.interpreter import evaluate
from aot.support.dtype import int_range
from aot.tir.analysis.overlap import safe_distances
from aot.topi.arm_mve.elementwise.quotient import LEAST_SCALE, Reciprocal, is_proven, reciprocal
from tests.topi.drawn_elementwise import VECTORS, draw_elementwise
from tests.topi.drawn_groups import cases
from tests.topi.generic.test_copy import ADD
from tests.topi.groups import check_group, lowered, run_lowered
from tests.topi.runs import interpreted


def test_other_cores_and_shapes_are_left_to_others() -> None:
    (x, y), zps = (Var(n, TensorType((1, 4, 4, 32), "int8")) for n in "xy"), (0, 0)
    attrs = RescaledAttrs(zps, 1 << 30, -5, 0, -128, 127)
    assert lowered("arm_mve.multiply", (x, y), call("qnn.multiply", [x, y], attrs), cpu="cortex-m55") is not None
    assert lowered("arm_mve.multiply", (x, y), call("qnn.multiply", [x, y], attrs), cpu="cortex-m55+nomve") is None
    x, y = Var("x", TensorType((1, 4, 4, 8), "int8")), Var("y", TensorType((1, 4, 1, 8), "int8"))
    assert lowered("arm_mve.multiply", (x, y), call("qnn.multiply", [x, y], attrs), cpu="cortex-m55") is None


def test_the_result_of_two_tensors_may_lie_over_either() -> None:
    pair = Var("x", TensorType((1, 37), "int8")), Var("y", TensorType((1, 37), "int8"))
    product = call("qnn.multiply", pair, RescaledAttrs((3, -5), 1 << 30, -5, 0, -128, 127))
    for name, body in (("add", call("qnn.add", pair, ADD)), ("multiply", product)):
        low = lowered(f"arm_mve.{name}", pair, body, cpu="cortex-m55")
        assert low is not None
        assert [d.up for d in safe_distances(low.func).values()] == [0, 0]


@pytest.mark.parametrize("kind", VECTORS)
def test_some_in_the_interpreter(kind: str) -> None:
    interpreted(islice(cases(draw_elementwise, f"arm_mve.{kind}", kind, seed=4), 2))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("out_dtype", ["int8", "uint8"])
@pytest.mark.parametrize("delta", [-255, -128, -1, 3, 128, 255])
def test_codes_of_one_scale_are_shifted(dtype: str, out_dtype: str, delta: int) -> None:
    """Without a table, but for differences of zero points that instructions do not take."""
    x = Var("x", TensorType((256,), dtype))
    attrs = Requantize8Attrs(0, 1 << 30, 1, delta, *int_range(out_dtype), out_dtype)
    low = check_group("arm_mve.requantize8", (x,), call("qnn.requantize8", [x], attrs), cpu="cortex-m55")
    rest = delta - 128 * (dtype == "int8") + 128 * (out_dtype == "int8")
    assert bool(low.constants) == (not -128 <= rest <= 127 if out_dtype == "int8" else abs(rest) > 255)


@pytest.mark.parametrize("scale", [0.0123, 0.1, 1 / 255, 3.0, 2.0**-7, 1e-9, 1e9])
def test_products_give_the_codes_of_quotients(scale: float) -> None:
    """For numbers at which codes change and those around them, and for any others."""
    factors = reciprocal(scale, 255)
    assert factors is not None
    assert (factors.low == 0) == (scale == 2.0**-7)
    rng, type_ = np.random.default_rng(0), TensorType((1,), "int16")
    changes = np.float32((np.arange(-300, 300) + 0.5) * np.float32(scale))
    x = np.concatenate(
        [changes, *(np.nextafter(changes, np.float32(v)) for v in (np.inf, -np.inf)), rng.normal(0, 99 * scale, 9999)]
    )
    x = x.astype(np.float32)
    product = factors.product(x).astype(np.float64)
    codes = np.clip(np.copysign(np.floor(np.abs(product) + 0.5), product), -255, 255)
    expected = evaluate_quantize(x, attrs=QuantizeAttrs(scale, 0, -255, 255, "int16"), out_type=type_)
    np.testing.assert_array_equal(codes, expected)


def test_one_product_is_not_always_the_quotient() -> None:
    high = float(np.float32(1 / np.float32(0.1)))
    assert not is_proven(Reciprocal(high, 0.0), np.float32(0.1), 255)
    assert reciprocal(LEAST_SCALE / 2, 255) is None


def test_sums_and_products_are_rounded_once() -> None:
    """As Fraction has them: the nearest of the float32 numbers around them, the even one of two as near."""
    rng = np.random.default_rng(1)
    for high, low in rng.uniform(0.5, 1, (50, 2)).astype(np.float32):
        factors = Reciprocal(float(high), float(low * np.float32(2.0**-24)))
        x = rng.uniform(0.5, 1, 20).astype(np.float32)
        for value, found in zip(x, factors.product(x), strict=True):
            exact = Fraction(float(value)) * Fraction(factors.high) + Fraction(float(value * np.float32(factors.low)))
            around = [found, np.nextafter(found, np.float32(0)), np.nextafter(found, np.float32(2))]
            errors = [abs(Fraction(float(v)) - exact) for v in around]
            assert errors[0] <= min(errors)
            assert errors.count(errors[0]) == 1 or int(found.view(np.int32)) % 2 == 0


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_softmax_of_many_equal_elements(dtype: str) -> None:
    """Whose sum is 512 and more: the last shift is as far as one goes."""
    x = Var("x", TensorType((2, 700), "int8"))
    body = call("qnn.softmax", [x], SoftmaxAttrs(*softmax_scaling(0.1), dtype))
    low = lowered("arm_mve.softmax", (x,), body, cpu="cortex-m55")
    assert low is not None
    data = np.full((2, 700), 3, np.int8)
    (expected,) = evaluate(Function((x,), body), [data])
    np.testing.assert_array_equal(run_lowered(low, [data], body.type), expected)
