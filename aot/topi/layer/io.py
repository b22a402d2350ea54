"""Parameters of a layer's PrimFunc: data, other operands of the tail, result, packed constants; and how results are stored."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from aot.ir.op import Array
from aot.op.te_rule import TeContext
from aot.te.tensor import elements_of
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr
from aot.topi.layer.fused import Epilogue, FusedLayer, tail_epilogue
from aot.topi.strategy import Group


@dataclass(frozen=True, slots=True)
class LayerIo:
    """`store(indices, value)` runs the tail on a requantised int32 value and stores the result.

    `operands` are the other tensors of the tail.
    """

    data: Buffer
    out: Buffer
    ctx: TeContext
    epilogue: Epilogue | None
    operands: tuple[Buffer, ...] = ()

    def store(self, indices: tuple[Expr, ...], value: Expr) -> None:
        if self.epilogue is not None:
            value = self.epilogue(value, indices)  # requantised, so within int8: no conversion needed
        self.ctx.builder.store(self.out, indices, value)

    def constant(self, name: str, data: Array, dtype: str, *, align: int = 4) -> Buffer:
        """A packed stream of the layer."""
        buffer = self.ctx.builder.const(name, (data.size,), dtype, align=align)
        self.ctx.constants[buffer.name] = data
        return buffer

    @property
    def constants(self) -> dict[str, Array]:
        return dict(self.ctx.constants)


def open_io(
    b: IRBuilder, group: Group, layer: FusedLayer, *, data_shape: tuple[int, ...], out_shape: tuple[int, ...], data_align: int = 1
) -> LayerIo:
    """Declare the buffers; inputs in the order of the group's parameters, operands of the tail seen in the output's shape.

    `data_align` in bytes is for kernels that read the data by words.
    """
    data, operands, buffers = None, {}, []
    for var in group.params:
        if var is layer.data and data is None:
            data = b.input("data", data_shape, var.type.dtype, align=data_align)
        else:
            buffers.append(b.input("operand", out_shape, var.type.dtype))
            operands[id(var)] = elements_of(buffers[-1])
    assert data is not None
    ctx = TeContext(b)
    out = b.output("out", out_shape, layer.out_type.dtype)
    epilogue = tail_epilogue(layer, ctx, out_shape, operands) if layer.tail else None
    return LayerIo(data, out, ctx, epilogue, tuple(buffers))


def open_flat(b: IRBuilder, group: Group, layer: FusedLayer) -> LayerIo:
    """As `open_io`, data and result as rows of elements."""
    return open_io(b, group, layer, data_shape=(prod(layer.data_type.shape),), out_shape=(prod(layer.out_type.shape),))
