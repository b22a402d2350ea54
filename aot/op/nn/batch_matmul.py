"""nn.batch_matmul: BATCH_MATMUL of TFLite: matrix products over broadcast leading dimensions, either side transposed or not.

acc[..., m, n] = sum over k of (a[..., m, k] - a_zp) * (b[..., k, n] - b_zp).  Oracle: `reference_ops::BatchMatMul`
with the parameters of `batch_matmul.cc`: int8 adds up in 32 bits, int16 in 64 and requantises by reduced multipliers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.support.dtype import is_float
from aot.te.tensor import TensorFn, reduce_axis, sum, tensor_fn, wrapping
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm


@dataclass(frozen=True, slots=True)
class BatchMatmulAttrs:
    """Whether the last two dimensions of a side are swapped; zero points still to be subtracted."""

    adj_x: bool
    adj_y: bool
    a_zp: int = 0
    b_zp: int = 0
    acc_dtype: str = "int32"


def infer_type(types: Sequence[Type], attrs: BatchMatmulAttrs) -> TensorType:
    """a [..., M, K], b [..., K, N] -> attrs.acc_dtype [..., M, N]."""
    a, b = types
    if not isinstance(a, TensorType) or not isinstance(b, TensorType) or min(len(a.shape), len(b.shape)) < 2:
        raise TypeRuleError(f"batch_matmul takes two tensors of at least two dimensions, not {a} and {b}")
    (m, k), (depth, n) = matrix_of(a.shape, attrs.adj_x), matrix_of(b.shape, attrs.adj_y)
    if k != depth:
        raise TypeRuleError(f"rows of {k} values by columns of {depth}")
    try:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise TypeRuleError(f"leading dimensions of {a} and {b} do not broadcast") from None
    return TensorType((*map(int, batch), m, n), attrs.acc_dtype)


def matrix_of(shape: tuple[int, ...], swapped: bool) -> tuple[int, int]:
    """(rows, columns) of an operand as it is multiplied."""
    rows, columns = shape[-2:]
    return (columns, rows) if swapped else (rows, columns)


def evaluate(a: Array, b: Array, *, attrs: BatchMatmulAttrs, out_type: TensorType) -> Array:
    if is_float(out_type.dtype):
        return _float_product(a, b, attrs, out_type)
    x, y = a.astype(np.float64) - attrs.a_zp, b.astype(np.float64) - attrs.b_zp
    x = np.swapaxes(x, -1, -2) if attrs.adj_x else x
    y = np.swapaxes(y, -1, -2) if attrs.adj_y else y
    product: Array = x @ y
    return product.astype(np.int64).astype(out_type.dtype)


def _float_product(a: Array, b: Array, attrs: BatchMatmulAttrs, out_type: TensorType) -> Array:
    """The products of one result added one after the other in float32, as the reference and the kernels do."""
    x = np.swapaxes(a, -1, -2) if attrs.adj_x else a
    y = np.swapaxes(b, -1, -2) if attrs.adj_y else b
    total = np.zeros(out_type.shape, np.float32)
    with np.errstate(all="ignore"):
        for k in range(x.shape[-1]):
            total = total + x[..., :, k, None] * y[..., None, k, :]
    return total


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: BatchMatmulAttrs, out_type: TensorType) -> TensorFn:
    a, b_side = args
    wide = wrapping(attrs.acc_dtype)

    def element(b: IRBuilder, data: TensorFn, index: tuple[Expr, ...], *, zero_point: int) -> Expr:
        """One factor; `index` is that of the result's batch, then row and column of the matrix as stored."""
        own = index[len(index) - len(data.shape) :]
        lead = tuple(imm(0) if n == 1 else i for n, i in zip(data.shape[:-2], own[:-2], strict=True))
        value = data.at(b, (*lead, *own[-2:]))
        return value if is_float(value.dtype) else cast(wide, cast("int32", value) - zero_point)

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        *batch, m, n = i
        depth = matrix_of(a.shape, attrs.adj_x)[1]

        def term(k: Expr) -> Expr:
            left = (*batch, k, m) if attrs.adj_x else (*batch, m, k)
            right = (*batch, n, k) if attrs.adj_y else (*batch, k, n)
            return element(b, a, left, zero_point=attrs.a_zp) * element(b, b_side, right, zero_point=attrs.b_zp)

        zero = 0.0 if is_float(attrs.acc_dtype) else 0
        return cast(attrs.acc_dtype, sum(b, [reduce_axis(depth, name="k")], term, init=zero, dtype=wide))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "nn.batch_matmul",
    2,
    arguments=[
        ("a", "int8, int16, float32 [..., M, K]", "the left matrices"),
        ("b", "as a, or int8 [..., K, N]", "the right matrices; attrs say what is transposed"),
    ],
    attrs_type=BatchMatmulAttrs,
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="BATCH_MATMUL; int8, int16, int16 x int8, float32",
)
F_TE.set("nn.batch_matmul", te_rule)
