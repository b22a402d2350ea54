"""nn.lstm_basic: one step of TFLite's LSTM with the basic kernel, whose gates share one matrix.

With v the data followed by the last output, gates in the order input, cell, forget, output:

  gates = W v + bias
  c     = sigmoid(input) * tanh(cell gate) + sigmoid(forget) * c
  h     = sigmoid(output) * tanh(c)

float32: the sums are in Eigen's order (`aot.op.common.lanes`), and the sigmoid is that of Eigen's vectors of four, for the last
N % 4 cells that of single elements.

uint8: every zero point of v is 128, whatever the file says.  Gates are int16 with three integer bits, cells int16 with four.  The
sum is rounded twice, halves upwards both times: in the doubling high multiply and in the shift.

Oracle: `optimized_ops::LstmCell`, which LiteRT runs whatever the resolver; the file's `LstmCell<4>` for uint8.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.frontend.view import OperatorView
from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import QuantParams, TensorType, TupleType, Type
from aot.numerics.elementary import apply
from aot.numerics.fixed16 import sigmoid16, tanh16
from aot.numerics.fixed_point import quantize_multiplier
from aot.op.common.check import require_dtype, require_quant
from aot.op.common.lanes import LANES, np_eigen_sum
from aot.op.convert import ConvertContext, operand, unsupported
from aot.op.tensor.concatenate import ConcatenateAttrs
from aot.relay.expr import Expr, call, const, get_item
from aot.support.dataclass import dataclass

NAME = "nn.lstm_basic"
DATA_ZP = 128
CELL_POWER = -11
"""Of the cell's scale: the reference takes no other."""
_GATE = 2.0**12


@dataclass(frozen=True, slots=True)
class LstmBasicAttrs:
    """Of integers: the weights' zero point and what turns a sum into a gate; `quants` of the results (output, cell, gates)."""

    weight_zp: int = 0
    multiplier: int = 0
    shift: int = 0
    quants: tuple[QuantParams | None, ...] = (None, None, None)


def infer_type(types: Sequence[Type], attrs: LstmBasicAttrs) -> Type:
    """v [B, I + N], cell [B, N], weight [4 N, I + N], bias [4 N] -> (output [B, N], cell [B, N], gates [B, 4 N])."""
    found = [t for t in types if isinstance(t, TensorType)]
    kinds = tuple(t.dtype for t in found)
    if kinds not in (("float32",) * 4, ("uint8", "int16", "uint8", "int32")) or {len(t.shape) for t in found[:3]} != {2}:
        raise TypeRuleError(f"{NAME} does not take {', '.join(map(str, types))}")
    data, cell, weight, bias = found
    (batch, cells), depth = cell.shape, data.shape[1]
    if data.shape[0] != batch or weight.shape != (4 * cells, depth) or bias.shape != (4 * cells,) or cells >= depth:
        raise TypeRuleError(f"{NAME}: {data}, {cell}, {weight}, {bias} do not match")
    shapes = ((batch, cells), (batch, cells), (batch, 4 * cells))
    dtypes = (data.dtype, cell.dtype, cell.dtype)
    return TupleType(tuple(map(TensorType, shapes, dtypes, attrs.quants)))


def evaluate(
    data: Array, cell: Array, weight: Array, bias: Array, *, attrs: LstmBasicAttrs, out_type: TupleType
) -> tuple[Array, Array, Array]:
    if data.dtype == np.float32:
        return _floats(data, cell, weight, bias)
    return _integers(data, cell, weight, bias, attrs)


def _floats(data: Array, cell: Array, weight: Array, bias: Array) -> tuple[Array, Array, Array]:
    with np.errstate(all="ignore"):
        gates = np.stack([np_eigen_sum(weight * row, single=False) + bias for row in data])
        entry, update, forget, opened = np.split(gates, 4, axis=1)
        new = _sigmoid(entry) * apply("eigen_tanh", update) + _sigmoid(forget) * cell
        return _sigmoid(opened) * apply("eigen_tanh", new), new, gates


def _sigmoid(x: Array) -> Array:
    whole = x.shape[1] - x.shape[1] % LANES
    parts = [apply("eigen_logistic", x[:, :whole]), apply("eigen_scalar_logistic", x[:, whole:])]
    return np.concatenate(parts, axis=1)


def _integers(data: Array, cell: Array, weight: Array, bias: Array, attrs: LstmBasicAttrs) -> tuple[Array, Array, Array]:
    sums = (data.astype(np.int64) - DATA_ZP) @ (weight.astype(np.int64) - attrs.weight_zp).T + bias
    sums = (sums << max(attrs.shift, 0)).astype(np.int32).astype(np.int64)
    value = (sums * attrs.multiplier + (1 << 30)) >> 31
    if attrs.shift < 0:
        value = (value + (1 << (-attrs.shift - 1))) >> -attrs.shift
    gates = _clamped(value, 16)
    entry, update, forget, opened = np.split(gates.astype(np.int16), 4, axis=1)
    new = _clamped(_halves_away(_product(sigmoid16(entry), tanh16(update, 3)), 4) + _product(sigmoid16(forget), cell), 16)
    hidden = _product(sigmoid16(opened), tanh16(_clamped(2 * new, 16).astype(np.int16), 3))
    output = _clamped(_halves_away(hidden, 8), 8) + DATA_ZP
    return output.astype(np.uint8), new.astype(np.int16), gates.astype(np.int16)


def _product(a: Array, b: Array) -> Array:
    """Of fractions of 15 bits, halves upwards."""
    found: Array = (a.astype(np.int64) * b.astype(np.int64) + (1 << 14)) >> 15
    return found


def _halves_away(x: Array, shift: int) -> Array:
    return (x + (1 << (shift - 1)) - (x < 0)) >> shift


def _clamped(x: Array, bits: int) -> Array:
    return np.clip(x, -(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def convert_basic(ctx: ConvertContext, op: OperatorView) -> list[Expr]:
    """(output, cell, v, gates), all four of which the file may read; both states get new values."""
    if len(op.inputs) != 5 or len(op.outputs) != 4:
        unsupported(ctx, op, f"the basic kernel takes 5 operands and gives 4 results, not {len(op.inputs)} and {len(op.outputs)}")
    data, weight, bias = (ctx.input_type(op, i) for i in (0, 2, 3))
    output, cell = ctx.variable(op, 1), ctx.variable(op, 4)
    kinds = ("float32",) * 5 if data.dtype == "float32" else ("uint8", "uint8", "uint8", "int32", "int16")
    for type_, kind in zip((data, output.type, weight, bias, cell.type), kinds, strict=True):
        require_dtype(ctx, op, type_, {kind}, what="an operand of the basic kernel")
    _check_shapes(ctx, op, data, output.type, weight, bias, cell.type)
    if kinds[0] == "float32" and data.shape[0] > 1:
        # the reference then multiplies matrices, whose order of summation depends on all their sizes
        unsupported(ctx, op, f"{data.shape[0]} batches of float32 data are not supported by the basic kernel; 1 is")
    attrs = LstmBasicAttrs() if kinds[0] == "float32" else _attrs(ctx, op)
    span = ctx.span(op)
    joined = call("concatenate", [operand(ctx, op, 0), output.read()], ConcatenateAttrs(1), span=span)
    constants = [const(ctx.constant(op, i)) for i in (2, 3)]
    made = call(NAME, [joined, cell.read(), *constants], attrs, span=span)
    results = [get_item(made, i, span=span) for i in range(3)]
    output.assign(results[0])
    cell.assign(results[1])
    return [results[0], results[1], joined, results[2]]


def _check_shapes(ctx: ConvertContext, op: OperatorView, *types: TensorType) -> None:
    data, output, weight, bias, cell = (t.shape for t in types)
    rows = 4 * cell[-1]
    wanted = ((*data[:1], cell[-1]), (rows, data[-1] + cell[-1]), (rows,), (*data[:1], cell[-1]))
    if len(data) != 2 or (output, weight, bias, cell) != wanted:
        shapes = ", ".join(str(list(t.shape)) for t in types)
        unsupported(ctx, op, f"data, output, weights, bias and cell of {shapes} do not match", code="E1207")


def _attrs(ctx: ConvertContext, op: OperatorView) -> LstmBasicAttrs:
    scale, _ = require_quant(ctx, op, ctx.output_type(op, 1), what="the cell")
    if abs(np.log2(scale) - CELL_POWER) >= 1e-3:
        unsupported(ctx, op, f"the cell's scale, {scale}, is not 2^{CELL_POWER}, the only one of the basic kernel", code="E1226")
    _, weight_zp = require_quant(ctx, op, ctx.input_type(op, 2), what="the weights")
    bias, _ = require_quant(ctx, op, ctx.input_type(op, 3), what="the bias")
    quants = tuple(ctx.output_type(op, i).quant for i in (0, 1, 3))
    return LstmBasicAttrs(weight_zp, *quantize_multiplier(_GATE * float(np.float32(bias))), quants)


register_op(
    NAME,
    4,
    arguments=[
        ("data", "float32, uint8 [B, I + N]", "the data of the step, then the last output"),
        ("cell", "float32, int16 [B, N]", "of the last step"),
        ("weight", "float32, uint8 [4 * N, I + N]", "gate by gate"),
        ("bias", "float32, int32 [4 * N]", "gate by gate"),
    ],
    attrs_type=LstmBasicAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="LSTM with the basic kernel; float32, uint8",
)
