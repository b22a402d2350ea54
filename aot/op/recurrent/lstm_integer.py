"""qnn.lstm: LSTM over all time steps of a sequence, int8 or int16 data, int8 weights, int16 gates and cells.

At each step, with x the data, h the last output, c the cell (gates in the order input, forget, cell, output; without an input
gate, CIFG, it is 1 - forget):

  gate  = sat(rescale(W x + input bias)), sat(gate + rescale(R h + recurrent bias))
  gate += rescale(peephole * c) (not of the cell gate; of the new c for the output gate), layer normalisation
  c     = sat(sigmoid(forget) * c + sigmoid(input) * tanh(cell)), clipped
  h     = zp + rescale(sigmoid(output) * tanh(c)), or that through a projection, clipped

Gates have 12 fractional bits.  `activation` "fixed": gemmlowp's functions (LiteRT); "table": those of int16 LOGISTIC and TANH
(TFLM).  Oracles: `LstmStepInteger8x8_16` of `lstm_eval.cc`; TFLM's `lstm_eval.h`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import VARIABLE, Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import QuantParams, TensorType, TupleType, Type
from aot.numerics.fixed16 import sigmoid16, tanh16
from aot.numerics.fixed_point import multiply_by_quantized_multiplier as rescaled
from aot.numerics.inv_sqrt import inverse_sqrt
from aot.op.common.sequence import Sequences
from aot.op.qnn.lut16 import Sigmoid16Attrs, evaluate_sigmoid16
from aot.support.dataclass import dataclass

NAME = "qnn.lstm"
Scale = tuple[int, int]
"""Multiplier and shift."""


@dataclass(frozen=True, slots=True)
class LstmAttrs:
    """`input_scales`, `recurrent_scales`: of each gate; three gates are those of a CIFG LSTM.

    `peephole_scales`: of each gate but the cell's; `norm`: (multiplier, shift, least variance) of each gate; empty without.
    `forget_scale`, `update_scale`: of the two products that make the cell, a multiplier of 0 for a rounding shift alone.
    `cell_bits`: integer bits of the cell (for "table" the sigmoid's argument is scaled by it too); see `has_cell_tanh`.
    `hidden_scale`, `hidden_zp`: of the output before the projection, `projection_scale` (None: there is none) and `output_zp`
    of that after it.  Clips are 0 if there is none.  `rounding` is that of the sums of products: "single", with 16-bit
    multipliers, for int16 data.
    """

    time_major: bool
    input_scales: tuple[Scale, ...]
    recurrent_scales: tuple[Scale, ...]
    forget_scale: Scale
    update_scale: Scale
    cell_bits: int
    hidden_scale: Scale
    hidden_zp: int
    output_zp: int = 0
    projection_scale: Scale | None = None
    peephole_scales: tuple[Scale, ...] = ()
    norm: tuple[tuple[int, int, int], ...] = ()
    cell_clip: int = 0
    projection_clip: int = 0
    activation: str = "fixed"
    rounding: str = "double"
    quant: QuantParams | None = None

    @property
    def is_tflm(self) -> bool:
        """Both shares of a gate are saturated there before they are added."""
        return self.activation == "table"

    @property
    def has_cell_tanh(self) -> bool:
        """LiteRT has tanh for 0 to 6 integer bits; with others it multiplies by the input gate, which its buffer still holds."""
        return self.is_tflm or 0 <= self.cell_bits <= 6

    @property
    def gates(self) -> int:
        return len(self.input_scales)

    @property
    def cell_gate(self) -> int:
        """The gate that has tanh, no peephole."""
        return self.gates - 2


@dataclass(frozen=True, slots=True)
class LstmWeights:
    """The constant operands, in this order; None for those that the attributes do not ask for."""

    input: Array
    recurrent: Array
    input_bias: Array
    recurrent_bias: Array
    peephole: Array | None = None
    norm: Array | None = None
    norm_bias: Array | None = None
    projection: Array | None = None
    projection_bias: Array | None = None


def weights_of(attrs: LstmAttrs, constants: Sequence[Array]) -> LstmWeights:
    """The constants by name."""
    names = ["input", "recurrent", "input_bias", "recurrent_bias"]
    names += ["peephole"] * bool(attrs.peephole_scales) + ["norm", "norm_bias"] * bool(attrs.norm)
    names += ["projection", "projection_bias"] * (attrs.projection_scale is not None)
    return LstmWeights(**dict(zip(names, constants, strict=True)))


def infer_type(types: Sequence[Type], attrs: LstmAttrs) -> Type:
    """data [T, B, I] (or [B, T, I]), output [B, O], cell [B, N], weights -> (outputs [T, B, O], output, cell)."""
    found = [t for t in types if isinstance(t, TensorType)]
    if len(found) != len(types) or len(found) < 7 or len(found[0].shape) != 3:
        raise TypeRuleError(f"{NAME} does not take {', '.join(map(str, types))}")
    data, output, cell, input_weight, recurrent_weight = found[:5]
    sizes = Sequences(data.shape, time_major=attrs.time_major)
    cells, outputs = cell.shape[-1], output.shape[-1]
    wanted = [(sizes.batch, outputs), (sizes.batch, cells), (attrs.gates * cells, sizes.depth), (attrs.gates * cells, outputs)]
    if [t.shape for t in found[1:5]] != wanted or data.dtype != output.dtype or cell.dtype != "int16":
        raise TypeRuleError(f"{NAME}: {output}, {cell}, {input_weight}, {recurrent_weight} do not match {data}")
    result = TensorType((*data.shape[:2], outputs), data.dtype, attrs.quant)
    return TupleType((result, output, cell))


def sigmoid(x: Array, attrs: LstmAttrs) -> Array:
    """Of a gate, int64."""
    if attrs.activation == "fixed":
        return sigmoid16(x).astype(np.int64)
    return _table("logistic", x, 3)


def tanh(x: Array, attrs: LstmAttrs, bits: int = 3) -> Array:
    """Of a gate or, with its integer bits, of the cell; int64."""
    return tanh16(x, bits).astype(np.int64) if attrs.activation == "fixed" else _table("tanh", x, bits)


def _table(function: str, x: Array, bits: int) -> Array:
    attrs = table_attrs(function, bits)
    return evaluate_sigmoid16(x, attrs=attrs, out_type=TensorType(x.shape, "int16")).astype(np.int64)


def table_attrs(function: str, bits: int) -> Sigmoid16Attrs:
    """The function of arguments with `bits` integer bits, which are multiplied by 3 * 2^n or 3 / 2^n."""
    return Sigmoid16Attrs(function, *((3 << (bits - 3), 0) if bits >= 3 else (3, 3 - bits)))


def product(a: Array, b: Array, scale: Scale) -> Array:
    """a * b, rescaled; a multiplier of 0 is a shift to the right with halves away from zero."""
    multiplier, shift = scale
    if multiplier:
        return rescaled(a * b, multiplier, shift)
    value = a * b
    return value if shift == 0 else (value + (1 << (shift - 1)) - (value < 0)) >> shift


def _saturated(x: Array, dtype: str = "int16") -> Array:
    limits = np.iinfo(dtype)
    return np.clip(x, limits.min, limits.max)


def normalized(x: Array, weight: Array, bias: Array, scale: tuple[int, int, int]) -> Array:
    """Layer normalisation of rows of gates [.., N], as `PortableApplyLayerNorm` has it; int64 within int16."""
    multiplier, shift, least = scale
    count = x.shape[-1]
    rows = []
    for row in x.reshape(-1, count):
        total, squares = int(row.sum()), int((row * row).sum())
        mean = abs(total * 1024) // count * (1 if total >= 0 else -1)
        spread = squares * ((1 << 20) // count) - mean * mean
        variance = abs(spread) // (1 << 20) * (1 if spread >= 0 else -1)
        variance = (variance + (1 << 31)) % (1 << 32) - (1 << 31)
        inverse, exponent = inverse_sqrt(least if variance < 1 else variance)
        value = rescaled(1024 * row - mean, inverse, exponent) * weight + bias
        value = (np.abs(value) + 512) // 1024 * np.where(value > 0, 1, -1)
        rows.append(_saturated(rescaled(value, multiplier, shift + 12)))
    return np.asarray(rows).reshape(x.shape)


def evaluate(
    data: Array, output: Array, cell: Array, *constants: Array, attrs: LstmAttrs, out_type: TupleType
) -> tuple[Array, Array, Array]:
    weights = weights_of(attrs, [c.astype(np.int64) for c in constants])
    sizes = Sequences(data.shape, time_major=attrs.time_major)
    steps = sizes.by_time(data.astype(np.int64))
    h, c = output.astype(np.int64), cell.astype(np.int64)
    results = []
    for x in steps:
        h, c = _step(x, h, c, weights, attrs, str(data.dtype))
        results.append(h)
    made = sizes.from_time(np.stack(results)).astype(data.dtype)
    return made, h.astype(output.dtype), c.astype(cell.dtype)


def _step(x: Array, h: Array, c: Array, weights: LstmWeights, attrs: LstmAttrs, dtype: str) -> tuple[Array, Array]:
    from_data = x @ weights.input.T + weights.input_bias
    from_output = h @ weights.recurrent.T + weights.recurrent_bias
    n = c.shape[-1]

    def gate(g: int, cells: Array) -> Array:
        part = slice(g * n, (g + 1) * n)
        share = rescaled(from_output[:, part], *attrs.recurrent_scales[g], rounding=attrs.rounding)
        value = _saturated(rescaled(from_data[:, part], *attrs.input_scales[g], rounding=attrs.rounding))
        value = _saturated(value + (_saturated(share) if attrs.is_tflm else share))
        if weights.peephole is not None and g != attrs.cell_gate:
            value = _peeped(value, cells, weights.peephole, attrs, gate=g, outputs=h.shape[-1])
        if weights.norm is not None and weights.norm_bias is not None:
            value = normalized(value, weights.norm[part], weights.norm_bias[part], attrs.norm[g])
        return tanh(value, attrs) if g == attrs.cell_gate else sigmoid(value, attrs)

    forget = gate(attrs.cell_gate - 1, c)
    entry = gate(0, c) if attrs.gates == 4 else 32767 - forget
    update = product(entry, gate(attrs.cell_gate, c), attrs.update_scale)
    c = _saturated(product(forget, c, attrs.forget_scale).astype(np.int16).astype(np.int64) + update.astype(np.int16))
    c = np.clip(c, -attrs.cell_clip, attrs.cell_clip) if attrs.cell_clip else c
    opened = gate(attrs.gates - 1, c)
    hidden = product(opened, tanh(c, attrs, attrs.cell_bits) if attrs.has_cell_tanh else entry, attrs.hidden_scale)
    if weights.projection is None or weights.projection_bias is None or attrs.projection_scale is None:
        return _saturated(hidden + attrs.hidden_zp, dtype), c
    hidden = _saturated(hidden + attrs.hidden_zp, "int8")
    sums = hidden @ weights.projection.T + weights.projection_bias
    h = _saturated(rescaled(sums, *attrs.projection_scale) + attrs.output_zp, dtype)
    return (np.clip(h, -attrs.projection_clip, attrs.projection_clip) if attrs.projection_clip else h), c


def _peeped(value: Array, cells: Array, weight: Array, attrs: LstmAttrs, *, gate: int, outputs: int) -> Array:
    """The gate with the cell's share; as in the reference of the first `outputs` cells of each batch, counted through."""
    index = peephole_of(attrs, gate)
    multiplier, shift = attrs.peephole_scales[index]
    n = value.shape[-1]
    if attrs.time_major:
        flat, own = value.reshape(-1).copy(), cells.reshape(-1)
        count = outputs * len(value)
        share = rescaled(own[:count] * np.tile(weight[index * n : index * n + outputs], len(value)), multiplier, shift)
        flat[:count] = _saturated(flat[:count] + share)
        return flat.reshape(value.shape)
    value = value.copy()
    share = rescaled(cells[:, :outputs] * weight[index * n : index * n + outputs], multiplier, shift)
    value[:, :outputs] = _saturated(value[:, :outputs] + share)
    return value


def peephole_of(attrs: LstmAttrs, gate: int) -> int:
    """Which of the peepholes is the gate's: the cell gate has none."""
    return gate if gate < attrs.cell_gate else gate - 1


register_op(
    NAME,
    VARIABLE,
    arguments=[
        ("data", "int8, int16 [T, B, I]", "the sequence; [B, T, I] if not time-major"),
        ("output", "as data [B, O]", "of the last step"),
        ("cell", "int16 [B, N]", "of the last step"),
        ("input_weight", "int8 [G * N, I]", "gate by gate"),
        ("recurrent_weight", "int8 [G * N, O]", "gate by gate"),
        ("input_bias", "int32 [G * N]", "with the data's zero point in it"),
        ("recurrent_bias", "int32 [G * N]", "the output's zero point"),
        ("*others", "int16, int8, int32", "peepholes; layer normalisation and its bias; projection and its bias"),
    ],
    attrs_type=LstmAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="UNIDIRECTIONAL_SEQUENCE_LSTM, LSTM; int8, int16 x int8",
)
