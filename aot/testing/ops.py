"""One-operator int8 models, so that operator tests can vary shapes, attributes and quantisation freely.

Each function returns the bytes of a model with random weights (from `seed`).  Quantisation is given as
`Quant(scale, zero_point)`; an omitted output quantisation is chosen so that random inputs use most of the
range and clip a little at both ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack

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


def _int8(b: ModelBuilder, name: str, shape: Shape, quant: Quant, data: np.ndarray | None = None) -> int:
    return b.tensor(name, shape, "int8", scale=quant.scale, zero_point=quant.zero_point, data=data)


def _weights(
    b: ModelBuilder, shape: Shape, *, axis: int, given: Sequence[float] | None, per_channel: bool, peak: int, seed: int
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


class WindowOptions(TypedDict, total=False):
    """The keyword arguments that `conv2d_model` and `depthwise_model` share; `_window_model` has the defaults."""

    strides: Shape
    dilation: Shape
    padding: Padding
    activation: Activation
    x: Quant
    y: Quant | None
    per_channel: bool
    weight_scale: Sequence[float] | None
    seed: int


def conv2d_model(
    *, input_shape: Shape = (1, 7, 6, 3), filters: int = 4, kernel: Shape = (3, 3), groups: int = 1, weight_peak: int = 127,
    **more: Unpack[WindowOptions],
) -> bytes:  # fmt: skip
    """CONV_2D, NHWC input, OHWI weights; `groups` > 1 makes it a grouped convolution.

    There is always a bias: the reference refuses an int8 convolution without one.
    """
    shape = (filters, *kernel, input_shape[-1] // groups)
    return _window_model("CONV_2D", input_shape, shape, peak=weight_peak, **more)


def depthwise_model(
    *, input_shape: Shape = (1, 7, 6, 3), multiplier: int = 1, kernel: Shape = (3, 3), bias: bool = True,
    **more: Unpack[WindowOptions],
) -> bytes:  # fmt: skip
    """DEPTHWISE_CONV_2D, weights 1 x kh x kw x (c * multiplier); TFLite requires equal strides in h and w."""
    shape = (1, *kernel, input_shape[-1] * multiplier)
    own = {"depth_multiplier": multiplier}
    return _window_model("DEPTHWISE_CONV_2D", input_shape, shape, biased=bias, own=own, **more)


def _window_model(
    operator: str, input_shape: Shape, shape: Shape, *, strides: Shape = (1, 1), dilation: Shape = (1, 1),
    padding: Padding = "SAME", activation: Activation = "NONE", x: Quant = INPUT, y: Quant | None = None,
    weight_scale: Sequence[float] | None = None, per_channel: bool = True, seed: int = 0, peak: int = 127, biased: bool = True,
    own: Mapping[str, Any] | None = None,
) -> bytes:  # fmt: skip
    """One convolution with weights of `shape`; `own`: options of this operator alone."""
    depthwise = operator == "DEPTHWISE_CONV_2D"
    axis, kernel = 3 if depthwise else 0, shape[1:3]
    b = ModelBuilder()
    source = _int8(b, "x", input_shape, x)
    weights, scale = _weights(b, shape, axis=axis, given=weight_scale, per_channel=per_channel, peak=peak, seed=seed)
    rms = _rms(int(np.prod(kernel if depthwise else shape[1:])), x) * peak / 127
    bias = [_bias(b, shape[axis], x=x, scale=scale, rms=rms, seed=seed)] if biased else []
    size = _window(input_shape[1:3], kernel, strides=strides, dilation=dilation, padding=padding)
    out = _output(y, x=x, scale=scale, rms=rms, activation=activation)
    result = _int8(b, "y", (input_shape[0], *size, shape[axis]), out)
    b.op(
        operator, [source, weights, *bias], [result], padding=padding, stride_h=strides[0], stride_w=strides[1],
        dilation_h_factor=dilation[0], dilation_w_factor=dilation[1], fused_activation_function=activation, **(own or {}),
    )  # fmt: skip
    return b.build([source], [result])


def dense_model(
    *, input_shape: Shape = (1, 19), units: int = 5, depth: int | None = None, activation: Activation = "NONE",
    x: Quant = INPUT, y: Quant | None = None, per_channel: bool = False, weight_scale: Sequence[float] | None = None,
    bias: bool = True, keep_num_dims: bool = False, seed: int = 0,
) -> bytes:  # fmt: skip
    """FULLY_CONNECTED, weights units x depth (default: the input's last dimension), output size / depth rows."""
    depth = depth or input_shape[-1]
    b = ModelBuilder()
    source = _int8(b, "x", input_shape, x)
    weights, scale = _weights(b, (units, depth), axis=0, given=weight_scale, per_channel=per_channel, peak=127, seed=seed)
    rms = _rms(depth, x)
    biases = _bias(b, units, x=x, scale=scale, rms=rms, seed=seed) if bias else -1
    lead = tuple(input_shape[:-1]) if keep_num_dims else (int(np.prod(input_shape)) // depth,)
    result = _int8(b, "y", (*lead, units), _output(y, x=x, scale=scale, rms=rms, activation=activation))
    inputs = [source, weights, biases]
    b.op("FULLY_CONNECTED", inputs, [result], fused_activation_function=activation, keep_num_dims=keep_num_dims)
    return b.build([source], [result])


def add_model(
    *, shape_a: Shape = (1, 5, 4, 3), shape_b: Shape | None = None, activation: Activation = "NONE", a: Quant = INPUT,
    b: Quant = SECOND_INPUT, y: Quant | None = None, constant_b: bool = False, seed: int = 0,
) -> bytes:  # fmt: skip
    """ADD with broadcasting; the second operand may be a constant."""
    shape_b = shape_a if shape_b is None else shape_b
    m = ModelBuilder()
    data = np.random.default_rng(seed).integers(-128, 127, shape_b, np.int8, endpoint=True)
    left = _int8(m, "a", shape_a, a)
    right = _int8(m, "b", shape_b, b, data if constant_b else None)
    shape = np.broadcast_shapes(tuple(shape_a), tuple(shape_b))
    result = _int8(m, "y", shape, y or Quant(float32(a.scale + b.scale), 4))
    m.op("ADD", [left, right], [result], fused_activation_function=activation)
    return m.build([left] if constant_b else [left, right], [result])


def pool_model(
    *, kind: Literal["AVERAGE_POOL_2D", "MAX_POOL_2D"] = "AVERAGE_POOL_2D", input_shape: Shape = (1, 7, 6, 3),
    kernel: Shape = (2, 2), strides: Shape = (2, 2), padding: Padding = "VALID", activation: Activation = "NONE",
    x: Quant = INPUT,
) -> bytes:  # fmt: skip
    """AVERAGE_POOL_2D or MAX_POOL_2D; the output has the input's quantisation, as TFLite requires."""
    n, h, w, c = input_shape
    size = _window((h, w), kernel, strides=strides, padding=padding)
    return _unary(
        kind, input_shape, (n, *size, c), x=x, y=x, padding=padding, stride_h=strides[0], stride_w=strides[1],
        filter_height=kernel[0], filter_width=kernel[1], fused_activation_function=activation,
    )  # fmt: skip


# ---- reductions, look-ups, and operators that only move data


LOGITS = Quant(float32(0.1), 9)
OTHER = Quant(float32(0.037), 11)
UNIT = Quant(1 / 256, -128)
"""Required by TFLite for the int8 outputs of SOFTMAX and LOGISTIC."""


def _unary(
    operator: str, input_shape: Shape, output_shape: Shape, *, x: Quant | None, y: Quant | None,
    constant: tuple[str, np.ndarray] | None = None, **options: Any,
) -> bytes:  # fmt: skip
    """An operator with one input, and perhaps a `constant` (name, values); tensors without a Quant are float32."""
    b = ModelBuilder()
    source = _int8(b, "x", input_shape, x) if x else b.tensor("x", input_shape, "float32")
    inputs = [source]
    if constant:
        name, data = constant
        inputs.append(b.tensor(name, data.shape, str(data.dtype), data=data))
    result = _int8(b, "y", output_shape, y) if y else b.tensor("y", output_shape, "float32")
    b.op(operator, inputs, [result], **options)
    return b.build([source], [result])


def mean_model(
    *, input_shape: Shape = (1, 5, 4, 3), axes: Sequence[int] = (1, 2), keep_dims: bool = False, x: Quant = INPUT,
    y: Quant | None = None,
) -> bytes:  # fmt: skip
    """MEAN over `axes` (negative ones count from the end)."""
    gone = {a % len(input_shape) for a in axes}
    shape = [1 if i in gone else n for i, n in enumerate(input_shape) if keep_dims or i not in gone]
    constant = ("axes", np.array(axes, np.int32))
    return _unary("MEAN", input_shape, shape, x=x, y=y or x, constant=constant, keep_dims=keep_dims)


def pad_model(
    *, input_shape: Shape = (1, 5, 4, 3), paddings: Sequence[Sequence[int]] = ((0, 0), (1, 2), (0, 3), (0, 0)),
    x: Quant = INPUT, wide_paddings: bool = False,
) -> bytes:  # fmt: skip
    """PAD with (before, after) per dimension; `wide_paddings` stores them as int64."""
    shape = [n + sum(p) for n, p in zip(input_shape, paddings, strict=True)]
    amounts = np.array(paddings, np.int64 if wide_paddings else np.int32)
    return _unary("PAD", input_shape, shape, x=x, y=x, constant=("paddings", amounts))


def reshape_model(
    *, input_shape: Shape = (1, 5, 4, 3), shape: Shape = (1, 60), x: Quant = INPUT, shape_tensor: bool = True
) -> bytes:
    """RESHAPE; the new shape (one -1 allowed) is a constant input or only an option."""
    size = int(np.prod(input_shape))
    product = -int(np.prod(shape))
    full = [size // product if n == -1 else n for n in shape]
    b = ModelBuilder()
    inputs = [_int8(b, "x", input_shape, x)]
    result = _int8(b, "y", full, x)
    if shape_tensor:
        inputs.append(b.tensor("shape", (len(shape),), "int32", data=np.array(shape, np.int32)))
    b.op("RESHAPE", inputs, [result], new_shape=list(shape))
    return b.build(inputs[:1], [result])


def softmax_model(*, input_shape: Shape = (1, 10), beta: float = 1.0, x: Quant = LOGITS, y: Quant = UNIT) -> bytes:
    """SOFTMAX over the last dimension."""
    return _unary("SOFTMAX", input_shape, input_shape, x=x, y=y, beta=beta)


def logistic_model(*, input_shape: Shape = (1, 7, 5), x: Quant = INPUT, y: Quant = UNIT) -> bytes:
    """LOGISTIC (sigmoid)."""
    return _unary("LOGISTIC", input_shape, input_shape, x=x, y=y)


def requantize_model(*, input_shape: Shape = (1, 5, 4, 3), x: Quant = INPUT, y: Quant = OTHER) -> bytes:
    """QUANTIZE from int8 to int8."""
    return _unary("QUANTIZE", input_shape, input_shape, x=x, y=y)


def quantize_model(*, input_shape: Shape = (1, 5, 4, 3), y: Quant = INPUT) -> bytes:
    """QUANTIZE from float32 to int8."""
    return _unary("QUANTIZE", input_shape, input_shape, x=None, y=y)


def dequantize_model(*, input_shape: Shape = (1, 5, 4, 3), x: Quant = INPUT) -> bytes:
    """DEQUANTIZE from int8 to float32."""
    return _unary("DEQUANTIZE", input_shape, input_shape, x=x, y=None)


def concat_model(*, shapes: Sequence[Shape] = ((1, 3, 2), (1, 3, 5)), axis: int = -1, x: Quant = INPUT) -> bytes:
    """CONCATENATION; int8 inputs and output share one quantisation, as TFLite requires."""
    b = ModelBuilder()
    sources = [_int8(b, f"x{i}", s, x) for i, s in enumerate(shapes)]
    shape = list(shapes[0])
    shape[axis] = sum(s[axis] for s in shapes)
    result = _int8(b, "y", shape, x)
    b.op("CONCATENATION", sources, [result], axis=axis, fused_activation_function="NONE")
    return b.build(sources, [result])


def transpose_model(*, input_shape: Shape = (1, 5, 4, 3), perm: Sequence[int] = (0, 3, 1, 2), x: Quant = INPUT) -> bytes:
    """TRANSPOSE: dimension i of the output is dimension perm[i] of the input."""
    shape = [input_shape[p] for p in perm]
    return _unary("TRANSPOSE", input_shape, shape, x=x, y=x, constant=("perm", np.array(perm, np.int32)))


def resize_nearest_model(
    *, input_shape: Shape = (1, 4, 3, 2), size: Sequence[int] = (7, 9), align_corners: bool = False,
    half_pixel_centers: bool = False, x: Quant = INPUT,
) -> bytes:  # fmt: skip
    """RESIZE_NEAREST_NEIGHBOR to `size` = (height, width)."""
    return _unary(
        "RESIZE_NEAREST_NEIGHBOR", input_shape, (input_shape[0], *size, input_shape[3]), x=x, y=x,
        constant=("size", np.array(size, np.int32)), align_corners=align_corners, half_pixel_centers=half_pixel_centers,
    )  # fmt: skip
