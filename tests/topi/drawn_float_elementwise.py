"""Drawn element-wise groups of float32, numbers that overflow and zeros of both signs among them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from aot.ir.type import TensorType
from aot.op.common.layer import FLOAT_ACTIVATIONS
from aot.op.math.arithmetic import BinaryAttrs
from aot.op.math.unary import UnaryAttrs
from aot.relay.expr import Expr, Function, Var, call, const
from aot.relay.interpreter import evaluate
from aot.target.target import find_target
from tests.topi.drawn import Case, pick
from tests.topi.drawn_float import numbers
from tests.topi.groups import lowered

KINDS = ("add", "subtract", "multiply", "relu")


def random_cases(kind: str, seed: int) -> Iterator[Case]:
    """Endless groups that `arm_mve.KIND_float` takes; those without NaN, whose sign differs between cores."""
    rng = np.random.default_rng(seed)
    target = find_target("cortex-m55").with_fast_float()
    while True:
        params, body = _group(kind, rng)
        low = lowered(f"arm_mve.{kind}_float", params, body, cpu=target)
        inputs = [numbers(rng, v.type.shape) for v in params]
        if rng.random() < 0.3:
            large = rng.choice(np.float32([3e38, -3e38, np.inf, -np.inf]), inputs[0].shape)
            inputs[0] = np.where(rng.random(inputs[0].shape) < 0.2, large, inputs[0]).astype(np.float32)
        expected = evaluate(Function(params, body), inputs)
        if low is not None and not any(np.isnan(e).any() for e in expected):
            yield Case(f"arm_mve.{kind}_float {body}", low, inputs, expected)


def _group(kind: str, rng: np.random.Generator) -> tuple[tuple[Var, ...], Expr]:
    channels = pick(rng, 1, 3, 4, 7, 8, 9, 15, 16, 17, 31, 40)
    whole = (1, pick(rng, 1, 2, 3, 5), pick(rng, 1, 3, 4, 8), channels)
    x = Var("x", TensorType(whole, "float32"))
    if kind == "relu":
        lo, hi = [(0.0, None), (0.0, 6.0), (-1.0, 1.0), (0.0, 1.0), (None, 3.0)][pick(rng, 0, 1, 2, 3, 4)]
        return (x,), call("relu", [x], UnaryAttrs(lo=lo, hi=hi))
    other = [whole, whole, (1, 1, 1, channels), (1, *whole[1:3], 1), (1, 1, 1, 1)][pick(rng, 0, 1, 2, 3, 4)]
    y = Var("y", TensorType(other, "float32"))
    what = rng.random()
    second: Expr = y if what < 0.6 else x if what < 0.65 else const(numbers(rng, other))
    operands: list[Expr] = [x, second] if rng.random() < 0.5 else [second, x]
    names = list(FLOAT_ACTIVATIONS)
    attrs = BinaryAttrs() if rng.random() < 0.2 else BinaryAttrs(*FLOAT_ACTIVATIONS[names[int(rng.integers(len(names)))]])
    body = call(kind, operands, attrs)
    if rng.random() < 0.2:
        body = call("relu", [body], UnaryAttrs(lo=0.0, hi=(None, 6.0)[pick(rng, 0, 1)]))
    return (x, y) if second is y else (x,), body
