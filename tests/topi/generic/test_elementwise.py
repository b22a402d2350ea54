"""Flat element-wise loops against the operators' meaning."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aot.ir.type import TensorType
from aot.numerics.fixed_point import quantize_multiplier
from aot.op.qnn.arithmetic import AddAttrs
from aot.op.qnn.quantize import ClipAttrs, DequantizeAttrs, QuantizeAttrs, Requantize8Attrs
from aot.relay.expr import Expr, Function, Var, call
from aot.relay.interpreter import evaluate
from tests.scale import cases
from tests.topi.generic.test_copy import ADD, TABLE
from tests.topi.groups import check_group, data_of, lowered
from tests.topi.intrin.test_intrin import needs_board
from tests.topi.oncore import run_on

SHAPES = [(1,), (1, 1, 1, 3), (4,), (2, 3, 1, 5), (1, 4, 4, 4)]


def group(kind: str, shape: tuple[int, ...]) -> tuple[tuple[Var, ...], Expr]:
    x, y = Var("x", TensorType(shape, "int8")), Var("y", TensorType(shape, "int8"))
    real = Var("r", TensorType(shape, "float32"))
    match kind:
        case "add":
            return (x, y), call("qnn.add", [x, y], ADD)
        case "sum of tables":
            both = [call("qnn.lut", [v], TABLE) for v in (x, y)]
            return (x, y), call("qnn.add", both, ADD)
        case "table":
            return (x,), call("qnn.lut", [x], TABLE)
        case "clip":
            return (x,), call("clip", [x], ClipAttrs(-20, 100))
        case "requantize":
            return (x,), call("qnn.requantize8", [x], Requantize8Attrs(-4, 1288490189, 1, 9, -128, 127))
        case "quantize":
            return (real,), call("qnn.quantize", [real], QuantizeAttrs(0.02, -3, -128, 127))
        case _:
            return (x,), call("qnn.dequantize", [x], DequantizeAttrs(0.5, 7))


KINDS = ["add", "sum of tables", "table", "clip", "requantize", "quantize", "dequantize"]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_elementwise_equals_meaning(kind: str, shape: tuple[int, ...]) -> None:
    check_group("generic.elementwise", *group(kind, shape))


def test_broadcasting_is_left_to_others() -> None:
    x, y = Var("x", TensorType((1, 2, 2, 4), "int8")), Var("y", TensorType((4,), "int8"))
    assert lowered("generic.elementwise", (x, y), call("qnn.add", [x, y], ADD)) is None


@pytest.mark.qemu
@needs_board
@pytest.mark.parametrize(("kind", "most"), [("add", 7.25), ("clip", 9.5)])
def test_instructions_for_each_element(tmp_path: Path, kind: str, most: float) -> None:
    params, body = group(kind, (1, 32, 32, 4))
    low = lowered("generic.elementwise", params, body)
    assert low is not None
    data = [data_of(v, i) for i, v in enumerate(params)]
    buffers = {b.name: d.reshape(-1) for b, d in zip(low.func.inputs, data, strict=True)}
    outputs, result = run_on(low.func, buffers, board="mps2-an386", folder=tmp_path)
    (expected,) = evaluate(Function(params, body), data)
    np.testing.assert_array_equal(outputs["out"], expected.reshape(-1))
    assert result.instructions is not None
    assert result.instructions < most * 4096 + 200
    assert 0.7 * low.instructions < result.instructions < 1.3 * low.instructions


@pytest.mark.slow
def test_random_sums() -> None:
    """2,000 sums with random scales: the short form where there is one, the reference's steps else."""
    rng = np.random.default_rng(5)
    for seed in range(cases(2000)):
        scales = rng.uniform(0.01, 0.2, 3)
        twice = 2 * max(scales[:2])
        numbers = [quantize_multiplier(float(v)) for v in (scales[0] / twice, scales[1] / twice, twice / ((1 << 20) * scales[2]))]
        (ma, sa), (mb, sb), (m, s) = numbers
        lo, hi = sorted(int(v) for v in rng.integers(-128, 128, 2)) if seed % 3 == 0 else (-128, 127)
        zero = tuple(int(v) for v in rng.integers(-128, 128, 3))
        attrs = AddAttrs(zero[:2], (ma, mb), (sa, sb), m, s, zero[2], lo, hi)  # type: ignore[arg-type]
        shape = (int(rng.integers(1, 40)),)
        x, y = Var("x", TensorType(shape, "int8")), Var("y", TensorType(shape, "int8"))
        check_group("generic.elementwise", (x, y), call("qnn.add", [x, y], attrs), seed=seed)
