"""Drawn pools and means of bytes, and pools of floats."""

from __future__ import annotations

import numpy as np

from aot.frontend.tflite.reduce import mean_multiplier
from aot.ir.type import TensorType
from aot.op.common.layer import PoolAttrs
from aot.op.math.unary import UnaryAttrs
from aot.op.reduce import MeanAttrs
from aot.relay.expr import Expr, Var, call
from tests.topi.drawn import pick

POOLS = ("max_pool", "avg_pool", "mean")


def draw_pool(kind: str, rng: np.random.Generator) -> tuple[tuple[Var, ...], Expr]:
    """Windows may leave the image, and channels fill vectors or not."""
    shape = (pick(rng, 1, 2), *(int(n) for n in rng.integers(1, 10, 2)), pick(rng, 1, 3, 8, 9, 15, 16, 17, 31, 40, 130))
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


def draw_float_pool(kind: str, rng: np.random.Generator) -> tuple[tuple[Var, ...], Expr]:
    """Windows of one element to the whole image, which they may leave; with an activation or without."""
    shape = (pick(rng, 1, 2), *(int(n) for n in rng.integers(1, 10, 2)), pick(rng, 1, 2, 3, 4, 5, 8, 11, 24))
    window = tuple(min(int(n), int(rng.integers(1, n + 2))) for n in shape[1:3])
    pads = (0, 0, 0, 0) if rng.random() < 0.5 else (window[0] // 2, window[1] - 1, window[0] - 1, window[1] // 2)
    x = Var("x", TensorType(shape, "float32"))
    body = call(f"nn.{kind}2d", [x], PoolAttrs((window[0], window[1]), (pick(rng, 1, 2, 3), pick(rng, 1, 2)), pads, 0, 0))
    largest = float(np.finfo(np.float32).max)
    clamps = (
        None,
        UnaryAttrs(lo=-largest, hi=largest),
        UnaryAttrs(lo=0.0),
        UnaryAttrs(lo=0.0, hi=6.0),
        UnaryAttrs(lo=-1.0, hi=1.0),
    )
    clamp = clamps[int(rng.integers(len(clamps)))]
    return (x,), body if clamp is None else call("relu", [body], clamp)
