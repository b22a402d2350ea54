"""Where a kernel's results go: straight to the output, or to scratch memory and then through the layer's epilogue."""

from __future__ import annotations

from math import prod

from aot.op.qnn.quantize import DequantizeAttrs
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, cast, imm
from aot.tir.stmt import Region
from aot.topi.arm_mve.elementwise import (
    ADD,
    LEAST_SCALE,
    add_instructions,
    dequantize,
    dequantize_instructions,
    lut,
    lut_instructions,
)
from aot.topi.layer.elementwise import Factors
from aot.topi.layer.fused import FusedLayer, LayerIo, residual_factors

EACH = 12
"""Instructions per element and call of an epilogue without vectors."""


class Results:
    """`size` consecutive results at a time: a block writes them to `place`, then `finish` runs the epilogue, if there is one.

    With `over`, results go to the output and the epilogue updates them there; this is for kernels that do not compute them in one
    run.  An epilogue that is a table is left to `end`, which a kernel calls after all results: one loop over the output, no
    scratch memory.
    """

    def __init__(self, b: IRBuilder, io: LayerIo, layer: FusedLayer, *, target: Target, size: int, over: bool = False) -> None:
        self._b, self._io, self._layer, self._size = b, io, layer, size
        self._factors: Factors | None = None
        self._floats: DequantizeAttrs | None = None
        self._buffer: Buffer | None = None
        if layer.epilogue and io.table is None:
            self._factors = residual_factors(layer, target) if len(io.operands) == 1 else None
            self._floats = _only_dequantize(layer)
            self._buffer = io.out if over else b.scratch("results", (size,), "int8")

    def place(self, first: Expr) -> Region:
        """Where to write the results from element `first` of the output on."""
        return region(self._io.out, first) if self._buffer is None else region(self._buffer)

    def finish(self, first: Expr, count: Expr | None = None) -> None:
        """Run the epilogue over the first `count` results (default: all)."""
        b, io, f = self._b, self._io, self._factors
        number = imm(self._size) if count is None else count
        if self._buffer is None:
            return
        if f is not None:
            operands = self._buffer, region(io.operands[0], first), region(io.out, first)
            b.block(ADD.block(f, self._size), *operands, *f.numbers, number)
            return
        if self._floats is not None:
            block = dequantize("int8", self._floats.zero_point)
            b.block(block, self._buffer, region(io.out, first), imm(self._floats.scale, "float32"), number)
            return
        with b.for_("i", number) as i:
            value = b.let("result", cast("int32", self._buffer.load("int8", i)))
            io.store((first + i,), value)

    def end(self) -> None:
        """Run an epilogue that is a table, over all results."""
        table = self._io.table
        if table is not None:
            self._io.index_by_bits()
            out = region(self._io.out)
            self._b.block(lut(), out, table, out, imm(prod(self._layer.out_type.shape)))

    @property
    def instructions_at_end(self) -> int:
        """Instructions of `end`."""
        return 0 if self._io.table is None else lut_instructions(prod(self._layer.out_type.shape))

    @property
    def instructions(self) -> int:
        """Instructions of the epilogue for `size` results."""
        if self._buffer is None:
            return 0
        if self._factors is not None:
            return add_instructions(self._size, self._factors.lo, self._factors.hi) + 4
        if self._floats is not None:
            return dequantize_instructions(self._size)
        return EACH * len(self._layer.epilogue) * self._size

    @property
    def code(self) -> int:
        """Bytes of code."""
        if self._buffer is None:
            return 0 if self._io.table is None else 44
        return 120 if self._factors is None and self._floats is None else 60


def _only_dequantize(layer: FusedLayer) -> DequantizeAttrs | None:
    """The attributes of an epilogue that is one DEQUANTIZE which vectors compute exactly; else None."""
    attrs = layer.epilogue[0].attrs
    alone = len(layer.epilogue) == 1 and isinstance(attrs, DequantizeAttrs) and layer.requant.dtype == "int8"
    return attrs if alone and attrs.scale >= LEAST_SCALE else None
