"""QUANTIZE and DEQUANTIZE without an FPU against the operators' meaning, on floats around every step and on the odd ones."""

from __future__ import annotations

import numpy as np
import pytest

from aot.ir.type import TensorType
from aot.op.qnn.quantize import DequantizeAttrs, QuantizeAttrs
from aot.relay.expr import Function, Var, call
from aot.relay.interpreter import evaluate
from aot.topi.generic.elementwise import LEAST, quantizer
from tests.topi.groups import check_group, lowered, run_lowered

QUANTIZE, DEQUANTIZE = "generic.quantize_steps", "generic.dequantize_table"
ODD = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1e-40, -1e-40, 1e-45, 3e38, -3e38], np.float32)


def scales(count: int) -> list[float]:
    rng = np.random.default_rng(5)
    return [1.0, 0.5, 2.0**-7, float(np.float32(1 / 255)), *(float(np.float32(10.0**e)) for e in rng.uniform(-8, 3, count))]


def floats_around_steps(scale: float) -> np.ndarray:
    """Both signs of the floats next to halves of a scale, then the odd ones, and odd images."""
    images = ((np.arange(300) + 0.5) * scale).astype(np.float32).view(np.uint32)[:, None] + np.arange(-3, 4)
    near = images.astype(np.uint32).view(np.float32).ravel()
    any_image = np.random.default_rng(1).integers(0, 1 << 32, 500, dtype=np.uint32).view(np.float32)
    return np.concatenate([near, -near, ODD, any_image])


@pytest.mark.parametrize("scale", scales(12))
@pytest.mark.parametrize(
    "zp_lo_hi", [(3, -128, 127), (127, -128, 127), (-128, -128, 90), (0, 5, 100), (128, 0, 255), (255, 0, 255)]
)
def test_codes_change_where_the_operator_has_them(scale: float, zp_lo_hi: tuple[int, int, int]) -> None:
    zp, lo, hi = zp_lo_hi
    dtype = "uint8" if hi > 127 else "int8"
    data = floats_around_steps(scale)
    x = Var("x", TensorType(data.shape, "float32"))
    body = call("qnn.quantize", [x], QuantizeAttrs(scale, zp, lo, hi, dtype))
    low = lowered(QUANTIZE, (x,), body, cpu="cortex-m3")
    assert low is not None
    (wanted,) = evaluate(Function((x,), body), [data])
    np.testing.assert_array_equal(run_lowered(low, [data], body.type), wanted)


def test_every_scale_has_numbers() -> None:
    assert all(quantizer(s) is not None for s in scales(100))
    assert quantizer(2.0**-100) is None


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("size", [256, 257, 258])
def test_floats_of_bytes(dtype: str, size: int) -> None:
    x = Var("x", TensorType((1, size), dtype))
    check_group(DEQUANTIZE, (x,), call("qnn.dequantize", [x], DequantizeAttrs(float(np.float32(0.03)), 7)), cpu="cortex-m0plus")


def test_what_is_left_to_others() -> None:
    x = Var("x", TensorType((LEAST,), "float32"))
    body = call("qnn.quantize", [x], QuantizeAttrs(0.5, 0, -128, 127))
    assert lowered(QUANTIZE, (x,), body, cpu="cortex-m0") is not None
    assert lowered(QUANTIZE, (x,), body, cpu="cortex-m4") is None
    wide = call("qnn.quantize", [x], QuantizeAttrs(0.5, 0, -32768, 32767, "int16"))
    assert lowered(QUANTIZE, (x,), wide, cpu="cortex-m3") is None
    few = Var("x", TensorType((LEAST - 1,), "int8"))
    assert lowered(DEQUANTIZE, (few,), call("qnn.dequantize", [few], DequantizeAttrs(0.5, 0)), cpu="cortex-m3") is None
