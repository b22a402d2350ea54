"""signal.energy: SignalEnergy of TFLM: the square of the magnitude of each bin from `start` to `end`.

Bins outside are 0; TFLM does not write them.  Oracle: TFLM's `signal/src/energy.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.move import tensors_of
from aot.op.te_rule import F_TE, TeContext
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm, logical_and, select


@dataclass(frozen=True, slots=True)
class EnergyAttrs:
    """The first bin, and one more than the last."""

    start: int
    end: int


def infer_type(types: Sequence[Type], attrs: EnergyAttrs) -> Type:
    """int16 [2 * bins]: pairs -> uint32 [bins]."""
    (data,) = tensors_of(types, 1)
    if data.dtype != "int16" or len(data.shape) != 1 or data.shape[0] % 2 or not 0 <= attrs.start <= attrs.end:
        raise TypeRuleError(f"energy of {data}")
    if attrs.end > data.shape[0] // 2:
        raise TypeRuleError(f"energy of bins {attrs.start} to {attrs.end} of {data}")
    return TensorType((data.shape[0] // 2,), "uint32")


def evaluate(data: Array, *, attrs: EnergyAttrs, out_type: TensorType) -> Array:
    wide = data.astype(np.int64).reshape(-1, 2)
    energy = (wide * wide).sum(axis=1).astype(np.uint32)
    inside = (np.arange(len(energy)) >= attrs.start) & (np.arange(len(energy)) < attrs.end)
    return np.where(inside, energy, np.uint32(0))


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: EnergyAttrs, out_type: TensorType) -> TensorFn:
    (data,) = args

    def rule(b: IRBuilder, i: Expr) -> Expr:
        real, imaginary = (cast("int32", data.at(b, (i * 2 + part,))) for part in (0, 1))
        energy = cast("uint32", real * real) + cast("uint32", imaginary * imaginary)
        inside = logical_and(i >= attrs.start, i < attrs.end)
        return energy if (attrs.start, attrs.end) == (0, out_type.size) else select(inside, energy, imm(0, "uint32"))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "signal.energy",
    1,
    arguments=[("data", "int16 [2 * bins]", "pairs of real and imaginary part")],
    attrs_type=EnergyAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="SignalEnergy of TFLM; int16 to uint32",
)
F_TE.set("signal.energy", te_rule)
