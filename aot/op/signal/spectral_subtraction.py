"""signal.noise_estimate and signal.subtract_noise: SignalFilterBankSpectralSubtraction of TFLM.

estimate' = (signal << bits) * smoothing + estimate * (1 - smoothing) in fixed point, for channels of odd numbers with factors of
their own; what remains of the signal is at least a part of it.  The estimate is a state and a result.
Oracle: TFLM's `signal/src/filter_bank_spectral_subtraction.cc`.
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
from aot.tir.expr import Expr, cast, equal, imm, maximum, minimum, select


@dataclass(frozen=True, slots=True)
class NoiseAttrs:
    """(smoothing, 1 - smoothing) of even and of odd channels, the least part that remains, all with `bits` of fraction; bits that
    the signal is shifted left by; whether the estimate stays below the signal.
    """

    even: tuple[int, int]
    odd: tuple[int, int]
    remaining: int
    bits: int
    smoothing_bits: int
    clamping: bool


def infer_type(types: Sequence[Type], attrs: NoiseAttrs) -> Type:
    """uint32 [n] signal and estimate -> uint32 [n]."""
    data, estimate = tensors_of(types, 2)
    if data.dtype != "uint32" or len(data.shape) != 1 or estimate != data:
        raise TypeRuleError(f"noise of {data} with estimate {estimate}")
    if not 0 <= attrs.bits < 64 or not 0 <= attrs.smoothing_bits < 32:
        raise TypeRuleError(f"noise of {data} by {attrs}")
    return TensorType(data.shape, "uint32")


def evaluate_estimate(data: Array, estimate: Array, *, attrs: NoiseAttrs, out_type: TensorType) -> Array:
    signal = (data << np.uint32(attrs.smoothing_bits)).astype(np.uint64)
    is_odd = np.arange(data.size) % 2 == 1
    new, old = (np.where(is_odd, np.uint64(attrs.odd[i]), np.uint64(attrs.even[i])) for i in range(2))
    with np.errstate(over="ignore"):
        found = ((signal * new + estimate.astype(np.uint64) * old) >> np.uint64(attrs.bits)).astype(np.uint32)
    return np.minimum(found, signal.astype(np.uint32)) if attrs.clamping else found


def evaluate_subtract(data: Array, estimate: Array, *, attrs: NoiseAttrs, out_type: TensorType) -> Array:
    signal = data << np.uint32(attrs.smoothing_bits)
    left = (signal - np.minimum(estimate, signal)) >> np.uint32(attrs.smoothing_bits)
    least = ((data.astype(np.uint64) * np.uint64(attrs.remaining)) >> np.uint64(attrs.bits)).astype(np.uint32)
    return np.asarray(np.maximum(left, least))


def te_estimate(_ctx: TeContext, args: Sequence[TensorFn], attrs: NoiseAttrs, out_type: TensorType) -> TensorFn:
    data, estimate = args

    def rule(b: IRBuilder, i: Expr) -> Expr:
        signal = b.let("signal", data.at(b, (i,)) << attrs.smoothing_bits)
        is_even = equal(i % 2, 0)
        pairs = zip(attrs.even, attrs.odd, strict=True)
        new, old = (
            imm(e, "uint64") if e == o else b.let("factor", select(is_even, imm(e, "uint64"), imm(o, "uint64"))) for e, o in pairs
        )
        total = cast("uint64", signal) * new + cast("uint64", estimate.at(b, (i,))) * old
        found = cast("uint32", total >> attrs.bits)
        return minimum(b.let("found", found), signal) if attrs.clamping else found

    return tensor_fn(out_type.shape, out_type.dtype, rule)


def te_subtract(_ctx: TeContext, args: Sequence[TensorFn], attrs: NoiseAttrs, out_type: TensorType) -> TensorFn:
    data, estimate = args

    def rule(b: IRBuilder, i: Expr) -> Expr:
        value = b.let("value", data.at(b, (i,)))
        signal = b.let("signal", value << attrs.smoothing_bits)
        left = b.let("left", (signal - minimum(b.let("noise", estimate.at(b, (i,))), signal)) >> attrs.smoothing_bits)
        least = b.let("least", cast("uint32", (cast("uint64", value) * attrs.remaining) >> attrs.bits))
        return maximum(left, least)

    return tensor_fn(out_type.shape, out_type.dtype, rule)


for _name, _evaluate, _rule, _doc in (
    ("signal.noise_estimate", evaluate_estimate, te_estimate, "the new estimate"),
    ("signal.subtract_noise", evaluate_subtract, te_subtract, "what remains"),
):
    register_op(
        _name,
        2,
        arguments=[("data", "uint32 [n]", "the signal in each channel"), ("estimate", "uint32 [n]", "the noise")],
        attrs_type=NoiseAttrs,
        pattern=OpPattern.OPAQUE,
        infer_type=infer_type,
        evaluate=_evaluate,
        doc=f"SignalFilterBankSpectralSubtraction of TFLM: {_doc}",
    )
    F_TE.set(_name, _rule)
