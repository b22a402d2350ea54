"""qnn.dense_blockwise: FULLY_CONNECTED of float32 data with 4-bit weights that have a scale for each block of a row.

The data is quantised row by row (qnn.dynamic_quantize, asymmetric).  With sums a_b of quantised values
times weights and w_b of weights of
block b: out = (sum of a_b * scale_b - zp * sum of w_b * scale_b) * data_scale + bias, all in float32 in this order.
Oracle: `EvalBlockwise4Bit` of `kernels/fully_connected.cc`, which leaves a fused activation out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import VARIABLE, Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.support.dataclass import dataclass

NAME = "qnn.dense_blockwise"
MOST = 1 << 12
"""Weights of a block; the reference's sums are exact in float32 up to here."""


@dataclass(frozen=True, slots=True)
class DenseBlockwiseAttrs:
    """Weights of a block."""

    size: int


def infer_type(types: Sequence[Type], attrs: DenseBlockwiseAttrs) -> Type:
    """int16 [M, K], float32 [M, 3], uint8 [O, K / 2], float32 [O, K / size] (, float32 [O]) -> float32 [M, O]."""
    found = [t for t in types if isinstance(t, TensorType)]
    if len(found) != len(types) or len(found) not in (4, 5):
        raise TypeRuleError(f"{NAME} does not take {', '.join(map(str, types))}")
    data, params, weight, scales, *bias = found
    rows, width = data.shape if len(data.shape) == 2 else (0, 0)
    outputs = weight.shape[0] if weight.shape else 0
    kinds_fit = (data.dtype, params.dtype, weight.dtype, scales.dtype) == ("int16", "float32", "uint8", "float32")
    sizes_fit = params.shape == (rows, 3) and weight.shape == (outputs, width // 2) and 2 <= attrs.size <= MOST
    if not kinds_fit or not sizes_fit or attrs.size % 2 or scales.shape != (outputs, width // attrs.size) or width % attrs.size:
        raise TypeRuleError(f"{NAME} of {data} by {weight} in blocks of {attrs.size} with scales {scales}")
    if any(b.shape != (outputs,) or b.dtype != "float32" for b in bias):
        raise TypeRuleError(f"{NAME} of {outputs} outputs has a bias {bias[0]}")
    return TensorType((rows, outputs), "float32")


def packed(weight: Array) -> Array:
    """Two weights a byte, the first one in the low half."""
    low, high = weight[:, 0::2].astype(np.uint8) & 15, weight[:, 1::2].astype(np.uint8) & 15
    return np.asarray(low | (high << 4), np.uint8)


def unpacked(weight: Array) -> Array:
    """The weights of bytes, int32."""
    both = np.stack([weight & 15, weight >> 4], axis=-1).reshape(len(weight), -1).astype(np.int32)
    return np.asarray((both ^ 8) - 8)


def evaluate(
    data: Array, params: Array, weight: Array, scales: Array, *bias: Array, attrs: DenseBlockwiseAttrs, out_type: TensorType
) -> Array:  # fmt: skip
    w, zero_points = unpacked(weight), params[:, 2:3]
    total, weights = np.zeros(out_type.shape, np.float32), np.zeros(len(w), np.float32)
    with np.errstate(all="ignore"):
        for b in range(scales.shape[1]):
            part = slice(b * attrs.size, (b + 1) * attrs.size)
            sums = w[:, part].sum(axis=1)
            codes = data[:, part].astype(np.int32) @ w[:, part].T + zero_points.astype(np.int32) * sums
            total += codes.astype(np.float32) * scales[:, b]
            weights += scales[:, b] * sums.astype(np.float32)
        value = (total - zero_points * weights) * params[:, 0:1]
        return np.asarray(value + bias[0] if bias else value, np.float32)


register_op(
    NAME,
    VARIABLE,
    arguments=[
        ("data", "int16 [M, K]", "quantised data without zero point"),
        ("params", "float32 [M, 3]", "of the quantised data"),
        ("weight", "uint8 [O, K / 2]", "two 4-bit weights a byte"),
        ("scales", "float32 [O, blocks]", "of the weights"),
        ("bias?", "float32 [O]", "what is added to each output"),
    ],
    attrs_type=DenseBlockwiseAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="FULLY_CONNECTED; float32 data, 4-bit weights with a scale a block",
)
