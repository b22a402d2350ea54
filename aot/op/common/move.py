"""What operators that move data share: their element types, constant operands, axes."""

from __future__ import annotations

from collections.abc import Sequence

from aot.ir.op import TypeRuleError
from aot.ir.type import TensorType, Type
from aot.te.tensor import TensorFn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, clamp, imm

MOVABLE = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "float16", "float32")
"""Element types that movement of data takes: bytes are copied, whatever they mean."""

INDEX_TYPES = ("int16", "int32", "int64")


def tensors_of(types: Sequence[Type], count: int) -> list[TensorType]:
    """The operands' types, which must be `count` single tensors."""
    found = [t for t in types if isinstance(t, TensorType)]
    if len(found) != count or len(types) != count:
        raise TypeRuleError(f"{count} tensors are expected, not {', '.join(map(str, types))}")
    return found


def broadcast_index(data: TensorFn, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The element of `data` that belongs to element `indices` of a result it is broadcast to."""
    own = indices[len(indices) - len(data.shape) :]
    return tuple(imm(0) if extent == 1 else i for extent, i in zip(data.shape, own, strict=True))


def clamped_index(b: IRBuilder, value: Expr, extent: int) -> Expr:
    """An index that comes from data, brought into [0, extent): whatever the data say, no access leaves the tensor.

    The reference reports an error instead; there is nobody to report to here.
    """
    return b.let("index", cast("int32", clamp(value, 0, extent - 1)))
