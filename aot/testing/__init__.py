"""Writes .tflite models and runs the reference on them, for tests and examples.

`ModelBuilder` writes any model; the `*_model` functions write one operator each; `reference*` run a model in
TensorFlow Lite's reference kernels or in TFLM.
"""

from __future__ import annotations

from aot.testing.builder import ModelBuilder, Quant, Sparsity, Subgraph, quant_of_range, quantize_bias, quantize_weights
from aot.testing.ops import (
    add_model,
    concat_model,
    conv2d_model,
    dense_model,
    depthwise_model,
    dequantize_model,
    logistic_model,
    mean_model,
    output_size,
    pad_model,
    pool_model,
    quantize_model,
    requantize_model,
    reshape_model,
    resize_nearest_model,
    softmax_model,
    transpose_model,
)
from aot.testing.reference import (
    HAVE_LITERT,
    HAVE_TFLM,
    input_details,
    reference,
    reference_sets,
    reference_tensors,
    tflm_reference,
    tflm_sets,
)

__all__ = [
    "HAVE_LITERT",
    "HAVE_TFLM",
    "ModelBuilder",
    "Quant",
    "Sparsity",
    "Subgraph",
    "add_model",
    "concat_model",
    "conv2d_model",
    "dense_model",
    "depthwise_model",
    "dequantize_model",
    "input_details",
    "logistic_model",
    "mean_model",
    "output_size",
    "pad_model",
    "pool_model",
    "quant_of_range",
    "quantize_bias",
    "quantize_model",
    "quantize_weights",
    "reference",
    "reference_sets",
    "reference_tensors",
    "requantize_model",
    "reshape_model",
    "resize_nearest_model",
    "softmax_model",
    "tflm_reference",
    "tflm_sets",
    "transpose_model",
]
