"""qnn.lut: int8 to int8 through a table of 256 codes: LOGISTIC, TANH and the RELU family on their own.

The table holds what the reference gives for each code, so the operator is exact for any function of one element.
Oracles: each builder's docstring names its kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from aot.frontend.view import OperatorView
from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import QuantParams, TensorType, Type
from aot.op._check import require_dtype, require_quant
from aot.op._fixed_point import activation_range, quantize_multiplier, requantize, round_half_away
from aot.op.clip import ClipAttrs
from aot.op.convert import ConvertContext, from_tflite, operand, unsupported
from aot.op.te_rule import F_TE, TeContext
from aot.relay.expr import Expr as RelayExpr
from aot.relay.expr import call
from aot.te.tensor import Tensor, compute
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast

Float32 = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class LutAttrs:
    """`table[q + 128]` is the result for code q; the result's parameters."""

    table: tuple[int, ...]
    quant: QuantParams | None = None

    @property
    def lo(self) -> int:
        """The smallest result."""
        return min(self.table)

    @property
    def hi(self) -> int:
        """The largest result."""
        return max(self.table)

    def clipped(self, lo: int, hi: int) -> LutAttrs:
        """The same followed by a clamp to [lo, hi]."""
        return replace(self, table=tuple(min(max(v, lo), hi) for v in self.table))


def infer_type(types: Sequence[Type], attrs: LutAttrs) -> Type:
    """int8 -> int8 of the same shape."""
    (data,) = types
    if not isinstance(data, TensorType) or data.dtype != "int8":
        raise TypeRuleError(f"lut takes an int8 tensor, not {data}")
    if len(attrs.table) != 256 or not -128 <= min(attrs.table) <= max(attrs.table) <= 127:
        raise TypeRuleError("lut needs a table of 256 int8 codes")
    return data.with_dtype("int8", attrs.quant)


def evaluate(data: Array, *, attrs: LutAttrs, out_type: TensorType) -> Array:
    table: Array = np.asarray(attrs.table, np.int8)
    return np.asarray(table[data.astype(np.int64) + 128])


def te_rule(ctx: TeContext, args: Sequence[Tensor], attrs: LutAttrs, out_type: TensorType) -> Tensor:
    # in the order of the codes' bits, so that a byte indexes it as it is
    table = ctx.constant("table", np.roll(np.asarray(attrs.table, np.int8), 128))

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        return table.at(b, (cast("int32", cast("uint8", args[0].at(b, i))),))

    return compute(out_type.shape, out_type.dtype, rule)


# --- tables ---------------------------------------------------------------------------------------------------------


def codes() -> npt.NDArray[np.int64]:
    return np.arange(-128, 128, dtype=np.int64)


def float_table(transform: Callable[[Float32], Float32], data: tuple[float, int], out: tuple[float, int]) -> tuple[int, ...]:
    """LUTPopulate of `kernels/internal/common.h`: a float32 function between (scale, zero point) of data and of result."""
    (scale_in, zp_in), (scale, zp) = data, out
    real = np.float32(scale_in) * (codes() - zp_in).astype(np.float32)
    scaled = transform(real).astype(np.float32) * (np.float32(1) / np.float32(scale))
    return tuple(min(max(round_half_away(float(v)) + zp, -128), 127) for v in scaled)


def _exp(x: Float32) -> Float32:
    """expf as the C library computes it: in double, rounded once."""
    with np.errstate(over="ignore"):
        result: Float32 = np.exp(x.astype(np.float64)).astype(np.float32)
    return result


def sigmoid(x: Float32) -> Float32:
    """1 / (1 + e^-x), in float32 as the reference computes it."""
    one = np.float32(1)
    return np.asarray(one / (one + _exp(-x)), np.float32)


def tanh(x: Float32) -> Float32:
    return np.asarray(np.tanh(x.astype(np.float64)), np.float32)


def _convert_table(ctx: ConvertContext, op: OperatorView, transform: Callable[[Float32], Float32]) -> RelayExpr:
    data, out = ctx.input_type(op, 0), ctx.output_type(op)
    require_dtype(ctx, op, data, {"int8"})
    require_dtype(ctx, op, out, {"int8"}, what="a result")
    table = float_table(transform, require_quant(ctx, op, data), require_quant(ctx, op, out, what="the result"))
    return call("qnn.lut", [operand(ctx, op, 0)], LutAttrs(table, out.quant), span=ctx.span(op))


@from_tflite("LOGISTIC")
def convert_logistic(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """The sigmoid by table."""
    return _convert_table(ctx, op, sigmoid)


@from_tflite("TANH")
def convert_tanh(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """The hyperbolic tangent by table."""
    return _convert_table(ctx, op, tanh)


@from_tflite("RELU")
@from_tflite("RELU6")
@from_tflite("RELU_N1_TO_1")
def convert_relu(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """A clip where input and output have one quantisation, else a table of `QuantizedReluX`."""
    data, out = ctx.input_type(op, 0), ctx.output_type(op)
    require_dtype(ctx, op, data, {"int8"})
    require_dtype(ctx, op, out, {"int8"}, what="a result")
    (scale_in, zp_in), (scale, zp) = require_quant(ctx, op, data), require_quant(ctx, op, out, what="the result")
    lo, hi = activation_range(op.opcode, out)
    if lo > hi:
        unsupported(ctx, op, "no code of the result lies in the activation's range", code="E1206")
    x, span = operand(ctx, op, 0), ctx.span(op)
    if (scale_in, zp_in) == (scale, zp):
        return call("clip", [x], ClipAttrs(lo, hi), span=span)
    # ReluPrepare divides in float32, before the ratio becomes a double
    multiplier, shift = quantize_multiplier(float(np.float32(scale_in) / np.float32(scale)))
    table = requantize(codes() - zp_in, multiplier, shift, zero_point=zp, lo=lo, hi=hi)
    return call("qnn.lut", [x], LutAttrs(tuple(int(v) for v in table), out.quant), span=span)


register_op(
    "qnn.lut",
    pattern=OpPattern.ELEMWISE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="LOGISTIC, TANH, RELU, RELU6, RELU_N1_TO_1 on int8",
)
F_TE.set("qnn.lut", te_rule)
