"""signal.filter_bank: SignalFilterBank of TFLM: energies of channels, weighted sums of neighbouring bins.

Each channel's bins also count, with the complementary weights, for the channel after it; the first one is only such a neighbour.
Oracle: TFLM's `signal/src/filter_bank.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.move import tensors_of
from aot.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class FilterBankAttrs:
    """For each channel and the one before the first: its first bin, its first weight, its width in bins."""

    frequency_starts: tuple[int, ...]
    weight_starts: tuple[int, ...]
    widths: tuple[int, ...]


def infer_type(types: Sequence[Type], attrs: FilterBankAttrs) -> Type:
    """uint32 [bins], int16 [w] weights and the same of the complement -> uint64 [channels]."""
    data, weights, unweights = tensors_of(types, 3)
    if data.dtype != "uint32" or len(data.shape) != 1 or weights != unweights or weights.dtype != "int16":
        raise TypeRuleError(f"a filter bank of {data} by {weights} and {unweights}")
    ends = list(zip(attrs.frequency_starts, attrs.weight_starts, attrs.widths, strict=True))
    if len(weights.shape) != 1 or len(ends) < 2 or any(
        min(channel) < 0 or f + n > data.shape[0] or w + n > weights.shape[0] for channel in ends for f, w, n in [channel]
    ):  # fmt: skip
        raise TypeRuleError(f"a filter bank whose channels leave {data} or {weights}")
    return TensorType((len(ends) - 1,), "uint64")


def evaluate(data: Array, weights: Array, unweights: Array, *, attrs: FilterBankAttrs, out_type: TensorType) -> Array:
    wide = data.astype(np.uint64)
    sums = []
    for f, w, n in zip(attrs.frequency_starts, attrs.weight_starts, attrs.widths, strict=True):
        both = (table[w : w + n].astype(np.int64).astype(np.uint64) for table in (weights, unweights))
        sums.append([np.sum(wide[f : f + n] * factors, dtype=np.uint64) for factors in both])
    own, other = np.array(sums, np.uint64).T
    return np.asarray(own[1:] + other[:-1])


register_op(
    "signal.filter_bank",
    3,
    arguments=[
        ("data", "uint32 [bins]", "the energy of each bin"),
        ("weights", "int16 [w]", "weights of the bins of all channels, one after the other"),
        ("unweights", "int16 [w]", "what the bins weigh in the channel after"),
    ],
    attrs_type=FilterBankAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="SignalFilterBank of TFLM; uint32 to uint64",
)
