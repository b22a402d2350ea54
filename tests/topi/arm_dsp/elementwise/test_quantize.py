"""QUANTIZE and DEQUANTIZE by VCVT against the operators' meaning.

Both are monotone, so the floats on either side of each threshold, with the infinities, decide for all floats.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aot.ir.op import Array
from aot.ir.type import TensorType
from aot.op.qnn.quantize import DequantizeAttrs, QuantizeAttrs
from aot.relay.expr import Expr, Function, Var, call
from aot.relay.interpreter import evaluate
from aot.support.dtype import int_range
from tests.topi.groups import check_group, lowered, run_lowered
from tests.topi.intrin.test_intrin import needs_board, needs_host
from tests.topi.oncore import run_on

SCALES = [2.0**-7, float(np.float32(0.1)), float(np.float32(3.7e-3)), 2.0**-126, float(np.float32(1e30))]
ZERO_POINTS = {"int8": (-128, -3, 0, 127), "uint8": (0, 128, 255)}
CASES = [(d, z, s) for d, points in ZERO_POINTS.items() for z in points for s in SCALES[:2]] + [
    ("int8", 5, s) for s in SCALES[2:]
]


def quantize(dtype: str, zero_point: int, *, scale: float, size: int) -> tuple[tuple[Var], Expr]:
    x = Var("x", TensorType((size,), "float32"))
    return (x,), call("qnn.quantize", [x], QuantizeAttrs(scale, zero_point, *int_range(dtype), dtype))


def steps(dtype: str, zero_point: int, scale: float) -> Array:
    """Floats at each change of the result with their neighbours, then special ones, subnormal ones, and all exponents."""
    low, high = int_range(dtype)
    with np.errstate(over="ignore"):
        ties = ((np.arange(low - 2, high + 3) - zero_point + 0.5) * scale).astype(np.float32)
        at = [ties]
        for _ in range(3):
            at = [np.nextafter(at[0], np.float32(-np.inf)), *at, np.nextafter(at[-1], np.float32(np.inf))]
    patterns = (np.arange(0, 1 << 16, 13, dtype=np.uint32) << 16) | np.arange(0, 1 << 16, 13, dtype=np.uint32)
    special = np.array([np.inf, -np.inf, np.nan, -np.nan, 0.0, -0.0, 1e-45, -1e-45], np.float32)
    return np.concatenate([*at, special, patterns.view(np.float32)])


def test_meaning_of_a_step() -> None:
    """The floats above do meet every code, and both sides of each of its thresholds."""
    x = steps("int8", -3, SCALES[1])
    params, body = quantize("int8", -3, scale=SCALES[1], size=x.size)
    (codes,) = evaluate(Function(params, body), [x])
    order = np.argsort(x[: 7 * 260])
    found, where = codes[order], x[order]
    changes = np.flatnonzero(np.diff(found.astype(np.int64)) > 0)
    assert len(np.unique(codes)) == 256
    assert all(np.nextafter(where[i], np.float32(np.inf)) >= where[i + 1] for i in changes)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("size", [8, 15, 40])
def test_blocks_in_the_interpreter(dtype: str, size: int) -> None:
    x = np.concatenate([steps(dtype, 4, 0.5)[: size - 3], np.array([np.nan, np.inf, -np.inf], np.float32)])
    params, body = quantize(dtype, 4, scale=0.5, size=size)
    low = lowered("arm_dsp.quantize", params, body)
    assert low is not None
    (expected,) = evaluate(Function(params, body), [x])
    np.testing.assert_array_equal(run_lowered(low, [x], body.type), expected)
    codes = Var("x", TensorType((size,), dtype))
    check_group("arm_dsp.dequantize", (codes,), call("qnn.dequantize", [codes], DequantizeAttrs(0.25, 4)))


def test_what_is_refused() -> None:
    x = Var("x", TensorType((64,), "float32"))
    clamped = call("qnn.quantize", [x], QuantizeAttrs(0.5, 0, 0, 127))
    assert lowered("arm_dsp.quantize", (x,), clamped) is None
    params, body = quantize("int8", 0, scale=0.5, size=7)
    assert lowered("arm_dsp.quantize", params, body) is None
    params, body = quantize("int16", 0, scale=0.5, size=64)
    assert lowered("arm_dsp.quantize", params, body) is None
    params, body = quantize("int8", 0, scale=0.5, size=64)
    for cpu in ("cortex-m3", "cortex-m33+nofpu", "cortex-m33+nodsp", "host"):
        assert lowered("arm_dsp.quantize", params, body, cpu=cpu) is None
    for cpu in ("cortex-m4", "cortex-m7", "cortex-m33", "cortex-m55"):
        assert lowered("arm_dsp.quantize", params, body, cpu=cpu) is not None


def quantize_case(board: str, folder: Path, *, dtype: str, zero_point: int, scale: float) -> None:
    x = steps(dtype, zero_point, scale)
    params, body = quantize(dtype, zero_point, scale=scale, size=x.size)
    low = lowered("arm_dsp.quantize", params, body)
    assert low is not None
    outputs, result = run_on(low.func, {"data": x}, board=board, folder=folder)
    (expected,) = evaluate(Function(params, body), [x])
    np.testing.assert_array_equal(outputs["out"], expected)
    if board != "host":
        assert result.instructions is not None
        assert 0.9 * low.instructions < result.instructions < 1.1 * low.instructions + 60


@needs_host
def test_on_the_host(tmp_path: Path) -> None:
    quantize_case("host", tmp_path, dtype="int8", zero_point=-3, scale=SCALES[1])


@pytest.mark.qemu
@needs_board
@pytest.mark.parametrize(("dtype", "zero_point", "scale"), CASES)
def test_every_float_on_the_core(tmp_path: Path, dtype: str, zero_point: int, scale: float) -> None:
    quantize_case("mps2-an386", tmp_path, dtype=dtype, zero_point=zero_point, scale=scale)


@pytest.mark.qemu
@needs_board
@pytest.mark.parametrize("board", ["mps2-an500", "mps2-an505", "mps3-an547"])
def test_every_float_on_other_cores(tmp_path: Path, board: str) -> None:
    quantize_case(board, tmp_path, dtype="int8", zero_point=-3, scale=SCALES[1])


@pytest.mark.qemu
@needs_board
@pytest.mark.parametrize(("dtype", "zero_point"), [("int8", -128), ("int8", 127), ("int8", 9), ("uint8", 0), ("uint8", 255)])
def test_every_code_on_the_core(tmp_path: Path, dtype: str, zero_point: int) -> None:
    codes = np.arange(256).astype(np.uint8).view(dtype)
    data = np.concatenate([codes, codes[:3]])
    x = Var("x", TensorType(data.shape, dtype))
    body = call("qnn.dequantize", [x], DequantizeAttrs(float(np.float32(0.037)), zero_point))
    low = lowered("arm_dsp.dequantize", (x,), body)
    assert low is not None
    outputs, result = run_on(low.func, {"data": data}, board="mps2-an386", folder=tmp_path)
    (expected,) = evaluate(Function((x,), body), [data])
    np.testing.assert_array_equal(outputs["out"], expected)
    assert result.instructions is not None
    assert result.instructions < 4.5 * 256 + 120
