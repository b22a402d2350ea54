"""Constructors with user-friendly parameters: real scales instead of multipliers, padding as a number, axes from the end.

`relay.qnn.requantize(acc, scale=0.0123, zero_point=-5)` computes what the .tflite converter would have computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from aot.ir.type import QuantParams, TensorType
from aot.numerics.fixed_point import quantize_multiplier, softmax_scaling
from aot.op.common.layer import PoolAttrs
from aot.op.math.unary import UnaryAttrs
from aot.op.nn.conv import Conv2DAttrs, Conv2DFloatAttrs, DepthwiseConv2DAttrs, DepthwiseConv2DFloatAttrs
from aot.op.nn.dense import DenseAttrs, DenseFloatAttrs
from aot.op.qnn.arithmetic import AddAttrs, add_attrs
from aot.op.qnn.quantize import ClipAttrs, RequantizeAttrs
from aot.op.qnn.softmax import SoftmaxAttrs
from aot.op.reduce import OPERATORS, ReduceAttrs
from aot.op.tensor import ConcatenateAttrs, PadAttrs, ReshapeAttrs, StridedSliceAttrs, TransposeAttrs
from aot.relay.construct import F_CONSTRUCT, Constructor, constructor, generic, operands_of
from aot.relay.expr import Expr, call, const, refused
from aot.support.dtype import int_range, is_float

Pair = int | Sequence[int]
Numbers = float | Sequence[float]


def _constructor(name: str) -> Callable[[Constructor], Constructor]:
    def register(func: Constructor) -> Constructor:
        F_CONSTRUCT.set(name, func)
        return func

    return register


def _tensor(name: str, x: Any, *, rank: int | None = None) -> TensorType:
    """The type of an operand that must be one tensor."""
    if not isinstance(x, Expr) or not isinstance(x.type, TensorType):
        raise refused(name, f"the operand is a {type(x).__name__ if not isinstance(x, Expr) else x.type}, not a tensor")
    if rank is not None and len(x.type.shape) != rank:
        raise refused(name, f"the operand has {len(x.type.shape)} dimensions, not {rank}: {x.type}")
    return x.type


def _pair(name: str, what: str, value: Any, *, least: int = 1) -> tuple[int, int]:
    """(vertical, horizontal) from a number for both, or from a pair."""
    pair = (value, value) if isinstance(value, int) else value
    if not isinstance(pair, Sequence) or len(pair) != 2 or not all(type(v) is int and v >= least for v in pair):
        raise refused(name, f"{what} must be a number >= {least} or a pair of them, not {value!r}")
    return pair[0], pair[1]


def _padding(name: str, value: Any) -> tuple[int, int, int, int]:
    """(top, left, bottom, right) from a number for all sides, (vertical, horizontal), or all four."""
    sides = value
    if isinstance(value, int):
        sides = (value,) * 4
    elif isinstance(value, Sequence) and len(value) == 2:
        sides = (*value, *value)
    if not isinstance(sides, Sequence) or len(sides) != 4 or not all(type(v) is int and v >= 0 for v in sides):
        raise refused(name, f"padding must be a number, (vertical, horizontal) or (top, left, bottom, right), not {value!r}")
    return sides[0], sides[1], sides[2], sides[3]


def _axis(name: str, axis: Any, rank: int) -> int:
    if type(axis) is not int or not -rank <= axis < rank:
        raise refused(name, f"axis {axis!r} of {rank} dimensions")
    return axis % rank


def _convolution(name: str, doc: str) -> None:
    def convolution(
        data: Expr,
        weight: Any,
        bias: Any = None,
        *,
        strides: Pair = 1,
        padding: Pair = 0,
        dilation: Pair = 1,
        input_zp: int = 0,
        weight_zp: int = 0,
        pad_value: int | None = None,
        acc_dtype: str = "int32",
    ) -> Expr:
        type_, is_depthwise = _tensor(name, data, rank=4), name == "nn.depthwise_conv2d"
        window = _pair(name, "strides", strides), _padding(name, padding), _pair(name, "dilation", dilation)
        if is_float(type_.dtype):
            bounds = (DepthwiseConv2DFloatAttrs if is_depthwise else Conv2DFloatAttrs)(*window)
            return call(f"{name}_float", operands_of(f"{name}_float", *_given(data, weight, bias)), bounds)
        args = operands_of(name, data, weight)
        value = input_zp if pad_value is None else pad_value
        attrs: Conv2DAttrs | DepthwiseConv2DAttrs = Conv2DAttrs(*window, input_zp, value, weight_zp, acc_dtype)
        if is_depthwise:
            multiplier = _tensor(name, args[1], rank=4).shape[3] // type_.shape[3]
            attrs = DepthwiseConv2DAttrs(*window, input_zp, value, multiplier, weight_zp, acc_dtype)
        return _biased(call(name, args, attrs), bias)

    convolution.__doc__ = doc
    F_CONSTRUCT.set(name, convolution)


_convolution(
    "nn.conv2d",
    """Convolution of [N, H, W, I] with [O, KH, KW, I].

    Integers give sums of type `acc_dtype`, with `pad_value` (default: `input_zp`) outside the image; float32 gives float32.
    A `bias` [O] is added, for integers by an nn.bias_add.
    """,
)
_convolution(
    "nn.depthwise_conv2d",
    """Convolution of each channel of [N, H, W, C] with its own filters [1, KH, KW, C*M]; otherwise as nn.conv2d.""",
)


@_constructor("nn.dense")
def dense(
    data: Expr, weight: Any, bias: Any = None, *, input_zp: int = 0, weight_zp: int = 0, acc_dtype: str = "int32"
) -> Expr:  # fmt: skip
    """Rows [M, K] times the rows of [O, K]; the bias as in nn.conv2d."""
    type_ = _tensor("nn.dense", data, rank=2)
    if is_float(type_.dtype):
        return call("nn.dense_float", operands_of("nn.dense_float", *_given(data, weight, bias)), DenseFloatAttrs())
    attrs = DenseAttrs(input_zp, weight_zp, acc_dtype)
    return _biased(call("nn.dense", operands_of("nn.dense", data, weight), attrs), bias)


def _given(*args: Any) -> list[Any]:
    return [a for a in args if a is not None]


def _biased(layer: Expr, bias: Any) -> Expr:
    return layer if bias is None else call("nn.bias_add", operands_of("nn.bias_add", layer, bias))


def _pool(name: str) -> None:
    def pool(data: Expr, pool_size: Pair, *, strides: Pair | None = None, padding: Pair = 0) -> Expr:
        """Pooling of [N, H, W, C] over windows of `pool_size`; `strides` default to it."""
        type_ = _tensor(name, data, rank=4)
        size = _pair(name, "pool_size", pool_size)
        step = size if strides is None else _pair(name, "strides", strides)
        lo, hi = (0, 0) if is_float(type_.dtype) else int_range(type_.dtype)
        return call(name, [data], PoolAttrs(size, step, _padding(name, padding), lo, hi))

    F_CONSTRUCT.set(name, pool)


for _name in ("nn.max_pool2d", "nn.avg_pool2d"):
    _pool(_name)


@_constructor("nn.relu")
def relu(data: Expr) -> Expr:
    """max(x, 0); on integers without a scale.  For quantised values use the zero point: clip(x, zp, 127)."""
    type_ = _tensor("nn.relu", data)
    if is_float(type_.dtype):
        return call("relu", [data], UnaryAttrs(lo=0.0))
    zero = type_.quant.zero_point[0] if type_.quant is not None else 0
    limited: Expr = clip(data, zero, int_range(type_.dtype)[1])
    return limited


@_constructor("clip")
def clip(data: Expr, lo: float, hi: float) -> Expr:
    """Clamp to [lo, hi]."""
    type_ = _tensor("clip", data)
    if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in (lo, hi)) or lo > hi:
        raise refused("clip", f"lo {lo!r} and hi {hi!r} are not a valid range")
    if is_float(type_.dtype):
        return call("relu", [data], UnaryAttrs(lo=float(lo), hi=float(hi)))
    if not isinstance(lo, int) or not isinstance(hi, int):
        raise refused("clip", f"{type_.dtype} must be clamped to integers, not [{lo}, {hi}]")
    return call("clip", [data], ClipAttrs(lo, hi))


@_constructor("qnn.requantize")
def requantize(
    data: Expr,
    scale: Numbers,
    *,
    zero_point: int = 0,
    dtype: str = "int8",
    rounding: str = "double",
    output_scale: float | None = None,
) -> Expr:
    """zero_point + round(acc * scale), clamped to the type; `scale` is one number or one per channel.

    `output_scale` sets the scale in the result's type, and changes no value.
    """
    name = "qnn.requantize"
    _tensor(name, data)
    scales = [scale] if isinstance(scale, int | float) else list(scale)
    if rounding not in ("double", "single", "away"):
        raise refused(name, f"rounding {rounding!r} must be double, single or away")
    if dtype not in ("int8", "int16"):
        raise refused(name, f"dtype must be int8 or int16, not {dtype!r}")
    if not scales or not all(isinstance(s, int | float) and 0 <= s < 2.0**31 for s in scales):
        raise refused(name, f"scale {scale!r} must be a number from 0 to 2^31, or a sequence of them")
    pairs = [quantize_multiplier(s) for s in scales]
    quant = None if output_scale is None else QuantParams((output_scale,), (zero_point,))
    lo, hi = int_range(dtype)
    multipliers, shifts = tuple(m for m, _ in pairs), tuple(s for _, s in pairs)
    return call(name, [data], RequantizeAttrs(multipliers, shifts, zero_point, lo, hi, rounding, dtype, quant))


@_constructor("qnn.quantize")
def quantize(data: Expr, scale: float, zero_point: int = 0, *, dtype: str = "int8") -> Expr:
    """float32 to integers: zero_point + round(x / scale), clamped to the type."""
    if dtype not in ("int8", "uint8", "int16") or not isinstance(scale, int | float) or scale <= 0:
        raise refused("qnn.quantize", f"scale {scale!r} must be positive, and dtype {dtype!r} int8, uint8 or int16")
    return generic("qnn.quantize", data, scale, zero_point, *int_range(dtype), dtype)


@_constructor("qnn.add")
def qnn_add(a: Expr, b: Expr, *, scales: Sequence[float], zero_points: Sequence[int] = (0, 0, 0)) -> Expr:
    """a + b of quantised int8 or int16; `scales` and `zero_points` are those of a, b and the result."""
    name = "qnn.add"
    type_ = _tensor(name, a)
    if type_.dtype not in ("int8", "int16") or len(scales) != 3 or len(zero_points) != 3 or not all(s > 0 for s in scales):
        raise refused(name, "needs int8 or int16, three positive scales and three zero points")
    attrs: AddAttrs | None = add_attrs(type_.dtype, tuple(scales), tuple(zero_points), limits=int_range(type_.dtype))
    if attrs is None:
        raise refused(name, "the result's scale is too small for the operands' scales")
    return call(name, [a, b], attrs)


@_constructor("qnn.softmax")
def softmax(data: Expr, scale: float, *, beta: float = 1.0) -> Expr:
    """Softmax along the last axis of int8 with that scale; the result has scale 1/256 and zero point -128."""
    _tensor("qnn.softmax", data)
    return call("qnn.softmax", [data], SoftmaxAttrs(*softmax_scaling(beta * scale)))


@_constructor("nn.softmax")
def float_softmax(data: Expr) -> Expr:
    """Softmax along the last axis of float32, in the order of TFLite's reference kernel."""
    rank = len(_tensor("nn.softmax", data).shape)
    if not is_float(_tensor("nn.softmax", data).dtype):
        raise refused("nn.softmax", "needs float32; for int8 use relay.qnn.softmax(x, scale)")
    exps = generic("exp", generic("subtract", data, reduced("reduce_max", data, axis=rank - 1, keepdims=True)))
    return generic("divide", exps, reduced("sum", exps, axis=rank - 1, keepdims=True))


@_constructor("reshape")
def reshape(data: Expr, newshape: int | Sequence[int]) -> Expr:
    """The same elements in other dimensions; one of them may be -1, for the remaining extent."""
    type_ = _tensor("reshape", data)
    shape: list[int] = [newshape] if isinstance(newshape, int) else list(newshape)
    if shape.count(-1) == 1:
        product = prod(n for n in shape if n != -1)
        shape[shape.index(-1)] = type_.size // product if product > 0 else 0
    return call("reshape", [data], ReshapeAttrs(tuple(shape)))


@_constructor("transpose")
def transpose(data: Expr, axes: Sequence[int] | None = None) -> Expr:
    """Dimensions permuted; reversed if no axes are given."""
    rank = len(_tensor("transpose", data).shape)
    order = range(rank)[::-1] if axes is None else axes
    return call("transpose", [data], TransposeAttrs(tuple(_axis("transpose", a, rank) for a in order)))


@_constructor("concatenate")
def concatenate(tensors: Sequence[Expr], axis: int = -1) -> Expr:
    """Tensors one after the other along an axis."""
    if isinstance(tensors, Expr) or not tensors:
        raise refused("concatenate", "needs a list of tensors")
    rank = len(_tensor("concatenate", tensors[0]).shape)
    return call("concatenate", tuple(tensors), ConcatenateAttrs(_axis("concatenate", axis, rank)))


@_constructor("nn.pad")
def pad(data: Expr, pad_width: Sequence[Sequence[int]], pad_value: float = 0) -> Expr:
    """A border of `pad_value`: (before, after) per dimension."""
    type_ = _tensor("nn.pad", data)
    value = float(pad_value) if is_float(type_.dtype) else pad_value
    return call("nn.pad", [data], PadAttrs(tuple((int(a), int(b)) for a, b in pad_width), value))


@_constructor("strided_slice")
def strided_slice(data: Expr, begin: Sequence[int], end: Sequence[int], strides: Sequence[int] | None = None) -> Expr:
    """data[begin:end:strides] in each dimension; negative positions as in Python."""
    name = "strided_slice"
    shape = _tensor(name, data).shape
    steps = [1] * len(shape) if strides is None else list(strides)
    if not len(begin) == len(end) == len(steps) == len(shape) or 0 in steps:
        raise refused(name, f"begin, end and strides (not 0) need {len(shape)} entries, not {begin}, {end}, {steps}")
    positions = [range(n)[b:e:s] for n, b, e, s in zip(shape, begin, end, steps, strict=True)]
    if not all(map(len, positions)):
        raise refused(name, f"{begin} to {end} by {steps} selects nothing of {list(shape)}")
    return call(name, [data], StridedSliceAttrs(tuple(r.start for r in positions), tuple(steps), tuple(map(len, positions))))


def reduced(kind: str, data: Expr, *, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Expr:
    """One number per position of the other axes; over all elements if no axis is given."""
    rank = len(_tensor(kind, data).shape)
    axes = range(rank) if axis is None else [axis] if isinstance(axis, int) else axis
    return call(kind, [data], ReduceAttrs(kind, tuple(sorted({_axis(kind, a, rank) for a in axes})), keepdims))


def _reduction(kind: str) -> None:
    def reduce(data: Expr, axis: int | Sequence[int] | None = None, *, keepdims: bool = False) -> Expr:
        return reduced(kind, data, axis=axis, keepdims=keepdims)

    reduce.__doc__ = reduced.__doc__
    F_CONSTRUCT.set(kind, reduce)


for _kind, _ in OPERATORS.values():
    _reduction(_kind)


@_constructor("nn.batch_norm")
def batch_norm(
    data: Any,
    gamma: Any,
    beta: Any,
    moving_mean: Any,
    moving_var: Any,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> tuple[Expr, Expr, Expr]:
    """(data - mean) / sqrt(variance + epsilon) * gamma + beta, as one product and one sum per channel; float32.

    Factors of constants are computed at compile time.  As in TVM, returns (result, moving_mean, moving_var); the last two
    unchanged. Channels are along `axis`; without `center` beta is 0, without `scale` gamma is 1."""
    name = "nn.batch_norm"
    rank = len(_tensor(name, data).shape)
    dtype = _tensor(name, data).dtype
    channels = _tensor(name, data).shape[_axis(name, axis, rank)]
    operands = operands_of(name, data, gamma, beta, moving_mean, moving_var)
    for what, x in zip(("gamma", "beta", "moving_mean", "moving_var"), operands[1:], strict=True):
        if _tensor(name, x).shape != (channels,) or _tensor(name, x).dtype != dtype:
            raise refused(name, f"{what} is {x.type}, not {dtype}[{channels}]")
    x, g, b, mean, var = operands
    spread = generic("rsqrt", generic("add", var, const(np.float32(epsilon) * np.ones(1, np.float32))))
    factor: Expr = generic("multiply", g, spread) if scale else spread
    minus = generic("multiply", mean, factor)
    offset = generic("subtract", b, minus) if center else generic("negative", minus)
    along = [1] * rank
    along[_axis(name, axis, rank)] = channels
    product = generic("multiply", x, constructor("reshape")(factor, tuple(along)))
    return generic("add", product, constructor("reshape")(offset, tuple(along))), mean, var
