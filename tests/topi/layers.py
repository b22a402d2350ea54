"""Random fused layers (convolution, depthwise, fully connected) for kernel tests, and a runner in the TIR interpreter."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2
from typing import Any

import numpy as np

from aot import op as operators
from aot import topi
from aot.ir.op import Array
from aot.ir.type import TensorType, per_tensor
from aot.op.nn.conv import Conv2DAttrs, DepthwiseConv2DAttrs
from aot.op.nn.dense import DenseAttrs
from aot.op.qnn.quantize import RequantizeAttrs
from aot.relay.expr import Function, Var, call, const
from aot.relay.interpreter import evaluate
from aot.target.target import Target
from aot.tir.interpreter import run
from aot.topi.strategy import Lowered, OpImplementation

operators.load_all()
topi.load_all()


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer to try. `kind` is conv, dw or dense; `spread` scales the requantisation so that about that many codes
    are used; with `ends` multipliers and weights are at the ends of their ranges.  `stored` is the weights' type, int8 or
    int4; with a `weight_zp`, as legacy uint8 models have, a weight less it may have nine bits.
    """

    kind: str
    data: tuple[int, ...]
    weight: tuple[int, ...]
    strides: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    pad_value: int = -128
    out_zp: int = -128
    clip: tuple[int, int] = (-128, 127)
    rounding: str = "double"
    per_channel: bool = True
    spread: float = 200.0
    multiplier: int = 1
    seed: int = 0
    ends: bool = False
    stored: str = "int8"
    weight_zp: int = 0


def build(layer: Layer) -> Function:
    """The primitive function anchor + bias_add + requantize of a layer, with seeded constants."""
    rng = np.random.default_rng(layer.seed)
    x = Var("x", TensorType(layer.data, "int8", per_tensor(1.0, layer.pad_value)))
    low, high = (-127, 127) if layer.stored == "int8" else (-8, 7)
    weights = rng.integers(low, high + 1, layer.weight).astype(np.int8)
    if layer.ends:
        weights = np.where(weights < 0, low, high).astype(np.int8)
    w = const(weights, dtype=layer.stored)
    attrs: Any
    if layer.kind == "conv":
        attrs = Conv2DAttrs(layer.strides, layer.padding, layer.dilation, 0, layer.pad_value, layer.weight_zp)
        acc, depth = call("nn.conv2d", [x, w], attrs), weights[0].size
    elif layer.kind == "dw":
        numbers = (0, layer.pad_value, layer.multiplier, layer.weight_zp)
        attrs = DepthwiseConv2DAttrs(layer.strides, layer.padding, layer.dilation, *numbers)
        acc, depth = call("nn.depthwise_conv2d", [x, w], attrs), weights[..., 0].size
    else:
        acc, depth = call("nn.dense", [x, w], DenseAttrs(0, layer.weight_zp)), weights[0].size
    assert isinstance(acc.type, TensorType)
    channels = acc.type.shape[-1]
    typical = 73.0 * (73.0 if layer.stored == "int8" else 4.5) * depth**0.5 * 2
    bias = rng.integers(-int(typical / 4) - 1, int(typical / 4) + 2, channels).astype(np.int32)
    shift = ceil(log2(typical / layer.spread)) + 1
    n = channels if layer.per_channel else 1
    multipliers = tuple(int(v) for v in rng.integers(1 << 30, 1 << 31, n))
    if layer.ends:
        multipliers = tuple(1 << 30 if v & 1 else (1 << 31) - 1 for v in multipliers)
    shifts = tuple(-(shift + int(v)) for v in rng.integers(0, 3, n))
    out = call("nn.bias_add", [acc, const(bias)])
    requant = RequantizeAttrs(multipliers, shifts, layer.out_zp, *layer.clip, layer.rounding)
    return Function((x,), call("qnn.requantize", [out], requant), {"Primitive": 1})


def data_for(layer: Layer) -> Array:
    return np.random.default_rng(layer.seed + 1).integers(-128, 128, layer.data).astype(np.int8)


def interpret(lowered: Lowered, inputs: list[Array], out_shape: tuple[int, ...]) -> Array:
    """Run a kernel in the TIR interpreter; scratch is filled with a poison pattern first."""
    func = lowered.func
    out = np.full(out_shape, 0x55, np.int8)
    buffers: dict[str, Array] = dict(lowered.constants)
    for buffer, value in zip(func.inputs, inputs, strict=True):
        buffers[buffer.name] = value.reshape(buffer.shape)
    buffers[func.outputs[0].name] = out.reshape(func.outputs[0].shape)
    for buffer in func.scratch:
        buffers[buffer.name] = np.frombuffer(bytearray(b"\xa5" * buffer.nbytes), dtype=buffer.dtype).reshape(buffer.shape)
    run(func, buffers)
    return out


def check(impl: OpImplementation, layer: Layer, target: Target) -> int:
    """Compare a kernel with the relay meaning; returns the number of distinct output codes (a layer that saturates
    proves little).
    """
    from aot.executor.candidates import group_of

    func = build(layer)
    group = group_of(func)
    assert impl.accepts(group, target), f"{impl.name} does not take {layer}"
    lowered = impl.lower(group, target, "kernel")
    x = data_for(layer)
    (expected,) = evaluate(func, [x])
    actual = interpret(lowered, [x], expected.shape)
    np.testing.assert_array_equal(actual, expected, err_msg=f"{impl.name}: {layer}")
    return len(np.unique(expected))
