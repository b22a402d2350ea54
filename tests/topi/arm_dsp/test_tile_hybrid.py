"""Hybrid layers: random ones in the interpreter, on the host and in QEMU."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
import pytest

from aot.executor.candidates import group_of
from aot.ir.op import Array
from aot.ir.type import TensorType
from aot.op.common.layer import FLOAT_ACTIVATIONS
from aot.op.nn.dense import DenseAttrs
from aot.op.qnn.quantize import QUANTIZE, RANGE, DynamicQuantizeAttrs, HybridOutputAttrs
from aot.relay.expr import Constant, Function, Var, call, const
from aot.relay.interpreter import evaluate
from aot.target.target import find_target
from aot.topi.strategy import OpImplementation, implementations
from tests.topi.drawn import Case, pick
from tests.topi.runs import interpreted

ANCHORS = ("nn.dense", RANGE, QUANTIZE)
KERNELS: dict[str, OpImplementation] = {
    f"{anchor} {i.name}": i for anchor in ANCHORS for i in implementations(anchor) if "hybrid" in i.name or "dynamic" in i.name
}

every_kernel = pytest.mark.parametrize("name", sorted(KERNELS))


def layer(rng: np.random.Generator) -> Function:
    """A fully connected layer as the converter makes them: one scale or many, with and without bias and clamp."""
    depth, channels = pick(rng, 1, 2, 3, 4, 5, 8, 17, 33) * pick(rng, 1, 1, 4, 9), pick(rng, 1, 2, 3, 4, 5, 8, 9)
    rows = pick(rng, 1, 1, 2, 3)
    x, parameters = Var("x", TensorType((rows, depth), "int8")), Var("p", TensorType((rows, 3), "float32"))
    acc = call("nn.dense", [x, const(rng.integers(-127, 128, (channels, depth)).astype(np.int8))], DenseAttrs())
    scales = _floats(rng, pick(rng, 1, channels), 0.01)
    bias = [_floats(rng, channels, 1.0)] if rng.random() < 0.7 else []
    names = list(FLOAT_ACTIVATIONS)
    lo, hi = (None, None) if rng.random() < 0.3 else FLOAT_ACTIVATIONS[names[int(rng.integers(len(names)))]]
    attrs = HybridOutputAttrs(bool(rng.random() < 0.3), lo, hi)
    first, second = (x, parameters) if rng.random() < 0.8 else (parameters, x)
    return Function((first, second), call("qnn.hybrid_output", [acc, parameters, scales, *bias], attrs), {"Primitive": 1})


def _floats(rng: np.random.Generator, count: int, size: float) -> Constant:
    return const((rng.standard_normal(count) * size).astype(np.float32))


def quantisation(rng: np.random.Generator, anchor: str) -> Function:
    """The range of one to three batches, or their codes."""
    shape = (pick(rng, 1, 1, 2, 3), *pick_shape(rng))
    x, parameters = Var("x", TensorType(shape, "float32")), Var("p", TensorType((shape[0], 3), "float32"))
    if anchor == RANGE:
        return Function((x,), call(RANGE, [x]), {"Primitive": 1})
    return Function((x, parameters), call(QUANTIZE, [x, parameters], DynamicQuantizeAttrs()), {"Primitive": 1})


def pick_shape(rng: np.random.Generator) -> tuple[int, ...]:
    return ((8,), (40,), (2, 12), (3, 4, 2))[pick(rng, 0, 1, 2, 3)]


def numbers(rng: np.random.Generator, shape: tuple[int, ...], factor: Array) -> Array:
    """Numbers on both sides of halves of codes, zeros of both signs, now and then infinity and NaN."""
    halves = (rng.integers(-130, 130, shape) + 0.5).astype(np.float32)
    scale = factor.reshape(-1, *[1] * (len(shape) - 1))
    with np.errstate(all="ignore"):
        near = (halves / scale).astype(np.float32)
        near = (near.view(np.int32) + rng.integers(-2, 3, shape)).astype(np.int32).view(np.float32)
        below = (np.float32(0.49999997) / scale * np.where(rng.random(shape) < 0.5, 1, -1)).astype(np.float32)
    values = np.where(rng.random(shape) < 0.2, below, near)
    values = np.where(rng.random(shape) < 0.1, np.where(rng.random(shape) < 0.5, 0.0, -0.0), values).astype(np.float32)
    if rng.random() < 0.3:
        special = np.array([np.inf, -np.inf, np.nan, -np.nan, 3e38, -3e38, 1e-45], np.float32)
        values.reshape(-1)[int(rng.integers(values.size))] = special[int(rng.integers(special.size))]
    return values


def random_cases(name: str, seed: int) -> Iterator[Case]:
    """Endless random layers that the kernel takes; data scales of all sizes, the smallest and infinity too."""
    impl, target, rng = KERNELS[name], find_target("cortex-m4"), np.random.default_rng(seed)
    anchor = name.split()[0]
    while anchor != "nn.dense":
        func = quantisation(rng, anchor)
        group = group_of(func)
        assert impl.accepts(group, target)
        factor = np.where(rng.random((func.params[0].type.shape[0], 3)) < 0.3, 1.0, rng.uniform(0.01, 300)).astype(np.float32)
        if rng.random() < 0.1:
            factor = np.full_like(factor, (np.inf, 0.0)[pick(rng, 0, 1)])
        factor[:, 2] = 0  # a symmetric quantisation has no zero point
        data = numbers(rng, func.params[0].type.shape, np.where(np.isfinite(factor) & (factor > 0), factor, 1)[:, 1])
        inputs = [data, factor][: len(func.params)]
        yield Case(f"{impl.name}: {func.params[0].type}", impl.lower(group, target, "kernel"), inputs, evaluate(func, inputs))
    while True:
        func = layer(rng)
        group = group_of(func)
        if not impl.accepts(group, target):
            continue
        inputs = [_parameters(rng, v.type.shape) if v.type.dtype == "float32" else _codes(rng, v.type.shape) for v in func.params]
        text = f"{impl.name}: {func.params[0].type} {group.anchor.args[1].type} {group.followers[0].attrs}"
        yield Case(text, impl.lower(group, target, "kernel"), inputs, evaluate(func, inputs))


def _codes(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    codes = rng.integers(-127, 128, shape)
    return np.asarray(np.where(codes < 0, -127, 127) if rng.random() < 0.1 else codes, np.int8)


def _parameters(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    scale = rng.uniform(1e-3, 2, shape) * 10.0 ** pick(rng, 0, 0, 0, -38, 34)
    return np.asarray(scale, np.float32)


@every_kernel
def test_some_in_the_interpreter(name: str) -> None:
    interpreted(islice(random_cases(name, 4), 4))
