"""Parameters of a layer's PrimFunc: data, other operands of the tail, result, packed constants; and how results are stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

import numpy as np

from aot.ir.op import Array
from aot.op.common.te_rule import TeContext
from aot.support.dataclass import dataclass
from aot.te.tensor import elements_of
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr
from aot.tir.function import FuncAttrs
from aot.topi.intrin.scalar import CODES, lookup
from aot.topi.layer.fused import Epilogue, FusedLayer, describe, table_of, tail_epilogue
from aot.topi.strategy import Group, Lowered


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
    table: Buffer | None = None
    """That of a tail which is one."""

    def store(self, indices: tuple[Expr, ...], value: Expr) -> None:
        self.ctx.builder.store(self.out, indices, self.finished([indices], [value])[0])

    def store_all(self, places: Sequence[tuple[Expr, ...]], values: Iterable[Expr]) -> None:
        """As `store` of each; a table is looked up for all values at once, which takes its address once."""
        if self.table is not None:
            values = self.finished(places, list(values))
            for indices, value in zip(places, values, strict=True):
                self.ctx.builder.store(self.out, indices, value)
            return
        for indices, value in zip(places, values, strict=True):
            self.store(indices, value)

    def finished(self, places: Sequence[tuple[Expr, ...]], values: Sequence[Expr]) -> list[Expr]:
        """What the tail makes of requantised values, within int8, at indices of the result."""
        if self.table is not None:
            codes = self.ctx.builder.local("code", (len(values),), "int32")
            for i, value in enumerate(values):
                self.ctx.builder.store(codes, i, value)
            self.ctx.builder.block(lookup(len(values)), self.table, codes)
            return [codes[i] for i in range(len(values))]
        if self.epilogue is None:
            return list(values)
        return [self.epilogue(value, indices) for indices, value in zip(places, values, strict=True)]

    def index_by_bits(self) -> None:
        """Put the table of the tail in the order of the bytes' bits, for kernels that take a result as it lies for an index."""
        assert self.table is not None
        self.ctx.constants[self.table.name] = np.roll(self.ctx.constants[self.table.name], CODES // 2)

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
    codes = table_of(layer)
    if codes is not None:
        table = b.const("table", (codes.size,), "int8")
        ctx.constants[table.name] = codes
        return LayerIo(data, out, ctx, None, (), table)
    epilogue = tail_epilogue(layer, ctx, out_shape, operands) if layer.tail else None
    return LayerIo(data, out, ctx, epilogue, tuple(buffers))


def lowered(io: LayerIo, layer: FusedLayer, kernel: str, instructions: int, code: int, **schedule: int) -> Lowered:
    """The finished function of a layer, with its costs as Lowered has them."""
    func = io.ctx.builder.finish(FuncAttrs(kernel=describe(kernel, **schedule), span=layer.span, macs=layer.macs))
    return Lowered(func, io.constants, instructions, code)


def open_flat(b: IRBuilder, group: Group, layer: FusedLayer) -> LayerIo:
    """As `open_io`, data and result as rows of elements."""
    return open_io(b, group, layer, data_shape=(prod(layer.data_type.shape),), out_shape=(prod(layer.out_type.shape),))
