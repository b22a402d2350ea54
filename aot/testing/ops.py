"""One-operator int8 models, so that operator tests can vary shapes, attributes and quantisation freely.

Each function returns the bytes of a model with random weights (from `seed`).  Quantisation is given as
`Quant(scale, zero_point)`; an omitted output quantisation is chosen so that random inputs use most of the
range and clip a little at both ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from aot.testing.builder import ModelBuilder, Quant, float32

Padding = Literal["SAME", "VALID"]
Activation = Literal["NONE", "RELU", "RELU6", "RELU_N1_TO_1"]
Shape = Sequence[int]

INPUT = Quant(float32(0.05), -3)
SECOND_INPUT = Quant(float32(0.031), 17)
SIGMA_CODES = 50
"""Quantisation steps per standard deviation of the output, by default: +-2.5 sigma fit in int8."""

OUTPUT_SIZE = {
    "SAME": lambda n, k, stride, dilation: -(-n // stride),
    "VALID": lambda n, k, stride, dilation: (n - (k - 1) * dilation - 1) // stride + 1,
}


def output_size(n: int, k: int, *, stride: int, dilation: int = 1, padding: Padding) -> int:
    """Extent of a convolution's or pooling's output (TFLite: ComputeOutSize)."""
    return int(OUTPUT_SIZE[padding](n, k, stride, dilation))


def _window(extents: Shape, kernel: Shape, *, strides: Shape, dilation: Shape = (1, 1), padding: Padding) -> list[int]:
    """Output height and width of a sliding window."""
    return [
        output_size(n, k, stride=s, dilation=d, padding=padding)
        for n, k, s, d in zip(extents, kernel, strides, dilation, strict=True)
    ]


def _weights(
    b: ModelBuilder,
    shape: Shape,
    *,
    axis: int,
    given: Sequence[float] | None,
    per_channel: bool,
    peak: int = 127,
    seed: int,
) -> tuple[int, np.ndarray]:
    """Add an int8 weight tensor (values -peak..peak); returns its index and scales."""
    rng = np.random.default_rng([seed, 1])
    scale = rng.uniform(0.004, 0.02, shape[axis] if per_channel else 1).astype(np.float32)
    if given is not None:
        scale = np.array(given, np.float32)
    data = rng.integers(-peak, peak, shape, np.int8, endpoint=True)
    return b.tensor("weights", shape, "int8", scale=scale, axis=axis, data=data), scale


def _bias(b: ModelBuilder, channels: int, *, x: Quant, scale: np.ndarray, rms: float, seed: int) -> int:
    """Add an int32 bias with a spread comparable to the products' (rms, in accumulator units)."""
    spread = max(int(rms), 1)
    data = np.random.default_rng([seed, 2]).integers(-spread, spread, channels, np.int32, endpoint=True)
    return b.tensor("bias", (channels,), "int32", scale=np.float32(x.scale) * scale, data=data)


def _rms(depth: int, x: Quant) -> float:
    """Root mean square of a sum of `depth` products of random int8 inputs and weights."""
    return float(np.sqrt(depth) * np.hypot(73.9, x.zero_point + 0.5) * 73.3)


def _output(given: Quant | None, *, x: Quant, scale: np.ndarray, rms: float, activation: str) -> Quant:
    if given is not None:
        return given
    step = float32(x.scale * float(scale.mean()) * rms / SIGMA_CODES)
    return Quant(step, -128 if activation.startswith("RELU") and activation != "RELU_N1_TO_1" else 5)


def conv2d_model(
    *,
    input_shape: Shape = (1, 7, 6, 3),
    filters: int = 4,
    kernel: Shape = (3, 3),
    strides: Shape = (1, 1),
    dilation: Shape = (1, 1),
    padding: Padding = "SAME",
    activation: Activation = "NONE",
    x: Quant = INPUT,
    y: Quant | None = None,
    per_channel: bool = True,
    weight_scale: Sequence[float] | None = None,
    weight_peak: int = 127,
    groups: int = 1,
    seed: int = 0,
) -> bytes:
    """CONV_2D, NHWC input, OHWI weights; `groups` > 1 makes it a grouped convolution.

    There is always a bias: the reference refuses an int8 convolution without one.
    """
    shape = (filters, *kernel, input_shape[-1] // groups)
    return _window_model(
        "CONV_2D", input_shape, shape, strides=strides, dilation=dilation, padding=padding, activation=activation, x=x, y=y,
        weight_scale=weight_scale, per_channel=per_channel, seed=seed, peak=weight_peak,
    )  # fmt: skip


def depthwise_model(
    *,
    input_shape: Shape = (1, 7, 6, 3),
    multiplier: int = 1,
    kernel: Shape = (3, 3),
    strides: Shape = (1, 1),
    dilation: Shape = (1, 1),
    padding: Padding = "SAME",
    activation: Activation = "NONE",
    x: Quant = INPUT,
    y: Quant | None = None,
    per_channel: bool = True,
    weight_scale: Sequence[float] | None = None,
    bias: bool = True,
    seed: int = 0,
) -> bytes:
    """DEPTHWISE_CONV_2D, weights 1 x kh x kw x (c * multiplier); TFLite requires equal strides in h and w."""
    shape = (1, *kernel, input_shape[-1] * multiplier)
    return _window_model(
        "DEPTHWISE_CONV_2D", input_shape, shape, strides=strides, dilation=dilation, padding=padding, activation=activation,
        x=x, y=y, weight_scale=weight_scale, per_channel=per_channel, seed=seed, biased=bias,
        own={"depth_multiplier": multiplier},
    )  # fmt: skip


def _window_model(
    operator: str, input_shape: Shape, shape: Shape, *, strides: Shape, dilation: Shape, padding: Padding, activation: Activation,
    x: Quant, y: Quant | None, weight_scale: Sequence[float] | None, per_channel: bool, seed: int, peak: int = 127,
    biased: bool = True, own: Mapping[str, Any] | None = None,
) -> bytes:  # fmt: skip
    """One convolution with weights of `shape`; `own`: options of this operator alone."""
    depthwise = operator == "DEPTHWISE_CONV_2D"
    axis, kernel = 3 if depthwise else 0, shape[1:3]
    b = ModelBuilder()
    source = b.tensor("x", input_shape, "int8", scale=x.scale, zero_point=x.zero_point)
    weights, scale = _weights(b, shape, axis=axis, given=weight_scale, per_channel=per_channel, peak=peak, seed=seed)
    rms = _rms(int(np.prod(kernel if depthwise else shape[1:])), x) * peak / 127
    bias = [_bias(b, shape[axis], x=x, scale=scale, rms=rms, seed=seed)] if biased else []
    out = _output(y, x=x, scale=scale, rms=rms, activation=activation)
    size = _window(input_shape[1:3], kernel, strides=strides, dilation=dilation, padding=padding)
    result = b.tensor("y", (input_shape[0], *size, shape[axis]), "int8", scale=out.scale, zero_point=out.zero_point)
    b.op(
        operator, [source, weights, *bias], [result], padding=padding, stride_h=strides[0], stride_w=strides[1],
        dilation_h_factor=dilation[0], dilation_w_factor=dilation[1], fused_activation_function=activation, **(own or {}),
    )  # fmt: skip
    return b.build([source], [result])


def dense_model(
    *,
    input_shape: Shape = (1, 19),
    units: int = 5,
    depth: int | None = None,
    activation: Activation = "NONE",
    x: Quant = INPUT,
    y: Quant | None = None,
    per_channel: bool = False,
    weight_scale: Sequence[float] | None = None,
    bias: bool = True,
    keep_num_dims: bool = False,
    seed: int = 0,
) -> bytes:
    """FULLY_CONNECTED, weights units x depth (default: the input's last dimension), output size / depth rows."""
    depth = depth or input_shape[-1]
    b = ModelBuilder()
    source = b.tensor("x", input_shape, "int8", scale=x.scale, zero_point=x.zero_point)
    weights, scale = _weights(b, (units, depth), axis=0, given=weight_scale, per_channel=per_channel, seed=seed)
    rms = _rms(depth, x)
    inputs = [source, weights]
    inputs.append(_bias(b, units, x=x, scale=scale, rms=rms, seed=seed) if bias else -1)
    out = _output(y, x=x, scale=scale, rms=rms, activation=activation)
    lead = tuple(input_shape[:-1]) if keep_num_dims else (int(np.prod(input_shape)) // depth,)
    result = b.tensor("y", (*lead, units), "int8", scale=out.scale, zero_point=out.zero_point)
    b.op(
        "FULLY_CONNECTED",
        inputs,
        [result],
        fused_activation_function=activation,
        keep_num_dims=keep_num_dims,
    )
    return b.build([source], [result])


def add_model(
    *,
    shape_a: Shape = (1, 5, 4, 3),
    shape_b: Shape | None = None,
    activation: Activation = "NONE",
    a: Quant = INPUT,
    b: Quant = SECOND_INPUT,
    y: Quant | None = None,
    constant_b: bool = False,
    seed: int = 0,
) -> bytes:
    """ADD with broadcasting; the second operand may be a constant."""
    shape_b = shape_a if shape_b is None else shape_b
    m = ModelBuilder()
    data = np.random.default_rng(seed).integers(-128, 127, shape_b, np.int8, endpoint=True)
    left = m.tensor("a", shape_a, "int8", scale=a.scale, zero_point=a.zero_point)
    right = m.tensor("b", shape_b, "int8", scale=b.scale, zero_point=b.zero_point, data=data if constant_b else None)
    out = y or Quant(float32(a.scale + b.scale), 4)
    shape = np.broadcast_shapes(tuple(shape_a), tuple(shape_b))
    result = m.tensor("y", shape, "int8", scale=out.scale, zero_point=out.zero_point)
    m.op("ADD", [left, right], [result], fused_activation_function=activation)
    return m.build([left] if constant_b else [left, right], [result])


def pool_model(
    *,
    kind: Literal["AVERAGE_POOL_2D", "MAX_POOL_2D"] = "AVERAGE_POOL_2D",
    input_shape: Shape = (1, 7, 6, 3),
    kernel: Shape = (2, 2),
    strides: Shape = (2, 2),
    padding: Padding = "VALID",
    activation: Activation = "NONE",
    x: Quant = INPUT,
) -> bytes:
    """AVERAGE_POOL_2D or MAX_POOL_2D; the output has the input's quantisation, as TFLite requires."""
    n, h, w, c = input_shape
    b = ModelBuilder()
    source = b.tensor("x", input_shape, "int8", scale=x.scale, zero_point=x.zero_point)
    size = _window((h, w), kernel, strides=strides, padding=padding)
    result = b.tensor("y", (n, *size, c), "int8", scale=x.scale, zero_point=x.zero_point)
    b.op(
        kind,
        [source],
        [result],
        padding=padding,
        stride_h=strides[0],
        stride_w=strides[1],
        filter_height=kernel[0],
        filter_width=kernel[1],
        fused_activation_function=activation,
    )
    return b.build([source], [result])


# ---- reductions, look-ups, and operators that only move data


LOGITS = Quant(float32(0.1), 9)
OTHER = Quant(float32(0.037), 11)
UNIT = Quant(1 / 256, -128)
"""Required by TFLite for the int8 outputs of SOFTMAX and LOGISTIC."""


def _unary(name: str, *, shapes: tuple[Shape, Shape], x: Quant, y: Quant, **options: Any) -> bytes:
    b = ModelBuilder()
    source = b.tensor("x", shapes[0], "int8", scale=x.scale, zero_point=x.zero_point)
    result = b.tensor("y", shapes[1], "int8", scale=y.scale, zero_point=y.zero_point)
    b.op(name, [source], [result], **options)
    return b.build([source], [result])


def mean_model(
    *,
    input_shape: Shape = (1, 5, 4, 3),
    axes: Sequence[int] = (1, 2),
    keep_dims: bool = False,
    x: Quant = INPUT,
    y: Quant | None = None,
) -> bytes:
    """MEAN over `axes` (negative ones count from the end)."""
    out = y or x
    b = ModelBuilder()
    source = b.tensor("x", input_shape, "int8", scale=x.scale, zero_point=x.zero_point)
    axis = b.tensor("axes", (len(axes),), "int32", data=np.array(axes, np.int32))
    gone = {a % len(input_shape) for a in axes}
    shape = [1 if i in gone else n for i, n in enumerate(input_shape) if keep_dims or i not in gone]
    result = b.tensor("y", shape, "int8", scale=out.scale, zero_point=out.zero_point)
    b.op("MEAN", [source, axis], [result], keep_dims=keep_dims)
    return b.build([source], [result])


def pad_model(
    *,
    input_shape: Shape = (1, 5, 4, 3),
    paddings: Sequence[Sequence[int]] = ((0, 0), (1, 2), (0, 3), (0, 0)),
    x: Quant = INPUT,
    wide_paddings: bool = False,
) -> bytes:
    """PAD with (before, after) per dimension; `wide_paddings` stores them as int64."""
    b = ModelBuilder()
    source = b.tensor("x", input_shape, "int8", scale=x.scale, zero_point=x.zero_point)
    dtype = "int64" if wide_paddings else "int32"
    amounts = b.tensor("paddings", (len(input_shape), 2), dtype, data=np.array(paddings, dtype))
    shape = [n + sum(p) for n, p in zip(input_shape, paddings, strict=True)]
    result = b.tensor("y", shape, "int8", scale=x.scale, zero_point=x.zero_point)
    b.op("PAD", [source, amounts], [result])
    return b.build([source], [result])


def reshape_model(
    *,
    input_shape: Shape = (1, 5, 4, 3),
    shape: Shape = (1, 60),
    x: Quant = INPUT,
    shape_tensor: bool = True,
) -> bytes:
    """RESHAPE; the new shape (one -1 allowed) is a constant input or only an option."""
    size = int(np.prod(input_shape))
    product = -int(np.prod(shape))
    full = [size // product if n == -1 else n for n in shape]
    b = ModelBuilder()
    source = b.tensor("x", input_shape, "int8", scale=x.scale, zero_point=x.zero_point)
    result = b.tensor("y", full, "int8", scale=x.scale, zero_point=x.zero_point)
    inputs = [source]
    if shape_tensor:
        inputs.append(b.tensor("shape", (len(shape),), "int32", data=np.array(shape, np.int32)))
    b.op("RESHAPE", inputs, [result], new_shape=list(shape))
    return b.build([source], [result])


def softmax_model(*, input_shape: Shape = (1, 10), beta: float = 1.0, x: Quant = LOGITS, y: Quant = UNIT) -> bytes:
    """SOFTMAX over the last dimension."""
    return _unary("SOFTMAX", shapes=(input_shape, input_shape), x=x, y=y, beta=beta)


def logistic_model(*, input_shape: Shape = (1, 7, 5), x: Quant = INPUT, y: Quant = UNIT) -> bytes:
    """LOGISTIC (sigmoid)."""
    return _unary("LOGISTIC", shapes=(input_shape, input_shape), x=x, y=y)


def requantize_model(*, input_shape: Shape = (1, 5, 4, 3), x: Quant = INPUT, y: Quant = OTHER) -> bytes:
    """QUANTIZE from int8 to int8."""
    return _unary("QUANTIZE", shapes=(input_shape, input_shape), x=x, y=y)


def quantize_model(*, input_shape: Shape = (1, 5, 4, 3), y: Quant = INPUT) -> bytes:
    """QUANTIZE from float32 to int8."""
    b = ModelBuilder()
    source = b.tensor("x", input_shape, "float32")
    result = b.tensor("y", input_shape, "int8", scale=y.scale, zero_point=y.zero_point)
    b.op("QUANTIZE", [source], [result])
    return b.build([source], [result])


def dequantize_model(*, input_shape: Shape = (1, 5, 4, 3), x: Quant = INPUT) -> bytes:
    """DEQUANTIZE from int8 to float32."""
    b = ModelBuilder()
    source = b.tensor("x", input_shape, "int8", scale=x.scale, zero_point=x.zero_point)
    result = b.tensor("y", input_shape, "float32")
    b.op("DEQUANTIZE", [source], [result])
    return b.build([source], [result])


def concat_model(*, shapes: Sequence[Shape] = ((1, 3, 2), (1, 3, 5)), axis: int = -1, x: Quant = INPUT) -> bytes:
    """CONCATENATION; int8 inputs and output share one quantisation, as TFLite requires."""
    b = ModelBuilder()
    sources = [b.tensor(f"x{i}", s, "int8", scale=x.scale, zero_point=x.zero_point) for i, s in enumerate(shapes)]
    shape = list(shapes[0])
    shape[axis] = sum(s[axis] for s in shapes)
    result = b.tensor("y", shape, "int8", scale=x.scale, zero_point=x.zero_point)
    b.op("CONCATENATION", sources, [result], axis=axis, fused_activation_function="NONE")
    return b.build(sources, [result])


def transpose_model(*, input_shape: Shape = (1, 5, 4, 3), perm: Sequence[int] = (0, 3, 1, 2), x: Quant = INPUT) -> bytes:
    """TRANSPOSE: dimension i of the output is dimension perm[i] of the input."""
    b = ModelBuilder()
    source = b.tensor("x", input_shape, "int8", scale=x.scale, zero_point=x.zero_point)
    order = b.tensor("perm", (len(perm),), "int32", data=np.array(perm, np.int32))
    shape = [input_shape[p] for p in perm]
    result = b.tensor("y", shape, "int8", scale=x.scale, zero_point=x.zero_point)
    b.op("TRANSPOSE", [source, order], [result])
    return b.build([source], [result])


def resize_nearest_model(
    *,
    input_shape: Shape = (1, 4, 3, 2),
    size: Sequence[int] = (7, 9),
    align_corners: bool = False,
    half_pixel_centers: bool = False,
    x: Quant = INPUT,
) -> bytes:
    """RESIZE_NEAREST_NEIGHBOR to `size` = (height, width)."""
    b = ModelBuilder()
    source = b.tensor("x", input_shape, "int8", scale=x.scale, zero_point=x.zero_point)
    new_size = b.tensor("size", (2,), "int32", data=np.array(size, np.int32))
    shape = (input_shape[0], size[0], size[1], input_shape[3])
    result = b.tensor("y", shape, "int8", scale=x.scale, zero_point=x.zero_point)
    b.op(
        "RESIZE_NEAREST_NEIGHBOR",
        [source, new_size],
        [result],
        align_corners=align_corners,
        half_pixel_centers=half_pixel_centers,
    )
    return b.build([source], [result])
