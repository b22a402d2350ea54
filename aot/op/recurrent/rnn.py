"""nn.rnn: RNN, UNIDIRECTIONAL_SEQUENCE_RNN and BIDIRECTIONAL_SEQUENCE_RNN of TFLite, on float32 or hybrid.

At each step h = activation(bias + W x + V y + R h), y being auxiliary data.  Products of float32 are added up by four lanes
(`aot.op.common.lanes`); hybrid, the matrices are int8 and vectors are quantised as they come (`aot.op.qnn.dynamic_quantize`).
Oracle: `RnnBatchStep` of `kernel_utils.cc`.  BIDIRECTIONAL_SEQUENCE_RNN has faults there, which are reproduced: hybrid with the
time first, it walks the sequence once for each step; with the batches first, the backward half ignores auxiliary data of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import VARIABLE, Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, TupleType, Type
from aot.numerics.elementary import apply
from aot.op.common.integer_vector import quantized
from aot.op.common.lanes import np_lane_sum
from aot.op.common.sequence import Sequences
from aot.support.dataclass import dataclass

NAME = "nn.rnn"
_F = np.float32
BOUNDS: dict[str, tuple[float, float | None]] = {"RELU": (0.0, None), "RELU6": (0.0, 6.0), "RELU_N1_TO_1": (-1.0, 1.0)}


@dataclass(frozen=True, slots=True)
class RnnAttrs:
    """`activation`: NONE, TANH or one of BOUNDS; `backward`: from the last step to the first.

    `scales`: of hybrid ones, those of the data's, the output's and the auxiliary data's weights; `asymmetric`: how vectors are
    quantised then; `passes`: how often the sequence is walked, from the state that the pass before has left.
    """

    time_major: bool
    activation: str
    backward: bool = False
    auxiliary: bool = False
    scales: tuple[float, ...] = ()
    asymmetric: bool = False
    passes: int = 1


def infer_type(types: Sequence[Type], attrs: RnnAttrs) -> Type:
    """data [T, B, I] (or [B, T, I]), output [B, N], weights, bias -> (outputs [T, B, N], output)."""
    matrices = ("int8", "float32") if attrs.scales else ("float32",)
    found = [t for t in types if isinstance(t, TensorType) and t.dtype in matrices]
    if len(found) != len(types) or len(found) != 5 + 2 * attrs.auxiliary or len(found[0].shape) != 3:
        raise TypeRuleError(f"{NAME} does not take {', '.join(map(str, types))}")
    data, output, weight, recurrent, bias = found[:5]
    units = output.shape[-1]
    batch = Sequences(data.shape, time_major=attrs.time_major).batch
    wanted = [(batch, units), (units, data.shape[2]), (units, units), (units,)]
    if [t.shape for t in (output, weight, recurrent, bias)] != wanted:
        raise TypeRuleError(f"{NAME}: {output}, {weight}, {recurrent}, {bias} do not match {data}")
    return TupleType((TensorType((*data.shape[:2], units), "float32"), output))


def evaluate(
    data: Array, output: Array, weight: Array, recurrent: Array, bias: Array, *more: Array, attrs: RnnAttrs, out_type: TupleType
) -> tuple[Array, Array]:
    sizes = Sequences(data.shape, time_major=attrs.time_major)
    steps = sizes.by_time(data)
    extra = sizes.by_time(more[0]) if attrs.auxiliary else steps
    result, h = np.zeros((sizes.steps, *output.shape), np.float32), output.copy()
    for t in list(range(sizes.steps)[::-1] if attrs.backward else range(sizes.steps)) * attrs.passes:
        for batch in range(sizes.batch):
            value = _added(bias, weight, steps[t, batch], attrs, 0)
            value = _added(value, more[1], extra[t, batch], attrs, 2) if attrs.auxiliary else value
            h[batch] = activated(_added(value, recurrent, h[batch], attrs, 1), attrs.activation)
        result[t] = h
    return sizes.from_time(result), h


def _added(value: Array, matrix: Array, x: Array, attrs: RnnAttrs, which: int) -> Array:
    """value + matrix * x."""
    with np.errstate(all="ignore"):
        if not attrs.scales:
            return np_lane_sum(matrix * x, value)
        integers, scale = quantized(x, asymmetric=attrs.asymmetric)
        sums = (matrix.astype(np.int64) @ integers.astype(np.int64)).astype(np.float32)
        return np.asarray(value + sums * (scale * _F(attrs.scales[which])))


def activated(x: Array, activation: str) -> Array:
    """The fused activation, by its name in the file, of float32 values."""
    if activation in BOUNDS:
        low, high = BOUNDS[activation]
        x = np.where(x > _F(low), x, _F(low))
        return x if high is None else np.where(x < _F(high), x, _F(high))
    return apply("eigen_tanh", x) if activation == "TANH" else x


register_op(
    NAME,
    VARIABLE,
    arguments=[
        ("data", "float32 [T, B, I]", "the sequence; [B, T, I] if not time-major"),
        ("output", "float32 [B, N]", "of the last step"),
        ("weight", "float32, int8 [N, I]", "of the data"),
        ("recurrent_weight", "float32, int8 [N, N]", "of the last output"),
        ("bias", "float32 [N]", "of each unit"),
        ("*auxiliary", "float32, int8", "auxiliary data and its weights"),
    ],
    attrs_type=RnnAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="RNN, UNIDIRECTIONAL_SEQUENCE_RNN, BIDIRECTIONAL_SEQUENCE_RNN; float32, hybrid",
)
