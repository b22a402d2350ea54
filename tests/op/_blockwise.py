"""A FULLY_CONNECTED with 4-bit weights that have a scale a block; the schema of the test models' writer has no such thing."""

from __future__ import annotations

from typing import Any

import numpy as np

from aot.frontend.problems import Problems
from aot.frontend.tflite.flatbuffer import Reader
from aot.frontend.tflite.records import decode_model, encode_model
from aot.testing import ModelBuilder


def blockwise(rows: int, outputs: int, blocks: int, *, size: int, seed: int, bias: bool = True, **options: Any) -> bytes:
    rng = np.random.default_rng(seed)
    width = blocks * size
    b = ModelBuilder()
    x = b.tensor("x", (rows, width), "float32")
    weight = rng.integers(-8, 7, (outputs, width), np.int8, endpoint=True)
    w = b.tensor("w", (outputs, width), "int4", data=weight, scale=1.0, zero_point=0)
    scales = b.tensor("scales", (outputs, blocks), "float16", data=rng.random((outputs, blocks)).astype(np.float16))
    y = b.tensor("y", (rows, outputs), "float32")
    added = [b.tensor("b", (outputs,), "float32", data=rng.normal(size=outputs).astype(np.float32))] if bias else [-1]
    chosen = {"fused_activation_function": "NONE", "asymmetric_quantize_inputs": True} | options
    b.op("FULLY_CONNECTED", [x, w, *added], [y], version=13, **chosen)
    record = decode_model(Reader(b.build([x], [y])), Problems())
    assert record is not None
    details = {"scales": scales, "zero_points": -1, "block_size": size, "block_shape": None}
    quantization = record["subgraphs"][0]["tensors"][w]["quantization"]
    quantization |= {"scale": None, "zero_point": None, "details_type": 2, "details": ("BlockwiseQuantization", details)}
    return encode_model(record)
