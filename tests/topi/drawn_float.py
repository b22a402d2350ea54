"""Random float32 layers for the kernels of arm_fpu and, with --fast-float, of arm_mve.

Awkward sizes, numbers that overflow, zeros of both signs, all tails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from aot.executor.candidates import group_of
from aot.ir.op import Array
from aot.ir.type import QuantParams, TensorType
from aot.op.common.layer import FLOAT_ACTIVATIONS, Bounds
from aot.op.math.arithmetic import BinaryAttrs
from aot.op.math.unary import UnaryAttrs
from aot.op.nn.conv import Conv2DFloatAttrs, DepthwiseConv2DFloatAttrs, FloatTransposeAttrs
from aot.op.nn.dense import BatchMatmulAttrs, DenseFloatAttrs
from aot.op.qnn.quantize import QuantizeAttrs
from aot.relay.expr import Constant, Expr, Function, Var, call
from aot.relay.interpreter import evaluate
from aot.support.dtype import int_range
from aot.target.target import Target, find_target
from aot.topi.strategy import OpImplementation, implementations
from tests.topi.drawn import Case, pick

KERNELS = {
    f"{anchor.removeprefix('nn.')} {impl.name}": (anchor, impl)
    for anchor in (
        "nn.conv2d_float",
        "nn.conv2d_transpose_float",
        "nn.depthwise_conv2d_float",
        "nn.dense_float",
        "nn.batch_matmul",
    )
    for impl in implementations(anchor)
    if impl.anchor != "*"
}
"""Every kernel of these operators, "operator kernel" -> (operator, kernel)."""

TAILS = ("", "", "", "", "sigmoid", "add", "relu", "add relu", "scale", "quantize")


def target_of(impl: OpImplementation) -> Target:
    """A core that the kernel is for."""
    return find_target("cortex-m55").with_fast_float() if impl.name.startswith("arm_mve.") else find_target("cortex-m4")


def random_cases(name: str, seed: int) -> Iterator[Case]:
    """Endless random layers of a kernel; those without NaN, whose sign differs between cores."""
    anchor, impl = KERNELS[name]
    rng = np.random.default_rng(seed)
    while True:
        case = _case(impl, rng, anchor)
        if case is not None and not any(np.isnan(e.astype(np.float32)).any() for e in case.expected):
            yield case


def _case(impl: OpImplementation, rng: np.random.Generator, anchor: str) -> Case | None:
    if anchor == "nn.conv2d_transpose_float":
        func = _transposed(rng)
    elif "matmul" in impl.name:
        func = _product(rng, anchor)
    elif "dense_row" in impl.name:
        func = _row(rng)
    else:
        func = _function(rng, anchor, stored_weights if impl.keeps else _constant)
    group, target = group_of(func), target_of(impl)
    if not impl.accepts(group, target):
        return None
    inputs = [numbers(rng, v.type.shape) for v in func.params]
    if rng.random() < 0.2:
        inputs[0] = np.where(rng.random(inputs[0].shape) < 0.2, np.float32(1e38), inputs[0]).astype(np.float32)
    if rng.random() < 0.05:
        inputs[0].reshape(-1)[int(rng.integers(inputs[0].size))] = np.inf
    tail = [str(f.op) for f in group.followers]
    text = f"{impl.name}: {func.params[0].type} {group.anchor.args[1].type} {group.anchor.attrs} {tail}"
    return Case(text, impl.lower(group, target, "kernel"), inputs, evaluate(func, inputs))


def numbers(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Numbers of all sizes, zeros of both signs among them."""
    values = rng.standard_normal(shape) * 2.0 ** rng.integers(-8, 3, shape)
    zeros = np.where(rng.random(shape) < 0.5, 0.0, -0.0)
    return np.asarray(np.where(rng.random(shape) < 0.1, zeros, values), np.float32)


def _constant(rng: np.random.Generator, shape: tuple[int, ...]) -> Constant:
    return Constant(numbers(rng, shape), TensorType(shape, "float32"))


def stored_weights(rng: np.random.Generator, shape: tuple[int, ...]) -> Constant:
    """Weights that a file has as float16, or as integers with one scale or one a channel, with zero points or without."""
    dtype = ("float16", "int8", "int4", "uint8")[int(rng.integers(4))]
    if dtype == "float16":
        half = (numbers(rng, shape) * 2.0 ** pick(rng, 0, 0, -14)).astype(np.float16)  # some subnormal
        return Constant(half.astype(np.float32), TensorType(shape, "float32"), stored=TensorType(shape, dtype))
    low, high = int_range(dtype)
    axis = pick(rng, 0, len(shape) - 1) if rng.random() < 0.6 else None
    count = 1 if axis is None else shape[axis]
    zero = rng.integers(low, high, count, endpoint=True) * (dtype == "uint8" or rng.random() < 0.4)
    scale = rng.uniform(0.0001, 0.2, count).astype(np.float32)
    along = [-1 if a == axis else 1 for a in range(len(shape))]
    centred = rng.integers(low, high, shape, endpoint=True) - zero.reshape(along)
    quant = QuantParams(tuple(map(float, scale)), tuple(map(int, zero)), axis)
    value = scale.reshape(along) * centred.astype(np.float32)
    return Constant(value, TensorType(shape, "float32"), stored=TensorType(shape, dtype, quant))


def _function(
    rng: np.random.Generator, anchor: str, weights: Callable[[np.random.Generator, tuple[int, ...]], Constant]
) -> Function:
    names = list(FLOAT_ACTIVATIONS)
    lo, hi = (None, None) if rng.random() < 0.1 else FLOAT_ACTIVATIONS[names[int(rng.integers(len(names)))]]
    depth, channels = pick(rng, 1, 2, 3, 4, 5, 8, 12, 17), pick(rng, 1, 2, 3, 4, 5, 7, 8, 9, 16, 19)
    attrs: Any = DenseFloatAttrs(lo, hi)
    if anchor == "nn.dense_float":
        depth *= pick(rng, 1, 1, 3, 11)
        x, weight = Var("x", TensorType((pick(rng, 1, 1, 1, 2, 3, 5), depth), "float32")), (channels, depth)
    else:
        depthwise = anchor.startswith("nn.depthwise")
        kernel = (pick(rng, 1, 1, 2, 3, 5), pick(rng, 1, 1, 2, 3, 5, 9))
        dilation = (pick(rng, 1, 1, 1, 2), pick(rng, 1, 1, 1, 2, 3))
        strides = (pick(rng, 1, 1, 2, 3), pick(rng, 1, 1, 2, 3))
        size, pads = [], []
        for k, d in zip(kernel, dilation, strict=True):
            reach = (k - 1) * d
            before, after = int(rng.integers(0, reach + 1)), int(rng.integers(0, reach + 1))
            size.append(max(1, reach + 1 - before - after) + pick(rng, 0, 1, 2, 3, 6))
            pads.append((before, after))
        padding = (pads[0][0], pads[1][0], pads[0][1], pads[1][1])
        multiplier = pick(rng, 1, 1, 1, 2) if depth > 1 else pick(rng, 1, 3, 8)
        attrs = (DepthwiseConv2DFloatAttrs if depthwise else Conv2DFloatAttrs)(strides, padding, dilation, lo, hi)
        x = Var("x", TensorType((pick(rng, 1, 1, 2), size[0], size[1], depth), "float32"))
        weight = (1, *kernel, depth * multiplier) if depthwise else (channels, *kernel, depth)
        channels = weight[3] if depthwise else channels
    bias = [_constant(rng, (channels,))] if rng.random() < 0.8 else []
    return _with_tail(rng, (x,), call(anchor, [x, weights(rng, weight), *bias], attrs))


def _row(rng: np.random.Generator) -> Function:
    """One row by many channels or few, with a bias or without one, with a RELU or none."""
    depth, channels = (
        pick(rng, 1, 2, 3, 5, 8, 12, 16, 17, 33, 64, 97, 128),
        pick(rng, 1, 2, 3, 4, 5, 8, 9, 10, 16, 19, 40, 67, 131),
    )
    lo, hi = (None, None) if rng.random() < 0.1 else FLOAT_ACTIVATIONS[("NONE", "RELU")[pick(rng, 0, 1)]]
    bias = [_constant(rng, (channels,))] if rng.random() < 0.7 else []
    x, weight = Var("x", TensorType((1, depth), "float32")), _constant(rng, (channels, depth))
    return Function((x,), call("nn.dense_float", [x, weight, *bias], DenseFloatAttrs(lo, hi)), {"Primitive": 1})


def _transposed(rng: np.random.Generator) -> Function:
    """Windows up to 5, strides up to 3, SAME, VALID or cut otherwise; a RELU after some."""
    strides = (pick(rng, 1, 2, 2, 3), pick(rng, 1, 2, 2))
    kernel = (pick(rng, 1, 2, 3, 3, 4, 5), pick(rng, 2, 3, 3, 4))
    image = (pick(rng, 1, 2, 3, 5), pick(rng, 1, 2, 3, 4, 7))
    depth, channels = pick(rng, 1, 3, 4, 8, 17), pick(rng, 1, 2, 4, 8, 9)
    cut = (int(rng.integers(0, 2)), int(rng.integers(0, 2)))
    size = [n * s + pick(rng, -1, 0, 0, max(k - s, 0)) for n, s, k in zip(image, strides, kernel, strict=True)]
    lo, hi = FLOAT_ACTIVATIONS[("NONE", "RELU", "RELU6")[pick(rng, 0, 1, 2)]]
    attrs = FloatTransposeAttrs(strides, cut, (max(1, size[0]), max(1, size[1])), Bounds(lo, hi))
    x = Var("x", TensorType((pick(rng, 1, 1, 2), *image, depth), "float32"))
    bias = [_constant(rng, (channels,))] if rng.random() < 0.8 else []
    body = call("nn.conv2d_transpose_float", [x, _constant(rng, (channels, *kernel, depth)), *bias], attrs)
    if rng.random() < 0.2:
        body = call("relu", [body], UnaryAttrs(lo=0.0, hi=(None, 6.0)[pick(rng, 0, 1)]))
    return Function((x,), body, {"Primitive": 1})


def _product(rng: np.random.Generator, anchor: str) -> Function:
    """Two matrices that are not constant: as a fully connected layer has them, or stored either way, some for all of a batch."""
    m, k, n = pick(rng, 1, 2, 3, 5, 8, 11), pick(rng, 1, 2, 5, 8, 9, 16, 21, 40), pick(rng, 1, 2, 3, 5, 7, 8, 9, 16, 19, 37)
    if anchor == "nn.dense_float":
        x, y = Var("x", TensorType((m, k), "float32")), Var("y", TensorType((n, k), "float32"))
        lo, hi = list(FLOAT_ACTIVATIONS.values())[int(rng.integers(len(FLOAT_ACTIVATIONS)))]
        bias = [_constant(rng, (n,))] if rng.random() < 0.7 else []
        return _with_tail(rng, (x, y), call(anchor, [x, y, *bias], DenseFloatAttrs(lo, hi)))
    lead = tuple(pick(rng, 1, 2, 3) for _ in range(pick(rng, 0, 1, 1, 2)))
    sides = []
    for _ in range(2):
        own = tuple(1 if rng.random() < 0.2 else extent for extent in lead)
        sides.append(own[pick(rng, 0, 0, len(own)) :])
    adj_x, adj_y = rng.random() < 0.4, rng.random() < 0.5
    x = Var("x", TensorType((*sides[0], *((k, m) if adj_x else (m, k))), "float32"))
    y = Var("y", TensorType((*sides[1], *((n, k) if adj_y else (k, n))), "float32"))
    same = x.type == y.type and rng.random() < 0.5
    attrs = BatchMatmulAttrs(bool(adj_x), bool(adj_y), acc_dtype="float32")
    return _with_tail(rng, (x,) if same else (x, y), call(anchor, [x, x if same else y], attrs))


def _with_tail(rng: np.random.Generator, params: tuple[Var, ...], body: Expr) -> Function:
    assert isinstance(body.type, TensorType)
    shape = body.type.shape
    match TAILS[int(rng.integers(len(TAILS)))]:
        case "sigmoid":
            body = call("sigmoid", [body], UnaryAttrs())
        case "add":
            params = (*params, Var("y", TensorType(shape, "float32")))
            body = call("add", [params[-1], body], BinaryAttrs())
        case "relu":
            body = call("relu", [body], UnaryAttrs(lo=0.0, hi=(None, 6.0)[pick(rng, 0, 1)]))
        case "add relu":
            params = (*params, Var("y", TensorType(shape, "float32")))
            total = call("add", [body, params[-1]], BinaryAttrs(*FLOAT_ACTIVATIONS["NONE"]))
            body = call("relu", [total], UnaryAttrs(lo=0.0))
        case "scale":
            body = call("multiply", [body, _constant(rng, shape[-1:])], BinaryAttrs())
            body = call("add", [body, _constant(rng, (1,) * (len(shape) - 1) + shape[-1:])], BinaryAttrs())
        case "quantize":
            body = call("qnn.quantize", [body], QuantizeAttrs(0.05, 3, -128, 127))
    return Function(params, body, {"Primitive": 1})
