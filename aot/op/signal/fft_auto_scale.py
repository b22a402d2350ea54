"""signal.scale_bits and signal.scale_up: SignalFftAutoScale of TFLM: as many bits to the left as the loudest sample leaves free.

The bits come from the largest magnitude, found in order in 16 bits: -32768 counts as -32768 there, not as 32768, and later
samples replace it.  Silence is not scaled.  Oracle: TFLM's `signal/src/fft_auto_scale.cc` and `max_abs.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.move import tensors_of
from aot.op.te_rule import F_TE, TeContext
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, binop, cast, imm


def infer_bits(types: Sequence[Type], _attrs: None) -> Type:
    """int16 [n] -> int32 []: bits that every sample can be shifted left by, 0 to 14."""
    (data,) = tensors_of(types, 1)
    if data.dtype != "int16" or len(data.shape) != 1:
        raise TypeRuleError(f"scale_bits of {data}")
    return TensorType((), "int32")


def largest_magnitude(data: Array) -> int:
    """As 16 bits hold it, in the order of the samples."""
    largest = 0
    for value in data.ravel().tolist():
        magnitude = value if value > largest else -value
        if magnitude > largest:
            largest = magnitude if magnitude <= 32767 else -32768
    return largest


def evaluate_bits(data: Array, *, attrs: None, out_type: TensorType) -> Array:
    largest = largest_magnitude(data)
    return np.asarray(max(15 - largest.bit_length(), 0) if largest > 0 else 0, np.int32)


def infer_scale_up(types: Sequence[Type], _attrs: None) -> Type:
    """int16 of any shape, int32 [] bits -> int16 of the same shape."""
    data, bits = tensors_of(types, 2)
    if data.dtype != "int16" or bits.dtype != "int32" or bits.shape:
        raise TypeRuleError(f"scale_up of {data} by {bits}")
    return TensorType(data.shape, "int16")


def evaluate_scale_up(data: Array, bits: Array, *, attrs: None, out_type: TensorType) -> Array:
    return (data.astype(np.int32) << (int(bits) & 15)).astype(np.int16)


def te_scale_up(_ctx: TeContext, args: Sequence[TensorFn], attrs: None, out_type: TensorType) -> TensorFn:
    data, bits = args

    def rule(b: IRBuilder, *i: Expr) -> Expr:
        factor = binop("<<", imm(1), bits.at(b, ()) & 15)
        return cast("int16", cast("int32", data.at(b, i)) * factor)

    return tensor_fn(out_type.shape, out_type.dtype, rule)


register_op(
    "signal.scale_bits",
    1,
    arguments=[("data", "int16 [n]", "a frame")],
    attrs_type=None,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_bits,
    evaluate=evaluate_bits,
    doc="SignalFftAutoScale of TFLM: bits that the loudest sample leaves free",
)
register_op(
    "signal.scale_up",
    2,
    arguments=[("data", "int16", "samples"), ("bits", "int32 []", "bits to the left")],
    attrs_type=None,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_scale_up,
    evaluate=evaluate_scale_up,
    doc="SignalFftAutoScale of TFLM: samples shifted left",
)
F_TE.set("signal.scale_up", te_scale_up)
