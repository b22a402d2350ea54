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

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import QuantParams, TensorType, TupleType, Type
from aot.numerics.elementary import apply
from aot.numerics.fixed16 import sigmoid16, tanh16
from aot.op.common.lanes import LANES, np_eigen_sum
from aot.support.dataclass import dataclass

NAME = "nn.lstm_basic"
DATA_ZP = 128


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
