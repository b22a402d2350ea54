"""gelu_uneven: GELU of float32 tensors whose size is not a multiple of four.  No quantisation.

The reference computes float32 by Eigen, in vectors of four elements of the flat tensor; the one to three that are left over it
computes one by one, and their erfc differs in the last bit now and then.  `gelu` is the form for vectors alone, for
which it does not matter where an element lies; this one is not element-wise, and is fused with nothing.
There is no te rule: `aot.topi.generic.gelu` lowers it.  Oracle: `reference_ops::Gelu`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.math.unary import UnaryAttrs, gelu

VECTOR = 4
"""Elements of float32 in a vector of the reference's."""

LEFT_OVER = "eigen_scalar_"
"""Whose erfc the elements take that are left over."""


def infer_type(types: Sequence[Type], _attrs: UnaryAttrs) -> Type:
    (data,) = types
    if not isinstance(data, TensorType) or data.dtype != "float32":
        raise TypeRuleError(f"gelu_uneven takes a tensor of float32, not {data}")
    return data


def evaluate(data: Array, *, attrs: UnaryAttrs, out_type: TensorType) -> Array:
    flat = data.reshape(-1)
    whole = flat.size - flat.size % VECTOR
    with np.errstate(all="ignore"):
        first = gelu(flat[:whole], approximate=False, library="eigen_")
        rest = gelu(flat[whole:], approximate=False, library=LEFT_OVER)
    return np.concatenate([first, rest]).reshape(out_type.shape)


register_op(
    "gelu_uneven",
    1,
    arguments=[("data", "float32", "the operand")],
    attrs_type=UnaryAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="GELU; float32, a size that is not a multiple of four",
)
