"""In which precision each reference multiplies and divides the scales of an operator's tensors: one table, which converters read.

A quantised operator rescales by a real number made of scales (a/c, a*b/c, a/(b*c)), which QuantizeMultiplier then turns into 31
bits.  The scales are float32; a product or quotient that is rounded to float32 on the way moves the last seven of those bits,
which shows in a result now and then.  The references are not of one mind: the rows below are from their Prepare functions,
TensorFlow Lite's in `tflite/kernels/NAME.cc`, TFLM's in `tensorflow/lite/micro/kernels/NAME_common.cc`.

Multipliers that are infinite or NaN: see `aot.numerics.indefinite`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from math import prod

import numpy as np


class Precision(Enum):
    """How factors / divisors is computed, each product from left to right."""

    DOUBLE = "every step in double precision"
    SINGLE = "every step in float32"
    SINGLE_PRODUCT = "products in float32, the quotient in double precision"


_D, _S, _P = Precision.DOUBLE, Precision.SINGLE, Precision.SINGLE_PRODUCT

LITERT: dict[tuple[str, str], Precision] = {
    # kernel_util.cc PopulateConvolutionQuantizationParams; of uint8 GetQuantizedConvolutionMultipler
    **{(name, "*"): _D for name in ("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV")},
    **{(name, "uint8"): _P for name in ("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV")},
    # reference/integer_ops/fully_connected.h and reference/fully_connected.h: effective_output_scale, which stays a double
    ("FULLY_CONNECTED", "*"): _D,
    # batch_matmul.cc Prepare: GetQuantizedConvolutionMultipler
    ("BATCH_MATMUL", "*"): _P,
    # add.cc, sub.cc, squared_difference.cc: twice_max_input_scale is a double, and the powers of two change no bit
    **{(name, "*"): _D for name in ("ADD", "SUB", "SQUARED_DIFFERENCE")},
    # mul.cc, div.cc: real_multiplier is a double made of floats
    **{(name, "*"): _S for name in ("MUL", "DIV")},
    # activations.cc ReluPrepare, LeakyReluPrepare, PreluPrepare, HardSwishPrepare
    **{(name, "*"): _S for name in ("RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "LEAKY_RELU", "PRELU", "HARD_SWISH")},
    # activations.cc SoftmaxPrepare
    ("SOFTMAX", "*"): _D,
    ("SOFTMAX", "int16"): _P,
    # elementwise.cc SetAbsOutputMultiplier; SetRsqrtOutputMultiplier: 1.0 / (sqrt(in) * out), the product of floats
    ("ABS", "*"): _S,
    ("RSQRT", "*"): _P,
    # svdf.cc Prepare: floats, which become a double at the end
    ("SVDF", "*"): _S,
    # quantize.cc Prepare, reduce.cc PrepareMeanOrSum and PrepareProd, comparisons.cc ComparisonQuantized (a scale by itself)
    **{(name, "*"): _D for name in ("QUANTIZE", "MEAN", "SUM", "REDUCE_PROD")},
    **{(name, "*"): _D for name in ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")},
}
"""(TFLite operator, element type of its data, "*" for the others) -> precision in TensorFlow Lite's reference kernels."""

TFLM: dict[tuple[str, str], Precision] = {
    # add_n.cc CalculateOpData
    ("ADD_N", "*"): _D,
    **{(name, "*"): _D for name in ("MUL", "DIV", "PRELU", "RELU", "LEAKY_RELU", "ABS", "BATCH_MATMUL", "HARD_SWISH", "RSQRT")},
    # softmax_common.cc
    ("SOFTMAX", "int16"): _D,
}
"""The rows of TFLM that differ from LITERT's, or that it does not have."""


def precision(opcode: str, dtype: str, *, oracle: str) -> Precision:
    """That of an operator on data of `dtype` ("per channel": weights with more than one scale).

    KeyError for an operator that makes no multiplier of scales.
    """
    keys = ((opcode, dtype), (opcode, "*"))
    tables = (TFLM, LITERT) if oracle == "tflm" else (LITERT,)
    found = next((table[key] for table in tables for key in keys if key in table), None)
    if found is None:
        raise KeyError(f"{opcode} of {dtype}")
    return found


def quotient(factors: Sequence[float], divisors: Sequence[float], how: Precision) -> float:
    """The product of the factors over the product of the divisors; infinite or NaN as arithmetic has it, never an exception."""
    if how is Precision.DOUBLE:
        return _ratio(float(prod(factors)), float(prod(divisors)))
    with np.errstate(all="ignore"):
        above, below = _product32(factors), _product32(divisors)
        return float(np.float32(above) / np.float32(below)) if how is Precision.SINGLE else _ratio(float(above), float(below))


def _ratio(above: float, below: float) -> float:
    if below:
        return above / below
    with np.errstate(all="ignore"):
        return float(np.float64(above) / np.float64(below))


def real_multiplier(
    opcode: str, dtype: str, factors: Sequence[float], divisors: Sequence[float] = (1.0,), *, oracle: str = "litert"
) -> float:
    """What operator `opcode` of the oracle passes to QuantizeMultiplier."""
    return quotient(factors, divisors, precision(opcode, dtype, oracle=oracle))


def _product32(numbers: Sequence[float]) -> float:
    """From left to right, each product rounded to float32; a single number is returned unchanged."""
    total = numbers[0]
    for number in numbers[1:]:
        total = float(np.float32(total) * np.float32(number))
    return total
