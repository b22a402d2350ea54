"""qnn.softmax16: SOFTMAX of TFLite on int16 over the last axis, by two tables with interpolation.

The difference to the row's maximum is scaled so that 65535 steps are 10, exp of it looked up (Q0.15), the sum normalised and its
reciprocal looked up; the products are rounded to Q0.15.  Oracle: `reference_ops::SoftmaxInt16` with the tables of
`activations.cc`.  TFLM computes the tables in single precision and the scale in double, TensorFlow Lite the other way round.

There is no te rule: the row's maximum and sum must be computed once a row.  `aot.topi.generic.normalization` lowers it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import QuantParams, TensorType, Type
from aot.numerics.elementary import apply
from aot.numerics.fixed_point import multiply_by_quantized_multiplier
from aot.op.qnn.lut16 import look_up, populate
from aot.support.dataclass import dataclass

RANGE = 65535
KINDS: dict[str, type[np.floating[Any]]] = {"float32": np.float32, "float64": np.float64}


@dataclass(frozen=True, slots=True)
class Softmax16Attrs:
    """multiplier * 2^(shift - 31) takes a difference of values to steps of 10 / 65535; in which type the tables are computed."""

    multiplier: int
    shift: int
    tables: str = "float64"


def infer_type(types: Sequence[Type], _attrs: Softmax16Attrs) -> Type:
    """int16 [..., C] -> int16 of the same shape with scale 2^-15."""
    (data,) = types
    if not isinstance(data, TensorType) or data.dtype != "int16" or not data.shape:
        raise TypeRuleError(f"softmax16 takes an int16 tensor, not {data}")
    return data.with_dtype("int16", QuantParams((2.0**-15,), (0,)))


@cache
def exp_table(kind: str) -> tuple[int, ...]:
    """exp over [-10, 0], Q0.15, computed in `kind`."""
    function = np.exp if kind == "float64" else partial(apply, "exp")
    return populate(function, (10.0 / RANGE, 32767), (2.0 / RANGE, 0), KINDS[kind])


@cache
def reciprocal_table(kind: str) -> tuple[int, ...]:
    """1 / (1 + x) over [0, 1], Q0.15, computed in `kind`."""
    one = KINDS[kind](1)
    return populate(lambda x: one / (one + x), (1.0 / RANGE, -32768), (2.0 / RANGE, 0), KINDS[kind])


def evaluate(data: Array, *, attrs: Softmax16Attrs, out_type: TensorType) -> Array:
    wide = data.astype(np.int64)
    difference = wide - wide.max(axis=-1, keepdims=True)
    scaled = multiply_by_quantized_multiplier(difference, attrs.multiplier, attrs.shift)
    exps = look_up(np.clip(scaled + 32767, -32768, 32767), np.asarray(exp_table(attrs.tables))).astype(np.int64)
    total = exps.sum(axis=-1, keepdims=True)
    zeros = 32 - np.frexp(total.astype(np.float64))[1].astype(np.int64)  # exact: an int32 fits a double
    mantissa = ((total << (zeros - 1)) + (1 << 13)) >> 14
    centred = np.clip(mantissa - ((1 << 15) + (1 << 16)), -32768, 32767)
    scale = look_up(centred, np.asarray(reciprocal_table(attrs.tables))).astype(np.int64)
    right = 31 - zeros
    result = (exps * scale + (np.int64(1) << (right - 1))) >> right
    return np.asarray(np.clip(result, 0, 32767)).astype(np.int16)


register_op(
    "qnn.softmax16",
    1,
    arguments=[("data", "int16 [..., C]", "the operand")],
    attrs_type=Softmax16Attrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="SOFTMAX; int16, last axis",
)
