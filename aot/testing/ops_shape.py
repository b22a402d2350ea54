"""One-operator int8 models, continued: reductions, look-ups, and operators that only move data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aot.testing.builder import ModelBuilder
from aot.testing.ops import INPUT, Shape
from aot.testing.quant import Quant, float32

LOGITS = Quant(float32(0.1), 9)
OTHER = Quant(float32(0.037), 11)
UNIT = Quant(1 / 256, -128)
"""What TFLite demands of the int8 outputs of SOFTMAX and LOGISTIC."""


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
    known = -int(np.prod(shape))
    full = [size // known if n == -1 else n for n in shape]
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
    """CONCATENATION; int8 inputs and output share one quantisation, as TFLite demands."""
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
    wanted = b.tensor("size", (2,), "int32", data=np.array(size, np.int32))
    shape = (input_shape[0], size[0], size[1], input_shape[3])
    result = b.tensor("y", shape, "int8", scale=x.scale, zero_point=x.zero_point)
    b.op(
        "RESIZE_NEAREST_NEIGHBOR",
        [source, wanted],
        [result],
        align_corners=align_corners,
        half_pixel_centers=half_pixel_centers,
    )
    return b.build([source], [result])
