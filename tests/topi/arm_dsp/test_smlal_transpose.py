"""Transposed convolutions as sub-pixel ones: random layers in the interpreter, on the host and in QEMU."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from math import ceil, log2

import numpy as np
import pytest

from aot.executor.candidates import group_of
from aot.ir.type import TensorType, per_tensor
from aot.op.nn.conv import Conv2DTransposeAttrs
from aot.op.qnn.lut import LutAttrs
from aot.op.qnn.quantize import RequantizeAttrs
from aot.relay.expr import Function, Var, call, const
from aot.relay.interpreter import evaluate
from aot.target.target import find_target
from aot.topi.strategy import implementations
from tests.topi.drawn import Case, pick
from tests.topi.runs import interpreted

KERNELS = {i.name: i for i in implementations("nn.conv2d_transpose") if i.name.startswith("arm_dsp.")}


def layer(seed: int) -> Function:
    """A random layer: windows up to 5, strides up to 3, SAME or VALID or cut otherwise."""
    rng = np.random.default_rng(seed)
    kernel, strides = (pick(rng, 1, 2, 3, 3, 4, 5), pick(rng, 2, 3, 3, 4)), (pick(rng, 1, 2, 2, 3), pick(rng, 1, 2, 2))
    image = (pick(rng, 1, 2, 3, 5), pick(rng, 2, 3, 4, 7))
    depth, channels = pick(rng, 1, 3, 4, 8, 17), pick(rng, 1, 2, 4, 5, 9)
    cut = (int(rng.integers(0, 2)), int(rng.integers(0, 2)))
    sizes = [n * s + pick(rng, 0, 0, max(k - s, 0)) for n, s, k in zip(image, strides, kernel, strict=True)]
    zp, out_zp = pick(rng, -128, 0, 5, 127), pick(rng, -128, 0, 9)
    x = Var("x", TensorType((1, *image, depth), "int8", per_tensor(1.0, zp)))
    weights = rng.integers(-127, 128, (channels, *kernel, depth)).astype(np.int8)
    if rng.random() < 0.1:
        weights = np.where(weights < 0, -128, 127).astype(np.int8)
    acc = call("nn.conv2d_transpose", [x, const(weights)], Conv2DTransposeAttrs(strides, cut, (sizes[0], sizes[1]), zp))
    typical = 73.0 * 73.0 * (kernel[0] * kernel[1] * depth) ** 0.5
    bias = rng.integers(-int(typical), int(typical), channels).astype(np.int32)
    shift = ceil(log2(typical / 100))
    numbers = [
        tuple(int(v) for v in rng.integers(1 << 30, 1 << 31, channels)),
        tuple(-shift - int(v) for v in rng.integers(0, 3, channels)),
    ]
    requant = RequantizeAttrs(*numbers, out_zp, -128, 127, ("double", "single")[pick(rng, 0, 1)])
    body = call("qnn.requantize", [call("nn.bias_add", [acc, const(bias)])], requant)
    if rng.random() < 0.2:
        body = call("qnn.lut", [body], LutAttrs(tuple(int(v) for v in rng.integers(-128, 128, 256))))
    return Function((x,), body, {"Primitive": 1})


def random_cases(seed: int, *, kernel: str) -> Iterator[Case]:
    """Endless random layers that the kernel takes."""
    impl = KERNELS[kernel]
    target = find_target("cortex-m4")
    for n in range(seed << 24, (seed + 1) << 24):
        func = layer(n)
        group = group_of(func)
        if not impl.accepts(group, target):
            continue
        data = np.random.default_rng(n + 1).integers(-128, 128, func.params[0].type.shape).astype(np.int8)
        text = f"{kernel} {func.params[0].type} {group.anchor.args[1].type} {group.anchor.attrs}"
        yield Case(text, impl.lower(group, target, "kernel"), [data], evaluate(func, [data]))


@pytest.mark.parametrize("kernel", KERNELS)
def test_some_in_the_interpreter(kernel: str) -> None:
    interpreted(islice(random_cases(4, kernel=kernel), 4))
