"""Models of a few operators: what only shows where several meet."""

from __future__ import annotations

import numpy as np

from aot.testing import ModelBuilder, Quant
from aot.testing.builder import float32
from tests.models.catalogue import Case

X = Quant(float32(0.05), -3)
Y = Quant(float32(0.11), 6)


def _tensor(b: ModelBuilder, name: str, shape: tuple[int, ...], q: Quant = X, seed: int | None = None) -> int:
    """An int8 tensor; with `seed` a constant of random codes."""
    data = None
    if seed is not None:
        data = np.random.default_rng(seed).integers(-128, 127, shape, np.int8, endpoint=True)
    return b.tensor(name, shape, "int8", scale=q.scale, zero_point=q.zero_point, data=data)


def _pointwise(b: ModelBuilder, x: int, y: int, *, depth: int, filters: int, seed: int) -> tuple[int, int]:
    """Append a 1x1 convolution from tensor x (scale of X) to tensor y; returns its weights and bias."""
    rng = np.random.default_rng(seed)
    scale = rng.uniform(0.005, 0.01, filters).astype(np.float32)
    data = rng.integers(-127, 127, (filters, 1, 1, depth), np.int8, endpoint=True)
    w = b.tensor(f"weights_{y}", data.shape, "int8", scale=scale, axis=0, data=data)
    values = rng.integers(-4000, 4000, filters, np.int32)
    bias = b.tensor(f"bias_{y}", (filters,), "int32", scale=np.float32(X.scale) * scale, data=values)
    _conv(b, [x, w, bias], y)
    return w, bias


def _conv(b: ModelBuilder, inputs: list[int], y: int) -> None:
    b.op("CONV_2D", inputs, [y], padding="VALID", stride_h=1, stride_w=1)


def two_inputs_two_outputs() -> bytes:
    b = ModelBuilder()
    p, q = _tensor(b, "left", (1, 4, 3, 5)), _tensor(b, "right", (1, 4, 3, 5), Y)
    total, mean = _tensor(b, "sum", (1, 4, 3, 5), Quant(float32(0.09), 1)), _tensor(b, "mean", (1, 5), Y)
    axes = b.tensor("axes", (2,), "int32", data=np.array([1, 2], np.int32))
    b.op("ADD", [p, q], [total])
    b.op("MEAN", [q, axes], [mean])
    return b.build([q, p], [mean, total])


def output_used_inside() -> bytes:
    b = ModelBuilder()
    x, mid, end = _tensor(b, "x", (1, 6, 6, 4)), _tensor(b, "mid", (1, 6, 6, 4)), _tensor(b, "end", (1, 3, 3, 4))
    _pointwise(b, x, mid, depth=4, filters=4, seed=1)
    b.op("MAX_POOL_2D", [mid], [end], stride_h=2, stride_w=2, filter_height=2, filter_width=2, padding="VALID")
    return b.build([x], [mid, end])


def residual() -> bytes:
    b = ModelBuilder()
    x, branch, total = _tensor(b, "x", (1, 5, 5, 6)), _tensor(b, "branch", (1, 5, 5, 6), Y), 0
    _pointwise(b, x, branch, depth=6, filters=6, seed=2)
    total = _tensor(b, "total", (1, 5, 5, 6), Quant(float32(0.1), -128))
    b.op("ADD", [branch, x], [total], fused_activation_function="RELU")
    return b.build([x], [total])


def branches_concat() -> bytes:
    b = ModelBuilder()
    x = _tensor(b, "x", (1, 4, 4, 3))
    parts = [_tensor(b, f"branch{i}", (1, 4, 4, 2 + i), Y) for i in range(3)]
    for i, part in enumerate(parts):
        _pointwise(b, x, part, depth=3, filters=2 + i, seed=3 + i)
    y = _tensor(b, "y", (1, 4, 4, 9), Y)
    b.op("CONCATENATION", parts, [y], axis=3)
    return b.build([x], [y])


def shared_weights() -> bytes:
    b = ModelBuilder()
    p, q = _tensor(b, "p", (1, 3, 3, 4)), _tensor(b, "q", (1, 5, 2, 4))
    y, z = _tensor(b, "y", (1, 3, 3, 6), Y), _tensor(b, "z", (1, 5, 2, 6), Y)
    weights, bias = _pointwise(b, p, y, depth=4, filters=6, seed=7)
    _conv(b, [q, weights, bias], z)
    return b.build([p, q], [y, z])


def added_to_itself() -> bytes:
    b = ModelBuilder()
    x, y = _tensor(b, "x", (1, 9)), _tensor(b, "y", (1, 9), Y)
    b.op("ADD", [x, x], [y])
    return b.build([x], [y])


def dead_branch() -> bytes:
    b = ModelBuilder()
    x, unused = _tensor(b, "x", (1, 4, 4, 3)), _tensor(b, "unused_input", (1, 2))
    y, dead = _tensor(b, "y", (1, 4, 4, 5), Y), _tensor(b, "dead", (1, 4, 4, 7), Y)
    _pointwise(b, x, y, depth=3, filters=5, seed=8)
    _pointwise(b, x, dead, depth=3, filters=7, seed=9)
    return b.build([x, unused], [y])


def constant_operands() -> bytes:
    b = ModelBuilder()
    x, y = _tensor(b, "x", (1, 8)), _tensor(b, "y", (1, 8), Quant(float32(0.2), 0))
    c, d, folded = _tensor(b, "c", (1, 8), seed=1), _tensor(b, "d", (8,), Y, seed=2), _tensor(b, "cd", (1, 8), Y)
    b.op("ADD", [c, d], [folded])
    b.op("ADD", [x, folded], [y])
    return b.build([x], [y])


def pad_then_conv() -> bytes:
    b = ModelBuilder()
    x, padded, y = _tensor(b, "x", (1, 6, 5, 3)), _tensor(b, "padded", (1, 9, 8, 3)), _tensor(b, "y", (1, 4, 3, 4), Y)
    amounts = b.tensor("paddings", (4, 2), "int32", data=np.array([[0, 0], [1, 2], [2, 1], [0, 0]], np.int32))
    b.op("PAD", [x, amounts], [padded])
    rng, scale = np.random.default_rng(10), np.array([0.003, 0.002, 0.004, 0.001], np.float32)
    data = rng.integers(-127, 127, (4, 3, 3, 3), np.int8, endpoint=True)
    w = b.tensor("weights", data.shape, "int8", scale=scale, axis=0, data=data)
    values = rng.integers(-4000, 4000, 4, np.int32)
    bias = b.tensor("bias", (4,), "int32", scale=np.float32(X.scale) * scale, data=values)
    b.op("CONV_2D", [padded, w, bias], [y], padding="VALID", stride_h=2, stride_w=2)
    return b.build([x], [y])


def float_io() -> bytes:
    b = ModelBuilder()
    x, y = b.tensor("x", (1, 4, 4, 3), "float32"), b.tensor("y", (1, 4, 4, 5), "float32")
    q, r = _tensor(b, "q", (1, 4, 4, 3)), _tensor(b, "r", (1, 4, 4, 5), Y)
    b.op("QUANTIZE", [x], [q])
    _pointwise(b, q, r, depth=3, filters=5, seed=11)
    b.op("DEQUANTIZE", [r], [y])
    return b.build([x], [y])


def signature_and_metadata() -> bytes:
    b = ModelBuilder("model with signature, metadata and an open batch")
    q = {"scale": X.scale, "zero_point": X.zero_point}
    x = b.tensor("serving_default_x:0", (1, 6), "int8", **q, shape_signature=(-1, 6))  # type: ignore[arg-type]
    y = b.tensor("PartitionedCall/y:0", (1, 6), "int8", scale=1 / 256, zero_point=-128, shape_signature=(-1, 6))
    b.op("SOFTMAX", [x], [y], beta=1.0)
    b.signature("serving_default", inputs={"x": x}, outputs={"y": y})
    b.metadata.append(("min_runtime_version", b"1.14.0\x00\x00"))
    return b.build([x], [y])


def graphs() -> list[Case]:
    """All models of several operators."""
    return [
        Case("graph_two_inputs_two_outputs", "order of inputs and outputs", two_inputs_two_outputs),
        Case("graph_output_used_inside", "an output that another operator reads", output_used_inside),
        Case("graph_residual", "convolution, ADD with the input, RELU", residual),
        Case("graph_branches_concat", "three convolutions joined", branches_concat),
        Case("graph_shared_weights", "one weight tensor in two convolutions", shared_weights),
        Case("graph_added_to_itself", "both operands are one tensor", added_to_itself),
        Case("graph_dead_branch", "an unused input and an unused result", dead_branch),
        Case("graph_constant_operands", "an operator with constants only", constant_operands),
        Case("graph_pad_then_conv", "PAD with asymmetric amounts before a strided convolution", pad_then_conv),
        Case("graph_float_io", "QUANTIZE in front, DEQUANTIZE behind", float_io),
        Case("graph_signature", "signature, metadata, open batch, awkward names", signature_and_metadata),
    ]
