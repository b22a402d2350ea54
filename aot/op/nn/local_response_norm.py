"""nn.lrn: LOCAL_RESPONSE_NORMALIZATION of TFLite: each number times a power of the sum of squares of channels around it.

out[c] = x[c] * (bias + alpha * sum of x[k]^2) ^ -beta over k from c - radius to c + radius - 1, the sum in float32,
the power in double precision.  Oracle: `reference_ops::LocalResponseNormalization`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.numerics.elementary import POW_DOUBLE, pow_double
from aot.op.common.move import tensors_of
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, reduce_axis, sum, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm, maximum, minimum


@dataclass(frozen=True, slots=True)
class LrnAttrs:
    """Channels to either side, and the numbers of the formula."""

    radius: int
    bias: float
    alpha: float
    beta: float


def infer_type(types: Sequence[Type], attrs: LrnAttrs) -> Type:
    """float32 [..., C] -> float32."""
    (data,) = tensors_of(types, 1)
    if data.dtype != "float32" or not data.shape or attrs.radius < 0:
        raise TypeRuleError(f"lrn of {data} by {attrs}")
    return data


def evaluate(data: Array, *, attrs: LrnAttrs, out_type: TensorType) -> Array:
    depth = data.shape[-1]
    sums = np.zeros(data.shape, np.float32)
    with np.errstate(all="ignore"):
        squares = data * data
        for c in range(depth):
            for k in range(max(0, c - attrs.radius), min(depth, c + attrs.radius)):
                sums[..., c] += squares[..., k]
        base = attrs.bias + attrs.alpha * sums.astype(np.float64)
        powers = np.array([pow_double(v, -attrs.beta) for v in base.ravel().tolist()]).reshape(data.shape)
        return np.asarray(data * powers.astype(np.float32), np.float32)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: LrnAttrs, out_type: TensorType) -> TensorFn:
    (data,) = args
    bias, alpha, power = (imm(v, "float64") for v in (attrs.bias, attrs.alpha, -attrs.beta))

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        c = i[-1]
        axis = reduce_axis(minimum(c + attrs.radius, data.shape[-1]), start=maximum(c - attrs.radius, 0), name="k")

        def square(k: Expr) -> Expr:
            value = b.let("value", data.at(b, (*i[:-1], k)))
            return value * value

        total = sum(b, [axis], square, init=imm(0.0, "float32"), dtype="float32")
        return data.at(b, i) * cast("float32", POW_DOUBLE(bias + alpha * cast("float64", total), power))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "nn.lrn",
    1,
    arguments=[("data", "float32 [..., C]", "channels last")],
    attrs_type=LrnAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="LOCAL_RESPONSE_NORMALIZATION; float32",
)
F_TE.set("nn.lrn", te_rule)
