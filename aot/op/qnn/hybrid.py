"""qnn.hybrid_output, and the hybrid forms of FULLY_CONNECTED, CONV_2D and DEPTHWISE_CONV_2D: float32 data, integer weights.

The data is quantised as it comes (`dynamic_quantize.py`), the products are added up in integers, and the sums become float32:

  out = clamp(float(acc) * (weight scale * data scale) + bias)   FULLY_CONNECTED, DEPTHWISE_CONV_2D, CONV_2D of one weight scale
  out = clamp(float(acc) * weight scale * data scale + bias)     CONV_2D of several weight scales or several groups

Without a bias 0 is added: the reference adds to an output of zeros, which makes 0 of the -0 of a product that underflows.
FULLY_CONNECTED takes the data symmetrically unless its option says otherwise, CONV_2D of one weight scale symmetrically, all else
asymmetrically.  Oracles: `EvalHybridDense`, `HybridConv`, `HybridConvPerChannel`, `DepthwiseConvHybridPerChannel`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import VARIABLE, Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm, select

NAME = "qnn.hybrid_output"


@dataclass(frozen=True, slots=True)
class HybridOutputAttrs:
    """Whether the weight scale is applied to the sum alone, before the data's (`weight_first`); clamp (None: none)."""

    weight_first: bool = False
    lo: float | None = None
    hi: float | None = None


def infer_type(types: Sequence[Type], _attrs: HybridOutputAttrs) -> Type:
    """acc int32 [B, ..., C], params float32 [B, 3], weight scales float32 [1] or [C], bias float32 [C] -> float32 [B, ..., C]."""
    found = [t for t in types if isinstance(t, TensorType)]
    if len(found) != len(types) or len(found) not in (3, 4) or found[0].dtype != "int32" or not found[0].shape:
        raise TypeRuleError(f"{NAME} does not take {', '.join(map(str, types))}")
    acc, params, scales, *bias = found
    if any(t.dtype != "float32" for t in found[1:]) or params.shape != (acc.shape[0], 3):
        raise TypeRuleError(f"{NAME} of {acc} has parameters {params}")
    if scales.size not in (1, acc.shape[-1]) or any(t.size != acc.shape[-1] for t in bias):
        raise TypeRuleError(f"{NAME} of {acc.shape[-1]} channels has {scales.size} scales or a bias of another size")
    return acc.with_dtype("float32")


def evaluate(acc: Array, params: Array, scales: Array, *bias: Array, attrs: HybridOutputAttrs, out_type: TensorType) -> Array:
    data_scale = params[:, 0].reshape((-1,) + (1,) * (acc.ndim - 1))
    weight_scale = scales.reshape(-1)
    total = acc.astype(np.float32)
    with np.errstate(all="ignore"):
        value = total * weight_scale * data_scale if attrs.weight_first else total * (weight_scale * data_scale)
        value = value + (bias[0].reshape(-1) if bias else np.float32(0))
        value = value if attrs.lo is None else np.where(value < np.float32(attrs.lo), np.float32(attrs.lo), value)
        value = value if attrs.hi is None else np.where(value > np.float32(attrs.hi), np.float32(attrs.hi), value)
    return np.asarray(value, np.float32)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: HybridOutputAttrs, out_type: TensorType) -> TensorFn:
    acc, params, scales, *bias = args

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        total = cast("float32", acc.at(b, i))
        weight_scale = scales.at(b, (i[-1] if scales.shape[0] > 1 else imm(0),))
        data_scale = params.at(b, (i[0], imm(0)))
        value = total * weight_scale * data_scale if attrs.weight_first else total * (weight_scale * data_scale)
        value = value + (bias[0].at(b, (i[-1],)) if bias else imm(0.0, "float32"))
        for bound, below in ((attrs.lo, True), (attrs.hi, False)):
            if bound is not None:
                value = b.let("value", value)
                limit = imm(float(np.float32(bound)), "float32")
                value = select(value < limit if below else value > limit, limit, value)
        return value

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    NAME,
    VARIABLE,
    arguments=[
        ("acc", "int32 [B, ..., C]", "the sums of a layer"),
        ("params", "float32 [B, 3]", "of the quantised data"),
        ("scales", "float32 [1] or [C]", "of the weights"),
        ("bias?", "float32 [C]", "what is added to each channel"),
    ],
    attrs_type=HybridOutputAttrs,
    pattern=OpPattern.BROADCAST,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="hybrid layers: integer sums to float32, bias and activation",
)
F_TE.set(NAME, te_rule)
