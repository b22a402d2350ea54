"""Inputs that are made up are such as the operators take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aot.driver.build import build
from aot.frontend.formats import input_values
from aot.frontend.tflite import from_tflite
from aot.relay.expr import Function
from aot.report.measure.inputs import rule_sets
from aot.testing import HAVE_LITERT, ModelBuilder, reference_sets

Values = dict[int, dict[str, Any]]


def values_of(model: bytes) -> Values:
    main = from_tflite(model)["main"]
    assert isinstance(main, Function)
    return input_values(model, main)


def table(b: ModelBuilder, rows: int) -> int:
    return b.tensor("table", (rows, 2), "float32", data=np.arange(2 * rows, dtype=np.float32).reshape(rows, 2))


def looked_up(op: str, *, rows: int = 300) -> bytes:
    b = ModelBuilder()
    i, y = b.tensor("i", (3,), "int32"), b.tensor("y", (3, 2), "float32")
    if op == "GATHER":
        b.op(op, [table(b, rows), i], [y], axis=0, batch_dims=0)
    else:
        b.op(op, [i, table(b, rows)], [y])
    return b.build([i], [y])


def through_others() -> bytes:
    """Floats that are moved, cast and shifted before they say where."""
    b = ModelBuilder()
    x = b.tensor("x", (1, 3), "float32")
    flat, whole, index = b.tensor("flat", (3,), "float32"), b.tensor("whole", (3,), "int32"), b.tensor("index", (3,), "int32")
    b.op("RESHAPE", [x, b.tensor("s", (1,), "int32", data=np.array([3], np.int32))], [flat])
    b.op("CAST", [flat], [whole], in_data_type="FLOAT32", out_data_type="INT32")
    one = b.tensor("one", (), "int32", data=np.array(-4, np.int32))
    b.op("ADD", [whole, one], [index], fused_activation_function="NONE")
    y = b.tensor("y", (3, 2), "float32")
    b.op("GATHER", [table(b, 10), index], [y], axis=0, batch_dims=0)
    return b.build([x], [y])


def sum_of_two() -> bytes:
    b = ModelBuilder()
    i, j, k = (b.tensor(n, (2,), "int32") for n in "ijk")
    b.op("ADD", [i, j], [k], fused_activation_function="NONE")
    y = b.tensor("y", (2, 2), "float32")
    b.op("GATHER", [table(b, 9), k], [y], axis=0, batch_dims=0)
    return b.build([i, j], [y])


def scattered() -> bytes:
    b = ModelBuilder()
    i, u, y = b.tensor("i", (2, 1), "int32"), b.tensor("u", (2, 3), "float32"), b.tensor("y", (5, 3), "float32")
    b.op("SCATTER_ND", [i, u, b.tensor("s", (2,), "int32", data=np.array([5, 3], np.int32))], [y])
    return b.build([i, u], [y])


def one_hot() -> bytes:
    b = ModelBuilder()
    i, y = b.tensor("i", (4,), "int32"), b.tensor("y", (4, 6), "float32")
    depth = b.tensor("d", (), "int32", data=np.array(6, np.int32))
    on, off = (b.tensor(n, (), "float32", data=np.array(v, np.float32)) for n, v in (("on", 1), ("off", 0)))
    b.op("ONE_HOT", [i, depth, on, off], [y], axis=-1)
    return b.build([i], [y])


def remainder() -> bytes:
    b = ModelBuilder()
    i, j, k = (b.tensor(n, (200,), "int32") for n in "ijk")
    b.op("FLOOR_MOD", [i, j], [k])
    return b.build([i, j], [k])


def inverse_root() -> bytes:
    b = ModelBuilder()
    x, y = b.tensor("x", (1, 50), "int16", scale=0.01, zero_point=0), b.tensor("y", (1, 50), "int16", scale=0.01, zero_point=0)
    b.op("RSQRT", [x], [y])
    return b.build([x], [y])


def sized() -> bytes:
    """TRANSPOSE_CONV that is told the size of its result."""
    b = ModelBuilder()
    shape, x, y = b.tensor("shape", (4,), "int32"), b.tensor("x", (1, 2, 2, 3), "float32"), b.tensor("y", (1, 4, 4, 2), "float32")
    w = b.tensor("w", (2, 2, 2, 3), "float32", data=np.ones((2, 2, 2, 3), np.float32))
    b.op("TRANSPOSE_CONV", [shape, w, x], [y], padding="SAME", stride_h=2, stride_w=2)
    return b.build([shape, x], [y])


CASES: list[tuple[Callable[[], bytes], Values]] = [
    (lambda: looked_up("GATHER"), {0: {"range": [0, 299]}}),
    (lambda: looked_up("EMBEDDING_LOOKUP", rows=7), {0: {"range": [0, 6]}}),
    (through_others, {0: {"range": [4, 13]}}),
    (scattered, {0: {"range": [0, 4]}}),
    (one_hot, {0: {"range": [0, 5]}}),
    (remainder, {1: {"range": [1, 127]}}),
    (inverse_root, {0: {"range": [1, 32767]}}),
    (sized, {0: {"fixed": [1, 4, 4, 2]}}),
]


@pytest.mark.parametrize(("make", "wanted"), CASES, ids=[str(i) for i in range(len(CASES))])
def test_ranges(make: Callable[[], bytes], wanted: Values) -> None:
    assert values_of(make()) == wanted


def test_inputs_that_are_added_up() -> None:
    """Neither alone, nor both at their ends at once, leads out of the table."""
    ranges = [v["range"] for v in values_of(sum_of_two()).values()]
    assert len(ranges) == 2
    assert sum(low for low, _ in ranges) >= 0
    assert sum(high for _, high in ranges) <= 8
    assert all(high > low for low, high in ranges)


def test_others_take_all() -> None:
    b = ModelBuilder()
    x, y = b.tensor("x", (1, 4), "float32"), b.tensor("y", (1, 4), "float32")
    b.op("RELU", [x], [y])
    assert values_of(b.build([x], [y])) == {}


@pytest.mark.skipif(not HAVE_LITERT, reason="ai-edge-litert is not installed")
@pytest.mark.parametrize("make", [make for make, _ in CASES] + [sum_of_two], ids=[str(i) for i in range(len(CASES) + 1)])
def test_the_reference_takes_them(make: Callable[[], bytes]) -> None:
    model = make()
    infos = build(model, target="cortex-m4").metadata["inputs"]
    reference_sets(model, rule_sets(infos, 6).inputs)
