"""Models of one operator, from a few words: `one_op("TILE", [data, const([2, 1])], [Spec((4, 3))])`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aot.testing import ModelBuilder, Quant
from tests.op._differential import random_array

MOVABLE = ["int8", "uint8", "int16", "int32", "int64", "bool", "float32"]
EVERY = [*MOVABLE, "uint16", "uint32", "float16"]


@dataclass(frozen=True, slots=True)
class Spec:
    """A tensor: shape, element type, quantisation, and its value if it is a constant; `scales` are those along `axis`."""

    shape: tuple[int, ...]
    dtype: str = "int8"
    quant: Quant | None = None
    data: Any = None
    scales: tuple[float, ...] = ()
    axis: int = 0


def const(values: Any, dtype: str = "int32") -> Spec:
    """A constant operand."""
    array = np.asarray(values, dtype)
    return Spec(array.shape, dtype, None, array)


def same_quant(dtype: str) -> Quant | None:
    """Some parameters for types that have them; int16 is symmetric."""
    return Quant(0.5, 0 if dtype == "int16" else 7) if dtype in ("int8", "uint8", "int16") else None


def one_op(name: str, inputs: Sequence[Spec | None], outputs: Sequence[Spec], *, version: int = 1, **options: Any) -> bytes:
    """A model of one operator; operands without data are the model's inputs, None is one that is left out."""
    b = ModelBuilder()
    sources = [-1 if s is None else _tensor(b, f"x{i}", s) for i, s in enumerate(inputs)]
    results = [_tensor(b, f"y{i}", s) for i, s in enumerate(outputs)]
    b.op(name, sources, results, version=version, **options)
    return b.build([t for t, s in zip(sources, inputs, strict=True) if s is not None and s.data is None], results)


def _tensor(b: ModelBuilder, name: str, spec: Spec) -> int:
    quant: dict[str, Any] = {"scale": spec.quant.scale, "zero_point": spec.quant.zero_point} if spec.quant else {}
    if spec.scales:
        quant = {"scale": spec.scales, "axis": spec.axis}
    return b.tensor(name, spec.shape, spec.dtype, data=spec.data, **quant)


def moving(name: str, dtype: str, shapes: Sequence[Sequence[int]], operands: Sequence[Spec] = (), **options: Any) -> bytes:
    """An operator on one tensor of shapes[0] with results of the other shapes, all of one type and quantisation."""
    quant = same_quant(dtype)
    data, *results = (Spec(tuple(s), dtype, quant) for s in shapes)
    return one_op(name, [data, *operands], results, **options)


def draw_array(seed: int, shape: Sequence[int], dtype: str) -> np.ndarray[Any, Any]:
    """Random values of any type, with extremes."""
    return random_array(np.random.default_rng(seed), tuple(shape), dtype, extreme=bool(seed % 2))
