"""signal.rfft2d: RFFT2D of TFLite, the spectrum of real images (one row: of real signals), computed in double precision.

[..., h, w] -> complex64 [..., height, width / 2 + 1]; images are cut or filled up with zeros.  Sizes are powers of two.
Oracle: `kernels/rfft2d.cc`, which runs Ooura's transforms (`aot.numerics.split_radix`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.numerics.split_radix import spectrum
from aot.op.common.move import tensors_of
from aot.support.dataclass import dataclass

LARGEST = 1 << 16
"""Points of one transform; places are kept in 16 bits."""


@dataclass(frozen=True, slots=True)
class Rfft2dAttrs:
    """Size of the transform."""

    height: int
    width: int


def is_power_of_two(n: int) -> bool:
    return n > 0 and n & (n - 1) == 0


def infer_type(types: Sequence[Type], attrs: Rfft2dAttrs) -> Type:
    """float32 [..., h, w] -> complex64 [..., height, width / 2 + 1]."""
    (data,) = tensors_of(types, 1)
    sizes_fit = is_power_of_two(attrs.height) and is_power_of_two(attrs.width) and attrs.width >= 2
    if data.dtype != "float32" or len(data.shape) < 2 or not sizes_fit or max(attrs.height, attrs.width) > LARGEST:
        raise TypeRuleError(f"rfft2d of {attrs.height} x {attrs.width} points of {data}")
    return TensorType((*data.shape[:-2], attrs.height, attrs.width // 2 + 1), "complex64")


def evaluate(data: Array, *, attrs: Rfft2dAttrs, out_type: TensorType) -> Array:
    images = data.reshape(-1, *data.shape[-2:])[:, : attrs.height, : attrs.width]
    filled = np.zeros((len(images), attrs.height, attrs.width))
    filled[:, : images.shape[1], : images.shape[2]] = images
    with np.errstate(all="ignore"):
        found = spectrum(filled).astype(np.float32)
    return found.view(np.complex64).reshape(out_type.shape)


register_op(
    "signal.rfft2d",
    1,
    arguments=[("data", "float32 [..., h, w]", "images, or signals as images of one row")],
    attrs_type=Rfft2dAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="RFFT2D; float32 to complex64",
)
