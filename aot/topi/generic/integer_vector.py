"""Float32 vectors made integers at run time, and their products with int8 matrices, for kernels that walk a sequence."""

from __future__ import annotations

from aot.ir.type import TensorType
from aot.op.common.integer_vector import integer_type
from aot.op.qnn.dynamic_quantize import DynamicQuantizeAttrs, te_params, te_quantize, te_range
from aot.op.te_rule import TeContext
from aot.te.tensor import TensorFn
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Imm, cast, imm


class IntegerVectors:
    """The quantised vectors of a kernel, by name, in scratch memory."""

    def __init__(self, b: IRBuilder, *, asymmetric: bool) -> None:
        self._b, self._ctx, self._attrs = b, TeContext(b), DynamicQuantizeAttrs(asymmetric)
        self._dtype = integer_type(asymmetric)
        self._buffers: dict[str, Buffer] = {}
        self._scales: dict[str, Expr] = {}

    def quantize(self, name: str, data: Buffer, first: Expr, depth: int) -> None:
        """Append the statements for `depth` values from element `first` on."""
        b, ctx = self._b, self._ctx
        vector = TensorFn((1, depth), "float32", lambda _b, i: data[first + i[1]])
        found = b.local("ends", (2,), "float32")
        span = te_range(ctx, [vector], None, TensorType((1, 2), "float32"))
        for i in range(2):
            b.store(found, i, span.at(b, (imm(0), imm(i))))
        ends = TensorFn((1, 2), "float32", lambda _b, i: found[i[1]])
        made = te_params(ctx, [ends], self._attrs, TensorType((1, 3), "float32"))
        values = [b.let("param", made.at(b, (imm(0), imm(i)))) for i in range(3)]
        params = TensorFn((1, 3), "float32", lambda _b, i: values[_constant(i[1])])
        integers = te_quantize(ctx, [vector, params], self._attrs, TensorType((1, depth), self._dtype))
        if name not in self._buffers:
            self._buffers[name] = b.scratch("integers", (depth,), self._dtype)
        with b.for_("k", depth) as k:
            b.store(self._buffers[name], k, integers.at(b, (imm(0), k)))
        self._scales[name] = values[0]

    def product(self, name: str, row: tuple[Buffer, Expr], depth: int, *, scale: float) -> Expr:
        """A row of a matrix, (buffer, first element), of that scale times the vector."""
        b = self._b
        acc = b.local("acc", (1,), "int32", init=0)
        with b.for_("k", depth) as k:
            b.store(acc, 0, acc[0] + cast("int32", row[0][row[1] + k]) * cast("int32", self._buffers[name][k]))
        return cast("float32", acc[0]) * (self._scales[name] * imm(scale, "float32"))


def _constant(index: Expr) -> int:
    assert isinstance(index, Imm)
    return int(index.value)
