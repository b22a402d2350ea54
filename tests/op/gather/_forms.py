"""The smallest models of StableHLO's operators, of random numbers and of tables, given the type of their data."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.op._one_op import Spec, const, one_op
from tests.op.gather._models import codes, numbers, reduce_window, scatter

SHAPE = (2, 4)


def _gather(dtype: str) -> bytes:
    attributes = {"offset_dims": [1], "collapsed_slice_dims": [0], "start_index_map": [0], "slice_sizes": [1, 4]}
    return one_op("STABLEHLO_GATHER", [codes(SHAPE, dtype), Spec((3, 1), "int32")], [codes((3, 4), dtype)], index_vector_dim=1,
                  **{k: numbers(v) for k, v in attributes.items()})  # fmt: skip


def _scatter(dtype: str) -> bytes:
    dims = {"update_window_dims": [1], "inserted_window_dims": [0], "scatter_dims_to_operand_dims": [0]}
    return scatter(codes(SHAPE, dtype), Spec((1, 1), "int32"), codes((1, 4), dtype), kind="add", index_vector_dim=1,
                   **{k: numbers(v) for k, v in dims.items()})  # fmt: skip


def _reduce_window(dtype: str) -> bytes:
    dims = {"window_dimensions": [1, 2], "window_strides": [1, 1], "base_dilations": [1, 1], "window_dilations": [1, 1]}
    dims["padding"] = [1, 0, -1, 0]
    first = Spec((), dtype, None, np.zeros((), dtype))
    return reduce_window(Spec(SHAPE, dtype), first, Spec((3, 2), dtype), "MAXIMUM", **{k: numbers(v) for k, v in dims.items()})


def _generator(dtype: str) -> bytes:
    state = Spec((3,), dtype)
    return one_op("STABLEHLO_RNG_BIT_GENERATOR", [state], [state, Spec((3,), "int32")], algorithm=1)


def _hashtable(dtype: str) -> bytes:
    results = [codes((3, 4), dtype), Spec((3,), "uint8")]
    return one_op("HASHTABLE_LOOKUP", [Spec((3,), "int32"), const([1, 2]), codes(SHAPE, dtype)], results)


def _embedding(dtype: str) -> bytes:
    operands = [Spec((3,), "int32"), Spec((3, 2), "int32"), const([2, 2]), Spec((3,), "float32"), Spec(SHAPE, dtype)]
    return one_op("EMBEDDING_LOOKUP_SPARSE", operands, [Spec((2, 4), dtype)], combiner=1)


def _random(name: str) -> Callable[[str], bytes]:
    return lambda dtype: one_op(name, [const(SHAPE, dtype)], [Spec(SHAPE, "float32")], seed=1, seed2=2)


FORMS: dict[str, Callable[[str], bytes]] = {
    "STABLEHLO_GATHER": _gather,
    "STABLEHLO_SCATTER": _scatter,
    "STABLEHLO_REDUCE_WINDOW": _reduce_window,
    "STABLEHLO_RNG_BIT_GENERATOR": _generator,
    **{n: lambda d, n=n: one_op(n, [Spec(SHAPE, d)] * 2, [Spec(SHAPE, d)]) for n in ("STABLEHLO_AND", "STABLEHLO_SHIFT_LEFT")},  # type: ignore[misc]
    "SEGMENT_SUM": lambda d: one_op("SEGMENT_SUM", [Spec(SHAPE, d), const([0, 1])], [Spec(SHAPE, d)]),
    "HASHTABLE_LOOKUP": _hashtable,
    "LSH_PROJECTION": lambda d: one_op(
        "LSH_PROJECTION", [Spec((2, 3), "float32"), codes(SHAPE, d)], [Spec((6,), "int32")], type=2
    ),
    "EMBEDDING_LOOKUP_SPARSE": _embedding,
    "MULTINOMIAL": lambda d: one_op("MULTINOMIAL", [Spec(SHAPE, d), const(3)], [Spec((2, 3), "int32")], seed=1, seed2=2),
    **{n: _random(n) for n in ("RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL")},
}
