"""FTe: the te rule of each operator, from which every fused function can be lowered and epilogues are composed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aot.ir.op import Array, AttrMap
from aot.ir.type import TensorType
from aot.relay.expr import Constant
from aot.relay.stored import codes_of
from aot.te.tensor import TensorFn, elements_of, tensor_fn
from aot.tir.buffer import Buffer, flat_index
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, binop, cast, imm

LEAST_STORED = 32
"""Size from which on a constant justifies the code that widens it."""


class TeContext:
    """Passed to te rules: the kernel's builder, and a place for constant tables."""

    def __init__(self, builder: IRBuilder) -> None:
        self.builder = builder
        self.constants: dict[str, Array] = {}

    def constant(self, name: str, data: Array) -> TensorFn:
        """A table in flash, as a tensor."""
        buffer = self.builder.const(name, tuple(map(int, data.shape)), str(data.dtype), align=4)
        self.constants[buffer.name] = data
        return elements_of(buffer)

    def value(self, name: str, constant: Constant) -> TensorFn:
        """A constant in its smallest form in flash, widened when it is read."""
        codes = codes_of(constant) if constant.data.size >= LEAST_STORED else None
        if codes is None:
            return self.constant(name, constant.data)
        scale, zero = self._parameter("scale", codes.scale), self._parameter("zero", codes.zero)
        data = pack_nibbles(codes.data) if codes.dtype == "int4" else codes.data
        kind = {"int4": "uint8"}.get(codes.dtype, codes.dtype)
        buffer = self.builder.const(name, tuple(map(int, data.shape)), kind, align=4)
        self.constants[buffer.name] = data

        def rule(b: IRBuilder, *i: Expr) -> Expr:
            if scale is None:
                return cast("float32", buffer[i])
            code = _nibble(buffer, i, constant.type.shape) if codes.dtype == "int4" else cast("int32", buffer[i])
            return cast("float32", code if zero is None else code - zero(b, i)) * scale(b, i)

        return tensor_fn(constant.type.shape, "float32", rule)

    def _parameter(self, name: str, values: Array | None) -> Callable[[IRBuilder, tuple[Expr, ...]], Expr] | None:
        """A scale or zero point by the element's index; None if `values` is None."""
        if values is None:
            return None
        if values.size == 1:
            return lambda _b, _i: imm(values.reshape(-1)[0].item(), str(values.dtype))
        table = self.constant(name, values)
        return lambda b, i: table.at(b, tuple(imm(0) if n == 1 else at for n, at in zip(table.shape, i, strict=True)))


def pack_nibbles(data: Array) -> Array:
    """int4 values, two per byte, the first one in the low bits, as TFLite packs them."""
    flat = np.append(data.reshape(-1), np.zeros(data.size % 2, np.int8)).astype(np.uint8) & 15
    return flat[::2] | flat[1::2] << 4


def _nibble(buffer: Buffer, indices: tuple[Expr, ...], shape: tuple[int, ...]) -> Expr:
    """The value of `pack_nibbles` at an index, int32."""
    flat = flat_index(Buffer("whole", shape, "int8"), indices)
    bits = cast("int32", buffer[flat >> 1]) >> (flat & 1) * 4
    return binop("^", bits & 15, 8) - 8


TeRule = Callable[[TeContext, Sequence[TensorFn], Any, TensorType], TensorFn]
"""(context, argument tensors, attrs, result type) -> result tensor"""

F_TE: AttrMap[TeRule] = AttrMap("FTe")
