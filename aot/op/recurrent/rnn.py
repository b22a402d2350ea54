"""Recurrent cells without gates: RNN and SVDF; the axes of a sequence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError
from aot.ir.type import TensorType, TupleType, Type
from aot.numerics.elementary import apply
from aot.op.common.float_layer import np_lane_sum, tir_lane_sum
from aot.op.common.operator import Index, operator
from aot.op.common.te_rule import TeContext
from aot.op.qnn.hybrid import quantized
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, reduce_axis, tensor_fn
from aot.te.tensor import sum as te_sum
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, logical_and, select

# The axes of a sequence: time, batch, and the data of each step.


@dataclass(frozen=True, slots=True)
class Sequences:
    """Data of shape [T, B, I] (`time_major`) or [B, T, I]."""

    shape: tuple[int, ...]
    time_major: bool

    @property
    def steps(self) -> int:
        return self.shape[0 if self.time_major else 1]

    @property
    def batch(self) -> int:
        return self.shape[1 if self.time_major else 0]

    @property
    def depth(self) -> int:
        return self.shape[2]

    def by_time(self, data: Array) -> Array:
        """[T, B, I]."""
        return data if self.time_major else np.swapaxes(data, 0, 1)

    def from_time(self, data: Array) -> Array:
        """The inverse of `by_time`."""
        return np.ascontiguousarray(data if self.time_major else np.swapaxes(data, 0, 1))


# nn.rnn: RNN, UNIDIRECTIONAL_SEQUENCE_RNN and BIDIRECTIONAL_SEQUENCE_RNN of TFLite, on float32 or hybrid.
#
# At each step h = activation(bias + W x + V y + R h), with y the auxiliary data.  float32 products are summed in four lanes
# (`aot.op.common.float_layer`); in hybrid layers the matrices are int8 and vectors are quantised at run time
# (`aot.op.qnn.hybrid`).  Oracle: `RnnBatchStep` of `kernel_utils.cc`.  Its BIDIRECTIONAL_SEQUENCE_RNN has faults, which are
# reproduced: hybrid and time-major, it walks the sequence once per step; batch-major, the backward half ignores its auxiliary
# data.


RNN = "nn.rnn"
_F = np.float32
BOUNDS: dict[str, tuple[float, float | None]] = {"RELU": (0.0, None), "RELU6": (0.0, 6.0), "RELU_N1_TO_1": (-1.0, 1.0)}


@operator(
    RNN,
    "RNN, UNIDIRECTIONAL_SEQUENCE_RNN, BIDIRECTIONAL_SEQUENCE_RNN; float32, hybrid",
    [
        ("data", "float32 [T, B, I]", "the sequence; [B, T, I] if not time-major"),
        ("output", "float32 [B, N]", "of the last step"),
        ("weight", "float32, int8 [N, I]", "of the data"),
        ("recurrent_weight", "float32, int8 [N, N]", "of the last output"),
        ("bias", "float32 [N]", "of each unit"),
        ("*auxiliary", "float32, int8", "auxiliary data and its weights"),
    ],
)
class RnnAttrs:
    """`activation`: NONE, TANH or one of BOUNDS; `backward`: from the last step to the first.

    `scales`: for hybrid layers, of the weights for data, output and auxiliary data; `asymmetric`: how their vectors are
    quantised; `passes`: how often the sequence is walked, each time from the state left by the previous pass.
    """

    time_major: bool
    activation: str
    backward: bool = False
    auxiliary: bool = False
    scales: tuple[float, ...] = ()
    asymmetric: bool = False
    passes: int = 1

    def infer_type(self, *types: TensorType) -> Type:
        """data [T, B, I] (or [B, T, I]), output [B, N], weights, bias -> (outputs [T, B, N], output)."""
        matrices = ("int8", "float32") if self.scales else ("float32",)
        fits = all(t.dtype in matrices for t in types) and len(types) == 5 + 2 * self.auxiliary
        if not fits or len(types[0].shape) != 3:
            raise TypeRuleError(f"{RNN} does not accept {', '.join(map(str, types))}")
        data, output, weight, recurrent, bias = types[:5]
        units = output.shape[-1]
        batch = Sequences(data.shape, time_major=self.time_major).batch
        expected = [(batch, units), (units, data.shape[2]), (units, units), (units,)]
        if [t.shape for t in (output, weight, recurrent, bias)] != expected:
            raise TypeRuleError(f"{RNN}: {output}, {weight}, {recurrent}, {bias} do not match {data}")
        return TupleType((TensorType((*data.shape[:2], units), "float32"), output))

    def evaluate(
        self, data: Array, output: Array, weight: Array, recurrent: Array, bias: Array, *more: Array, out_type: TupleType
    ) -> tuple[Array, Array]:
        sizes = Sequences(data.shape, time_major=self.time_major)
        steps = sizes.by_time(data)
        extra = sizes.by_time(more[0]) if self.auxiliary else steps
        result, h = np.zeros((sizes.steps, *output.shape), np.float32), output.copy()
        for t in list(range(sizes.steps)[::-1] if self.backward else range(sizes.steps)) * self.passes:
            for batch in range(sizes.batch):
                value = _added(bias, weight, steps[t, batch], self, 0)
                value = _added(value, more[1], extra[t, batch], self, 2) if self.auxiliary else value
                h[batch] = activated(_added(value, recurrent, h[batch], self, 1), self.activation)
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


# nn.svdf_memory and nn.svdf_time: the two halves of SVDF's filter in time.
#
# nn.svdf_memory: state [B, F * M] has the last M features of each of F filters, oldest first:
#   out[b, f, m] = state[b, f, m + 1], the newest being feature[b, f] + zero point (int8 wraps there, as in TFLM).
# nn.svdf_time: each of U = F / rank units adds up `rank` filters:
#   acc[b, u] = sum over r, m of weight[u * rank + r, m] * state[b, u * rank + r, m]
# Integers give int32 sums; float32 is summed in four lanes (`aot.op.common.float_layer`), first over m, then over r.
# Oracles: `reference_ops::EvalIntegerSVDF`, `EvalFloatSVDF`.


MEMORY, TIME = "nn.svdf_memory", "nn.svdf_time"


@operator(
    MEMORY,
    "SVDF's state: every filter forgets its oldest feature",
    [("state", "int8, int16, float32 [B, F * M]", "the last features"), ("feature", "as state [B, F]", "the newest")],
    OpPattern.INJECTIVE,
)
class SvdfMemoryAttrs:
    """The offset that turns a feature into a value of the state."""

    state_zp: int = 0

    def infer_type(self, state: TensorType, feature: TensorType) -> Type:
        """state [B, F * M] and feature [B, F] of one type -> the type of state."""
        if len(state.shape) != 2 or len(feature.shape) != 2 or state.dtype != feature.dtype:
            raise TypeRuleError(f"{MEMORY} needs a state and features, not {state} and {feature}")
        if state.shape[0] != feature.shape[0] or state.shape[1] % feature.shape[1]:
            raise TypeRuleError(f"{MEMORY}: features {feature} do not fit the state {state}")
        return state

    def evaluate(self, state: Array, feature: Array, *, out_type: TensorType) -> Array:
        filters = state.reshape(*feature.shape, -1)
        newest = feature if feature.dtype == np.float32 else (feature.astype(np.int32) + self.state_zp).astype(state.dtype)
        return np.concatenate([filters[..., 1:], newest[..., None]], axis=-1).reshape(state.shape)

    def element(self, b: IRBuilder, index: Index, state: TensorFn, feature: TensorFn, *, out_type: TensorType) -> Expr:
        batch, place = index
        depth = state.shape[1] // feature.shape[1]
        newest = feature.at(b, (batch, place // depth))
        if self.state_zp:
            newest = cast(state.dtype, cast("int32", newest) + self.state_zp)
        older = logical_and(place % depth < depth - 1, place < state.shape[1] - 1)
        return select(older, state.at(b, (batch, place + 1)), newest)


@operator(
    TIME,
    "SVDF's filter in time; int8, int16, float32",
    [
        ("state", "int8, int16, float32 [B, F * M]", "the last features of each filter"),
        ("weight", "int8, int16, float32 [F, M]", "one for each of them"),
    ],
    OpPattern.OUT_ELEMWISE_FUSABLE,
)
class SvdfTimeAttrs:
    """Filters of one unit; the state's zero point."""

    rank: int
    state_zp: int = 0

    def infer_type(self, state: TensorType, weight: TensorType) -> Type:
        """state [B, F * M], weight [F, M] -> int32 or float32 [B, F / rank]."""
        if len(state.shape) != 2 or len(weight.shape) != 2 or state.shape[1] != weight.size:
            raise TypeRuleError(f"{TIME} needs a state and weights of as many values, not {state} and {weight}")
        if (state.dtype == "float32") != (weight.dtype == "float32") or self.rank < 1 or weight.shape[0] % self.rank:
            raise TypeRuleError(f"{TIME}: rank {self.rank} or types do not fit {state} and {weight}")
        dtype = "float32" if state.dtype == "float32" else "int32"
        return TensorType((state.shape[0], weight.shape[0] // self.rank), dtype)

    def evaluate(self, state: Array, weight: Array, *, out_type: TensorType) -> Array:
        filters = state.reshape(len(state), *weight.shape)
        units = (len(state), -1, self.rank)
        if out_type.dtype == "float32":
            with np.errstate(all="ignore"):
                return np_lane_sum(np_lane_sum(weight * filters).reshape(units))
        products = weight.astype(np.int64) * (filters.astype(np.int64) - self.state_zp)
        return np.asarray(products.sum(-1).reshape(units).sum(-1).astype(np.int32))

    def te_rule(self, _ctx: TeContext, args: Sequence[TensorFn], out_type: TensorType) -> TensorFn:
        state, weight = args
        depth = weight.shape[1]

        def exact(b: IRBuilder, batch: Expr, unit: Expr) -> Expr:
            def term(r: Expr, m: Expr) -> Expr:
                row = unit * self.rank + r
                value = cast("int32", state.at(b, (batch, row * depth + m))) - self.state_zp
                return cast("uint32", cast("int32", weight.at(b, (row, m))) * value)

            axes = [reduce_axis(self.rank, name="r"), reduce_axis(depth, name="m")]
            return cast("int32", te_sum(b, axes, term, dtype="uint32"))

        def floating(b: IRBuilder, batch: Expr, unit: Expr) -> Expr:
            def filtered(r: Expr) -> Expr:
                row = b.let("row", unit * self.rank + r)
                return tir_lane_sum(b, depth, lambda m: weight.at(b, (row, m)) * state.at(b, (batch, row * depth + m)))

            return tir_lane_sum(b, self.rank, filtered)

        return tensor_fn(out_type.shape, out_type.dtype, floating if out_type.dtype == "float32" else exact)


# ---- nn.svdf_memory


# ---- nn.svdf_time
