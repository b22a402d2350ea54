"""complex_abs, real and imag: parts of complex64 numbers.

The absolute value is the root in double precision of the sum of the squares, rounded once; infinite where a part is, even beside
a NaN.  Oracle: `kernels/complex_support.cc`; `std::abs` is hypotf of glibc there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.move import tensors_of


def infer_type(types: Sequence[Type], _attrs: None) -> Type:
    """complex64 -> float32 of the same shape."""
    (data,) = tensors_of(types, 1)
    if data.dtype != "complex64":
        raise TypeRuleError(f"parts of {data}, which is not complex")
    return TensorType(data.shape, "float32")


def evaluate_abs(data: Array, *, attrs: None, out_type: TensorType) -> Array:
    real, imaginary = data.real.astype(np.float64), data.imag.astype(np.float64)
    with np.errstate(all="ignore"):
        found = np.sqrt(real * real + imaginary * imaginary).astype(np.float32)
    return np.where(np.isinf(real) | np.isinf(imaginary), np.float32(np.inf), found)


def evaluate_real(data: Array, *, attrs: None, out_type: TensorType) -> Array:
    return np.ascontiguousarray(data.real)


def evaluate_imag(data: Array, *, attrs: None, out_type: TensorType) -> Array:
    return np.ascontiguousarray(data.imag)


COMPLEX_PARTS = {"COMPLEX_ABS": "complex_abs", "REAL": "real", "IMAG": "imag"}


_MEANINGS: dict[str, Callable[..., Array]] = {"complex_abs": evaluate_abs, "real": evaluate_real, "imag": evaluate_imag}

for _opcode, _name in COMPLEX_PARTS.items():
    register_op(
        _name,
        1,
        arguments=[("data", "complex64", "the operand")],
        attrs_type=None,
        pattern=OpPattern.OPAQUE,
        infer_type=infer_type,
        evaluate=_MEANINGS[_name],
        doc=f"{_opcode}; complex64 to float32",
    )
