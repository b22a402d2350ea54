"""Layers of 16-bit data: random ones in the interpreter, on the host and in QEMU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from math import ceil, log2
from typing import Any

import numpy as np
import pytest

from aot.executor.candidates import group_of
from aot.ir.op import Array
from aot.ir.type import TensorType
from aot.op.nn.conv import Conv2DAttrs, DepthwiseConv2DAttrs
from aot.op.nn.dense import DenseAttrs
from aot.op.qnn.arithmetic import AddAttrs
from aot.op.qnn.quantize import RequantizeAttrs
from aot.relay.expr import Call, Function, Var, call, const, tensor_type
from aot.relay.interpreter import evaluate
from aot.target.target import find_target
from aot.topi.strategy import OpImplementation, implementations
from tests.topi.drawn import Case, _sizes, pick
from tests.topi.runs import interpreted

KERNELS: dict[str, OpImplementation] = {
    f"{anchor} {i.name}": i
    for anchor in ("nn.conv2d", "nn.depthwise_conv2d", "nn.dense")
    for i in implementations(anchor)
    if i.name.endswith("_16x8")
}

every_kernel = pytest.mark.parametrize("name", sorted(KERNELS))


def layer(rng: np.random.Generator, anchor: str, *, pointwise: bool) -> Function:
    """A random layer as the converter makes them: sums of 64 or 32 bits, reduced multipliers, or halves away from zero."""
    depth, channels = pick(rng, 1, 2, 3, 4, 6, 8, 10, 18, 34), pick(rng, 1, 2, 3, 4, 5, 8, 9)
    acc_dtype = ("int64", "int64", "int32")[pick(rng, 0, 1, 2)]
    if anchor == "nn.dense":
        x, shape = Var("x", TensorType((pick(rng, 1, 1, 2, 3), depth), "int16")), (channels, depth)
        weights = rng.integers(-127, 128, shape).astype(np.int8)
        acc = call(anchor, [x, const(weights)], replace(DenseAttrs(), acc_dtype=acc_dtype))
    else:
        more = (5, 9) if anchor == "nn.depthwise_conv2d" else (1, 3)
        kernel = (1, 1) if pointwise else (pick(rng, 1, 2, 3, more[0]), pick(rng, 1, 2, 3, more[1]))
        dilation = (1, 1) if pointwise else (pick(rng, 1, 1, 2), pick(rng, 1, 1, 2))
        size, pads = _sizes(rng, kernel, dilation)
        strides = (1, 1) if pointwise else (pick(rng, 1, 1, 2), pick(rng, 1, 1, 2, 3))
        x = Var("x", TensorType((pick(rng, 1, 1, 2), *size, depth), "int16"))
        weights = rng.integers(-127, 128, (channels, *kernel, depth)).astype(np.int8)
        attrs: Any = Conv2DAttrs(strides, (0, 0, 0, 0) if pointwise else pads, dilation, acc_dtype=acc_dtype)
        if anchor == "nn.depthwise_conv2d":
            multiplier = pick(rng, 1, 1, 2)
            channels = depth * multiplier
            weights = rng.integers(-127, 128, (1, *kernel, channels)).astype(np.int8)
            attrs = DepthwiseConv2DAttrs(strides, pads, dilation, multiplier=multiplier, acc_dtype=acc_dtype)
        acc = call(anchor, [x, const(weights)], attrs)
    body = requantized(rng, acc, weights)
    if anchor != "nn.depthwise_conv2d" and rng.random() < 0.3:
        other = Var("y", tensor_type(body))
        total = AddAttrs((0, 0), (1 << 30, 1500000000), (0, -1), 1600000000, -14, 0, -32768, 32767, left_shift=15)
        return Function((x, other), call("qnn.add", [body, other], total), {"Primitive": 1})
    return Function((x,), body, {"Primitive": 1})


def requantized(rng: np.random.Generator, acc: Call, weights: Array) -> Call:
    """Sums with a bias and a requantisation to 16 bits, of sizes that their number of taps suggests."""
    anchor, channels, acc_dtype = acc.op.name, acc.type.shape[-1], acc.attrs.acc_dtype
    depth = weights[0].size if anchor != "nn.depthwise_conv2d" else weights[..., 0].size
    typical = 73.0 * 19000.0 * depth**0.5
    bias = rng.integers(-int(typical), int(typical), channels).astype(acc_dtype)
    shift = ceil(log2(typical / 9000))
    reduced = acc_dtype == "int64" and anchor != "nn.dense"
    multipliers = tuple(
        int(v) << 16 if reduced else int(v) << 1 for v in rng.integers(1 << 14, 1 << 15, channels) * (1 if reduced else 32768)
    )
    rounding = "single" if reduced else ("double", "away")[int(acc_dtype == "int64")]
    shifts = tuple(-shift - int(v) for v in rng.integers(0, 3, channels))
    lowest = 0 if anchor == "nn.depthwise_conv2d" and rng.random() < 0.3 else -32768
    highest = 6000 if anchor == "nn.depthwise_conv2d" and rng.random() < 0.3 else 32767
    requant = RequantizeAttrs(multipliers, shifts, 0, lowest, highest, rounding, "int16")
    return call("qnn.requantize", [call("nn.bias_add", [acc, const(bias)])], requant)


def conv2d_case(data: tuple[int, ...], kernel: tuple[int, ...], attrs: Conv2DAttrs) -> Case:
    """A convolution of random numbers by the kernel for two pixels."""
    rng, x = np.random.default_rng(0), Var("x", TensorType(data, "int16"))
    weights = rng.integers(-127, 128, kernel).astype(np.int8)
    body = requantized(rng, call("nn.conv2d", [x, const(weights)], attrs), weights)
    return case_of("nn.conv2d arm_dsp.conv2d_16x8", Function((x,), body, {"Primitive": 1}), rng)


def case_of(name: str, func: Function, rng: np.random.Generator) -> Case:
    """A layer that the kernel takes, with data of any size, now and then the ends only."""
    impl, target, group = KERNELS[name], find_target("cortex-m4"), group_of(func)
    data = rng.integers(-32768, 32768, func.params[0].type.shape).astype(np.int16)
    if rng.random() < 0.1:
        data = np.where(data < 0, -32768, 32767).astype(np.int16)
    inputs = [data, *(rng.integers(-32768, 32768, v.type.shape).astype(np.int16) for v in func.params[1:])]
    text = f"{impl.name} {func.params[0].type} {group.anchor.args[1].type} {group.anchor.attrs}"
    return Case(text, impl.lower(group, target, "kernel"), inputs, evaluate(func, inputs))


def random_cases(name: str, seed: int) -> Iterator[Case]:
    """Endless random layers that the kernel takes."""
    impl, target, rng = KERNELS[name], find_target("cortex-m4"), np.random.default_rng(seed)
    while True:
        func = layer(rng, name.split()[0], pointwise="dense" in impl.name)
        if impl.accepts(group_of(func), target):
            yield case_of(name, func, rng)


@every_kernel
def test_some_in_the_interpreter(name: str) -> None:
    interpreted(islice(random_cases(name, 4), 3))
