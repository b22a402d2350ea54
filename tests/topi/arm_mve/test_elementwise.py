"""ADD, MUL and DEQUANTIZE by vectors against the operators' meaning: drawn numbers and shapes."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from aot.ir.type import TensorType
from aot.op.common.binary import RescaledAttrs
from aot.op.qnn.add import AddAttrs
from aot.op.qnn.dequantize import DequantizeAttrs
from aot.relay.expr import Expr, Var, call, const
from tests.topi.arm_mve.drawn_groups import DRAWN, cases
from tests.topi.drawn import pick
from tests.topi.groups import data_of, lowered
from tests.topi.intrin.test_intrin import needs_board, needs_host
from tests.topi.runs import drawn_on_board, interpreted


def shapes(rng: np.random.Generator) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of two operands; the second one may be repeated along the outer axes."""
    channels = pick(rng, 16, 17, 19, 24, 31, 40, 65)
    whole = (1, pick(rng, 1, 2, 3), pick(rng, 1, 3), channels)
    return (whole, whole) if rng.random() < 0.6 else (whole, (1, 1, 1, channels))


def draw_elementwise(kind: str, rng: np.random.Generator) -> tuple[tuple[Var, ...], Expr]:
    """Operands of ADD and MUL may be repeated or constant."""
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


def test_other_cores_and_shapes_are_left_to_others() -> None:
    params, body = draw_elementwise("multiply", np.random.default_rng(0))
    assert lowered("arm_mve.multiply", params, body, cpu="cortex-m55+nomve") is None
    x, y = Var("x", TensorType((1, 4, 4, 8), "int8")), Var("y", TensorType((1, 4, 1, 8), "int8"))
    attrs = RescaledAttrs((0, 0), 1 << 30, -5, 0, -128, 127)
    assert lowered("arm_mve.multiply", (x, y), call("qnn.multiply", [x, y], attrs), cpu="cortex-m55") is None


KINDS = ("add", "multiply", "dequantize")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_in_the_interpreter(kind: str) -> None:
    interpreted(islice(cases(draw_elementwise, f"arm_mve.{kind}", kind, seed=1), DRAWN))


@pytest.mark.slow
@needs_host
@pytest.mark.parametrize("kind", KINDS)
def test_on_the_host(kind: str, tmp_path: Path) -> None:
    drawn_on_board("host", cases(draw_elementwise, f"arm_mve.{kind}", kind, seed=2), tmp_path, number=DRAWN)


@pytest.mark.qemu
@needs_board
@pytest.mark.parametrize("kind", KINDS)
def test_on_the_core(kind: str, tmp_path: Path) -> None:
    drawn_on_board("mps3-an547", cases(draw_elementwise, f"arm_mve.{kind}", kind, seed=3), tmp_path, number=DRAWN)


def test_some_in_the_interpreter() -> None:
    for kind in KINDS:
        interpreted(islice(cases(draw_elementwise, f"arm_mve.{kind}", kind, seed=4), 2))
