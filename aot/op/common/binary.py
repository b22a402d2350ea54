"""What operators of two tensors with broadcasting share."""

from __future__ import annotations

import numpy as np

from aot.ir.op import TypeRuleError
from aot.ir.type import QuantParams, TensorType, Type
from aot.op.common.check import Clamped
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, imm


@dataclass(frozen=True, slots=True)
class RescaledAttrs(Clamped):
    """Zero points of the operands; multiplier, shift and zero point of the result; the clamp [lo, hi]."""

    input_zp: tuple[int, int]
    multiplier: int
    shift: int
    zero_point: int
    lo: int
    hi: int
    quant: QuantParams | None = None


def broadcast_shape(a: TensorType, b: TensorType) -> tuple[int, ...]:
    """The common shape of two tensors; TypeRuleError if there is none."""
    try:
        return tuple(map(int, np.broadcast_shapes(a.shape, b.shape)))
    except ValueError:
        raise TypeRuleError(f"shapes of {a} and {b} do not broadcast") from None


def two_of_one_type(types: tuple[Type, ...] | list[Type], name: str, dtypes: tuple[str, ...]) -> tuple[TensorType, TensorType]:
    """Two tensors of one element type of `dtypes`."""
    a, b = types
    if not isinstance(a, TensorType) or not isinstance(b, TensorType) or a.dtype != b.dtype or a.dtype not in dtypes:
        raise TypeRuleError(f"{name} takes two tensors of one type of {', '.join(dtypes)}, not {a} and {b}")
    return a, b


def broadcast_type(a: TensorType, b: TensorType, dtype: str, quant: QuantParams | None = None) -> TensorType:
    """The result's type."""
    return TensorType(broadcast_shape(a, b), dtype, quant)


def broadcast_at(b: IRBuilder, data: TensorFn, indices: tuple[Expr, ...]) -> Expr:
    """The element of `data` that belongs to element `indices` of the broadcast result."""
    own = indices[len(indices) - len(data.shape) :]
    return data.at(b, tuple(imm(0) if extent == 1 else i for extent, i in zip(data.shape, own, strict=True)))
