"""nn.batch_matmul: BATCH_MATMUL of TFLite: matrix products over broadcast leading dimensions, either side transposed or not.

acc[..., m, n] = sum over k of (a[..., m, k] - a_zp) * (b[..., k, n] - b_zp).  Oracle: `reference_ops::BatchMatMul`
with the parameters of `batch_matmul.cc`: int8 adds up in 32 bits, int16 in 64 and requantises by reduced multipliers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

import numpy as np

from aot.frontend.view import OperatorView
from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.span import Span
from aot.ir.type import QuantParams, TensorType, Type
from aot.numerics.fixed_point import quantize_multiplier, reduced_multiplier
from aot.numerics.multipliers import real_multiplier
from aot.op.common.check import require_quant
from aot.op.common.float_layer import Bounds
from aot.op.convert import ConvertContext, from_tflite, operand, unsupported
from aot.op.nn.dense import DenseAttrs
from aot.op.qnn.requantize import RequantizeAttrs
from aot.op.te_rule import F_TE, TeContext
from aot.op.tensor.reshape import ReshapeAttrs
from aot.relay.expr import Constant, Expr, call, const
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range, is_float
from aot.te.tensor import TensorFn, reduce_axis, tensor_fn, wrapping
from aot.te.tensor import sum as te_sum
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr as TirExpr
from aot.tir.expr import cast, imm


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
    (m, k), (depth, n) = _matrix(a.shape, attrs.adj_x), _matrix(b.shape, attrs.adj_y)
    if k != depth:
        raise TypeRuleError(f"rows of {k} values by columns of {depth}")
    try:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise TypeRuleError(f"leading dimensions of {a} and {b} do not broadcast") from None
    return TensorType((*map(int, batch), m, n), attrs.acc_dtype)


def _matrix(shape: tuple[int, ...], swapped: bool) -> tuple[int, int]:
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

    def element(b: IRBuilder, data: TensorFn, index: tuple[TirExpr, ...], *, zero_point: int) -> TirExpr:
        """One factor; `index` is that of the result's batch, then row and column of the matrix as stored."""
        own = index[len(index) - len(data.shape) :]
        lead = tuple(imm(0) if n == 1 else i for n, i in zip(data.shape[:-2], own[:-2], strict=True))
        value = data.at(b, (*lead, *own[-2:]))
        return value if is_float(value.dtype) else cast(wide, cast("int32", value) - zero_point)

    def rule(b: IRBuilder, *i: TirExpr) -> TirExpr:
        *batch, m, n = i
        depth = _matrix(a.shape, attrs.adj_x)[1]

        def term(k: TirExpr) -> TirExpr:
            left = (*batch, k, m) if attrs.adj_x else (*batch, m, k)
            right = (*batch, n, k) if attrs.adj_y else (*batch, k, n)
            return element(b, a, left, zero_point=attrs.a_zp) * element(b, b_side, right, zero_point=attrs.b_zp)

        zero = 0.0 if is_float(attrs.acc_dtype) else 0
        return cast(attrs.acc_dtype, te_sum(b, [reduce_axis(depth, name="k")], term, init=zero, dtype=wide))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


_KINDS = (("int8", "int8", "int8"), ("int16", "int16", "int16"), ("int16", "int8", "int16"))


@from_tflite("BATCH_MATMUL", "int8 int16 float32", "nn.batch_matmul")
def convert(ctx: ConvertContext, op: OperatorView) -> Expr:
    """batch_matmul, + requantize of integers; a fully connected layer where the right side is one constant matrix."""
    a, b, out = ctx.input_type(op, 0), ctx.input_type(op, 1), ctx.output_type(op)
    kind, span = (a.dtype, b.dtype, out.dtype), ctx.span(op)
    adj_x, adj_y = bool(op.option("adj_x")), bool(op.option("adj_y"))
    left, right = operand(ctx, op, 0), operand(ctx, op, 1)
    if kind == ("float32",) * 3:
        attrs = BatchMatmulAttrs(adj_x, adj_y, acc_dtype="float32")
        if _is_one_matrix(right) and right.stored is None and not adj_x:
            dense = call("nn.dense_float", [_rows(left, a, span), _weights(right, adj_y=adj_y)], Bounds(), span=span)
            return call("reshape", [dense], ReshapeAttrs(infer_type([a, b], attrs).shape), span=span)
        return call("nn.batch_matmul", [left, right], attrs, span=span)
    if kind not in _KINDS:
        unsupported(ctx, op, f"{kind[0]} by {kind[1]} giving {kind[2]} is not supported", code="E1202")
    (scale_a, a_zp), (scale, zp) = require_quant(ctx, op, a, may_be_zero=True), require_quant(ctx, op, out, what="the result")
    # the reference does not look at scales per channel: its multiplier is then 0
    per_channel = b.quant is not None and len(b.quant.scale) > 1 and not any(b.quant.zero_point)
    scale_b, b_zp = (0.0, 0) if per_channel else require_quant(ctx, op, b, may_be_zero=True)
    if a.dtype == "int16" and (a_zp or b_zp or zp):
        unsupported(ctx, op, "int16 with a non-zero zero point is not supported (TFLite rejects it too)", code="E1224")
    depth = _matrix(a.shape, adj_x)[1]
    acc_dtype = "int64" if a.dtype == "int16" and _largest(b.dtype) * depth << 15 >= 1 << 31 else "int32"
    real = real_multiplier(op.opcode, a.dtype, (scale_a, scale_b), (scale,), oracle=ctx.oracle)
    multiplier, shift = quantize_multiplier(real)
    rounding = "double"
    if a.dtype == "int16":
        multiplier, rounding = reduced_multiplier(multiplier), "single"
    low, high = int_range(out.dtype)
    requant = RequantizeAttrs((multiplier,), (shift,), zp, low, high, rounding, out.dtype, out.quant)
    if _is_one_matrix(right) and not adj_x:
        weights = _weights(right, adj_y=adj_y, quant=b.quant)
        acc = call("nn.dense", [_rows(left, a, span), weights], DenseAttrs(a_zp, b_zp, acc_dtype), span=span)
        shape = infer_type([a, b], BatchMatmulAttrs(adj_x, adj_y)).shape
        return call("reshape", [call("qnn.requantize", [acc], requant, span=span)], ReshapeAttrs(shape), span=span)
    acc = call("nn.batch_matmul", [left, right], BatchMatmulAttrs(adj_x, adj_y, a_zp, b_zp, acc_dtype), span=span)
    return call("qnn.requantize", [acc], requant, span=span)


def _is_one_matrix(right: Expr) -> TypeGuard[Constant]:
    """Whether the right side is a constant without leading dimensions but 1."""
    return isinstance(right, Constant) and right.data.size == right.data.shape[-1] * right.data.shape[-2]


def _rows(left: Expr, a: TensorType, span: Span) -> Expr:
    """All rows of all matrices of the left side."""
    return call("reshape", [left], ReshapeAttrs((int(np.prod(a.shape[:-1])), a.shape[-1])), span=span)


def _weights(right: Constant, *, adj_y: bool, quant: QuantParams | None = None) -> Constant:
    """The matrix as a fully connected layer has it: [N, K]."""
    matrix = right.data.reshape(right.data.shape[-2:])
    return const(np.ascontiguousarray(matrix if adj_y else matrix.T), quant=quant)


def _largest(dtype: str) -> int:
    return -int_range(dtype)[0]


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
