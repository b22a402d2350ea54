"""Models of one of MediaPipe's custom operators, and how one with its own oracle is checked."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aot.testing import ModelBuilder
from tests.op._differential import check
from tests.op._drawn_count import count
from tests.op._one_op import Spec

Array = np.ndarray[Any, Any]
SAME, VALID = 1, 2


def custom(name: str, inputs: Sequence[Spec], results: Sequence[Sequence[int]], *options: int, dtype: str = "float32") -> bytes:
    """A model of the operator, its options a struct of int32; operands without data are the model's inputs."""
    b = ModelBuilder()
    sources = [b.tensor(f"x{i}", s.shape, s.dtype, data=s.data) for i, s in enumerate(inputs)]
    outputs = [b.tensor(f"y{i}", tuple(shape), dtype) for i, shape in enumerate(results)]
    b.custom_op(name, sources, outputs, custom_options=struct.pack(f"<{len(options)}i", *options))
    return b.build([t for t, s in zip(sources, inputs, strict=True) if s.data is None], outputs)


def check_by(model: bytes, inputs: Sequence[Array], oracle: Callable[..., Sequence[Array]], *, host: bool = False) -> None:
    """All ways of running the model against each other, and against `oracle`, which goes element by element as MediaPipe does."""
    (found,) = check(model, list(inputs), host=host, oracle="tflm")
    for a, b in zip(found, oracle(*inputs), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert a.tobytes() == b.tobytes()
    count(model, [list(inputs)])


def _ones(shape: tuple[int, ...], dtype: str) -> Spec:
    return Spec(shape, dtype, data=np.ones(shape, "int8" if dtype == "int4" else dtype))


def _pool(dtype: str) -> bytes:
    return custom("MaxPoolingWithArgmax2D", [Spec((1, 4, 4, 2), dtype)], [(1, 2, 2, 2)] * 2, SAME, 2, 2, 2, 2, 0, dtype=dtype)


def _unpool(dtype: str) -> bytes:
    return custom("MaxUnpooling2D", [Spec((1, 2, 2, 2), dtype)] * 2, [(1, 4, 4, 2)], SAME, 2, 2, 2, 2, 0, dtype=dtype)


def _transposed(data: str, weights: str) -> bytes:
    operands = [Spec((1, 2, 2, 3), data), _ones((2, 2, 2, 3), weights), _ones((2,), "float32")]
    return custom("Convolution2DTransposeBias", operands, [(1, 4, 4, 2)], SAME, 2, 2, dtype=data)


FORMS: dict[str, Callable[[str], bytes]] = {"CUSTOM:MaxPoolingWithArgmax2D": _pool, "CUSTOM:MaxUnpooling2D": _unpool}
LAYERS: dict[str, Callable[[str, str], bytes]] = {"CUSTOM:Convolution2DTransposeBias": _transposed}
