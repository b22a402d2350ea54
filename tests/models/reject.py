"""Models that a compiler must refuse with a coded error: broken files, contradictions, and what is not supported.

`families` are the beginnings of the codes that are right for the file: E10 malformed, E11 inconsistent, E12 not
supported (aot/errors.py).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tflite

from aot.testing import ModelBuilder, conv2d_model, dense_model, softmax_model

MALFORMED, INCONSISTENT, UNSUPPORTED = "E10", "E11", "E12"


@dataclass(frozen=True, slots=True)
class Reject:
    """A file that must be refused, why, and the code families that say so."""

    name: str
    why: str
    families: tuple[str, ...]
    make: Callable[[], bytes]


def _quantised(b: ModelBuilder, name: str, shape: tuple[int, ...], data: np.ndarray | bytes | None = None) -> int:
    return b.tensor(name, shape, "int8", scale=0.05, zero_point=0, data=data)


def custom_operator() -> bytes:
    b = ModelBuilder()
    x, y = _quantised(b, "x", (1, 8)), _quantised(b, "y", (1, 8))
    b.custom_op("VendorSpecificOp", [x], [y], custom_options=b"\x01\x02\x03")
    return b.build([x], [y])


def unsupported_operator() -> bytes:
    b = ModelBuilder()
    x, y = b.tensor("x", (1, 8), "float32"), b.tensor("y", (1, 8), "float32")
    b.op("STABLEHLO_CBRT", [x], [y])
    return b.build([x], [y])


def string_tensor() -> bytes:
    b = ModelBuilder()
    x, y = b.tensor("words", (2, 3), "string"), b.tensor("y", (6,), "string")
    shape = b.tensor("shape", (1,), "int32", data=np.array([6], np.int32))
    b.op("RESHAPE", [x, shape], [y], new_shape=[6])
    return b.build([x], [y])


def dynamic_shape() -> bytes:
    b = ModelBuilder()
    x, shape, y = _quantised(b, "x", (2, 6)), b.tensor("shape", (2,), "int32"), _quantised(b, "y", ())
    b.op("RESHAPE", [x, shape], [y])
    return b.build([x, shape], [y])


def hybrid_weights() -> bytes:
    b = ModelBuilder()
    x, y = b.tensor("x", (1, 8), "float32"), b.tensor("y", (1, 4), "float32")
    w = b.tensor("weights", (4, 8), "uint8", scale=0.05, zero_point=0, data=np.ones((4, 8), np.uint8))
    b.op("FULLY_CONNECTED", [x, w, -1], [y])
    return b.build([x], [y])


def tensor_index_out_of_range() -> bytes:
    b = ModelBuilder()
    x, y = _quantised(b, "x", (1, 8)), _quantised(b, "y", (1, 8))
    b.op("ADD", [x, 99], [y])
    return b.build([x], [y])


def buffer_index_out_of_range() -> bytes:
    b = ModelBuilder()
    x, y = _quantised(b, "x", (1, 8)), _quantised(b, "y", (1, 8))
    c = b.tensor("c", (1, 8), "int8", scale=0.05, zero_point=0, buffer=1000)
    b.op("ADD", [x, c], [y])
    return b.build([x], [y])


def opcode_index_out_of_range() -> bytes:
    b = ModelBuilder()
    x, y = _quantised(b, "x", (1, 8)), _quantised(b, "y", (1, 8))
    b.op("ADD", [x, x], [y])
    b.codes.clear()
    return b.build([x], [y])


def constant_too_short() -> bytes:
    b = ModelBuilder()
    x, y = _quantised(b, "x", (1, 8)), _quantised(b, "y", (1, 8))
    c = _quantised(b, "c", (1, 8), b"\x01\x02\x03")
    b.op("ADD", [x, c], [y])
    return b.build([x], [y])


def no_subgraphs() -> bytes:
    b = ModelBuilder()
    b.subgraphs.clear()
    return b.serialize()


def own_output_as_input() -> bytes:
    b = ModelBuilder()
    x, y = _quantised(b, "x", (1, 8)), _quantised(b, "y", (1, 8))
    b.op("ADD", [x, y], [y])
    return b.build([x], [y])


def never_computed() -> bytes:
    b = ModelBuilder()
    x, lost, y = _quantised(b, "x", (1, 8)), _quantised(b, "lost", (1, 8)), _quantised(b, "y", (1, 8))
    b.op("ADD", [x, lost], [y])
    return b.build([x], [y])


def _convolution(*, depth: int = 3, stride: int = 1) -> bytes:
    b = ModelBuilder()
    x = _quantised(b, "x", (1, 5, 5, 3))
    w = _quantised(b, "weights", (4, 1, 1, depth), np.ones((4, 1, 1, depth), np.int8))
    bias = b.tensor("bias", (4,), "int32", scale=0.0025, data=np.zeros(4, np.int32))
    y = _quantised(b, "y", (1, 5, 5, 4))
    b.op("CONV_2D", [x, w, bias], [y], stride_h=stride, stride_w=stride)
    return b.build([x], [y])


def negative_extent() -> bytes:
    b = ModelBuilder()
    x, y = _quantised(b, "x", (1, -8)), _quantised(b, "y", (1, -8))
    b.op("LOGISTIC", [x], [y])
    return b.build([x], [y])


def huge_shape() -> bytes:
    b = ModelBuilder()
    shape = (2**31 - 1, 2**31 - 1, 2**31 - 1, 4)
    x, y = _quantised(b, "x", shape), _quantised(b, "y", shape)
    b.op("ADD", [x, x], [y])
    return b.build([x], [y])


def _add_with_scale(scale: float | None) -> bytes:
    b = ModelBuilder()
    x = b.tensor("x", (1, 8), "int8", scale=scale)
    y = _quantised(b, "y", (1, 8))
    b.op("ADD", [x, x], [y])
    return b.build([x], [y])


def root_outside_file() -> bytes:
    data = bytearray(softmax_model())
    data[0:4] = struct.pack("<I", len(data) + 64)
    return bytes(data)


def wrong_identifier() -> bytes:
    data = bytearray(dense_model())
    data[4:8] = b"ELF9"
    return bytes(data)


def too_few_inputs() -> bytes:
    b = ModelBuilder()
    x, y = _quantised(b, "x", (1, 8)), _quantised(b, "y", (1, 8))
    b.op("ADD", [x], [y])
    return b.build([x], [y])


def rejects() -> list[Reject]:
    """All of them."""
    bad, wrong, new = (MALFORMED,), (INCONSISTENT,), (UNSUPPORTED,)
    either = (MALFORMED, INCONSISTENT)
    return [
        Reject("empty_file", "no bytes at all", bad, lambda: b""),
        Reject("not_a_model", "a text file", bad, lambda: b"This is not a model, it only has its name.\n" * 4),
        Reject("wrong_identifier", "the file identifier is not TFL3", bad, wrong_identifier),
        Reject("truncated", "the last 40 % are missing", bad, lambda: conv2d_model()[:600]),
        Reject("root_outside_file", "the root offset points behind the end", bad, root_outside_file),
        Reject("no_subgraphs", "a model without graph", either, no_subgraphs),
        Reject("tensor_index_out_of_range", "operand 99 of 2 tensors", either, tensor_index_out_of_range),
        Reject("buffer_index_out_of_range", "buffer 1000 does not exist", either, buffer_index_out_of_range),
        Reject("opcode_index_out_of_range", "no operator codes", either, opcode_index_out_of_range),
        Reject("constant_too_short", "3 bytes for a constant of 8", either, constant_too_short),
        Reject("negative_extent", "a dimension of -8", (*either, *new), negative_extent),
        Reject("huge_shape", "more than 2**93 elements", (*either, *new), huge_shape),
        Reject("own_output_as_input", "an operator reads what it writes", either, own_output_as_input),
        Reject("never_computed", "a tensor that nothing writes", either, never_computed),
        Reject("too_few_inputs", "ADD of one tensor", either, too_few_inputs),
        Reject("weights_depth", "weights of depth 5 on 3 channels", (*wrong, *new), lambda: _convolution(depth=5)),
        Reject("zero_stride", "a stride of 0", either, lambda: _convolution(stride=0)),
        Reject("no_quantisation", "int8 without scale", (*wrong, *new), lambda: _add_with_scale(None)),
        Reject("zero_scale", "a scale of 0", either, lambda: _add_with_scale(0.0)),
        Reject("scale_not_finite", "a scale that is not a number", either, lambda: _add_with_scale(float("nan"))),
        Reject("custom_operator", "a vendor's operator", new, custom_operator),
        Reject("unsupported_operator", "a builtin operator that is not supported", new, unsupported_operator),
        Reject("string_tensor", "text", new, string_tensor),
        Reject("dynamic_shape", "a shape that is only known at run time", new, dynamic_shape),
        Reject("hybrid_weights", "float activations with uint8 weights", new, hybrid_weights),
    ]


def operator_names() -> dict[int, str]:
    """Number -> name of every builtin operator in the schema."""
    return {v: k for k, v in vars(tflite.BuiltinOperator).items() if isinstance(v, int)}
