"""ADD, MUL, DEQUANTIZE and pools by vectors against the operators' meaning: drawn numbers and shapes.

Operands of ADD and MUL may be repeated or constant; windows may leave the image, and channels fill vectors or not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from aot.ir.type import TensorType
from aot.op.common.binary import RescaledAttrs
from aot.op.common.pool import PoolAttrs
from aot.op.qnn.add import AddAttrs
from aot.op.qnn.dequantize import DequantizeAttrs
from aot.op.reduce.mean import MeanAttrs, mean_multiplier
from aot.relay.expr import Expr, Function, Var, call, const
from aot.relay.interpreter import evaluate
from tests.topi.batch import Batch
from tests.topi.drawn import Case
from tests.topi.groups import data_of, lowered, run_lowered
from tests.topi.intrin.test_intrin import needs_board, needs_host

KINDS = ("add", "multiply", "dequantize", "max_pool", "avg_pool", "mean")
DRAWN = 2000 if os.environ.get("AOT_FULL") == "1" else 30
BATCH = 50


def pick(rng: np.random.Generator, *values: int) -> int:
    return values[int(rng.integers(len(values)))]


def shapes(rng: np.random.Generator) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of two operands; the second one may be repeated along the outer axes."""
    channels = pick(rng, 16, 17, 19, 24, 31, 40, 65)
    whole = (1, pick(rng, 1, 2, 3), pick(rng, 1, 3), channels)
    return (whole, whole) if rng.random() < 0.6 else (whole, (1, 1, 1, channels))


def draw(kind: str, rng: np.random.Generator) -> tuple[tuple[Var, ...], Expr]:
    """A group of one operator."""
    if kind in ("max_pool", "avg_pool", "mean"):
        return draw_pool(kind, rng)
    own, other = shapes(rng)
    if kind == "dequantize":
        x = Var("x", TensorType(own, ("int8", "uint8")[pick(rng, 0, 1)]))
        return (x,), call("qnn.dequantize", [x], DequantizeAttrs(float(np.float32(rng.random() + 1e-3)), pick(rng, -128, 0, 7)))
    zps = (pick(rng, -128, 0, 127, -7), pick(rng, -128, 0, 127, 9))
    zp = pick(rng, -128, 0, 127, 5)
    clip = (-128, 127) if rng.random() < 0.6 else (min(zp, -100), max(zp, 90)) if rng.random() < 0.5 else (zp, 127)
    multipliers = [int(m) for m in rng.integers(1 << 30, 1 << 31, 3)]
    x, y = Var("x", TensorType(own, "int8")), Var("y", TensorType(other, "int8"))
    second: Expr = y if rng.random() < 0.7 else const(data_of(y, pick(rng, *range(9))))
    params = (x, y) if second is y else (x,)
    operands: list[Expr] = [x, second] if rng.random() < 0.5 else [second, x]
    if kind == "multiply":
        shift = pick(rng, 0, -3, -7, -8, -9, -15)
        return params, call("qnn.multiply", operands, RescaledAttrs(zps, multipliers[0], shift, zp, *clip))
    shifts = (pick(rng, 0, -1), pick(rng, 0, -2))
    attrs = AddAttrs(zps, (multipliers[0], multipliers[1]), shifts, multipliers[2], -pick(rng, 18, 19, 20), zp, -128, 127)
    return params, call("qnn.add", operands, attrs)


def draw_pool(kind: str, rng: np.random.Generator) -> tuple[tuple[Var, ...], Expr]:
    shape = (pick(rng, 1, 2), *(int(n) for n in rng.integers(1, 10, 2)), pick(rng, 8, 9, 15, 16, 17, 31, 40, 130))
    clip = (-128, 127) if rng.random() < 0.5 else (int(rng.integers(-128, 0)), int(rng.integers(0, 128)))
    if kind == "mean":
        x = Var("x", TensorType(shape, "int8"))
        multiplier, shift = mean_multiplier(float(rng.random() * 2 + 0.1), shape[1] * shape[2])
        zp = pick(rng, -128, 0, 11, 127)
        return (x,), call("mean", [x], MeanAttrs((1, 2), False, zp, multiplier, shift, pick(rng, -128, -5, 127), *clip))
    unsigned = kind == "max_pool" and rng.random() < 0.3
    window = (int(rng.integers(1, shape[1] + 1)), int(rng.integers(1, shape[2] + 1)))
    pads = (0, 0, 0, 0) if kind == "avg_pool" or rng.random() < 0.5 else (*(w - 1 for w in window), window[0] // 2, 0)
    attrs = PoolAttrs(
        window, (pick(rng, 1, 2, 3), pick(rng, 1, 2)), pads, *((clip[0] + 128, clip[1] + 128) if unsigned else clip)
    )
    x = Var("x", TensorType(shape, "uint8" if unsigned else "int8"))
    return (x,), call(f"nn.{kind}2d", [x], attrs)


def cases(kind: str, seed: int) -> Iterator[Case]:
    rng = np.random.default_rng(seed)
    for n in range(1 << 30):
        params, body = draw(kind, rng)
        low = lowered(
            "arm_mve.pool" if kind in ("max_pool", "avg_pool", "mean") else f"arm_mve.{kind}", params, body, cpu="cortex-m55"
        )
        if low is None:
            continue
        inputs = [data_of(v, seed + n + i) for i, v in enumerate(params)]
        (expected,) = evaluate(Function(params, body), inputs)
        yield Case(f"{kind} {seed} {n}", low, inputs, expected)


def run_batches(kind: str, seed: int, board: str, folder: Path) -> None:
    found = cases(kind, seed)
    for i in range(0, DRAWN, BATCH):
        assert Batch(list(islice(found, min(BATCH, DRAWN - i)))).run(board, folder / str(i)) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_in_the_interpreter(kind: str) -> None:
    for case in islice(cases(kind, 1), DRAWN):
        found = run_lowered(case.lowered, case.inputs, TensorType(case.expected.shape, str(case.expected.dtype)))
        np.testing.assert_array_equal(found, case.expected, err_msg=case.text)


@pytest.mark.slow
@needs_host
@pytest.mark.parametrize("kind", KINDS)
def test_on_the_host(kind: str, tmp_path: Path) -> None:
    run_batches(kind, 2, "host", tmp_path)


@pytest.mark.qemu
@needs_board
@pytest.mark.parametrize("kind", KINDS)
def test_on_the_core(kind: str, tmp_path: Path) -> None:
    run_batches(kind, 3, "mps3-an547", tmp_path)


def test_other_cores_and_shapes_are_left_to_others() -> None:
    params, body = draw("multiply", np.random.default_rng(0))
    assert lowered("arm_mve.multiply", params, body, cpu="cortex-m55+nomve") is None
    x, y = Var("x", TensorType((1, 4, 4, 8), "int8")), Var("y", TensorType((1, 4, 1, 8), "int8"))
    attrs = RescaledAttrs((0, 0), 1 << 30, -5, 0, -128, 127)
    assert lowered("arm_mve.multiply", (x, y), call("qnn.multiply", [x, y], attrs), cpu="cortex-m55") is None
