"""Transposition by tiles in registers against the operator's meaning."""

from __future__ import annotations

import numpy as np
import pytest

from aot.ir.type import TensorType
from aot.op.tensor import ReshapeAttrs, TransposeAttrs
from aot.relay.expr import Expr, Var, call
from tests.topi.groups import check_group, lowered

Case = tuple[tuple[Var, ...], Expr]

KERNEL = "arm_dsp.transpose"


def case(shape: tuple[int, ...], axes: tuple[int, ...], dtype: str = "int8") -> Case:
    x = Var("x", TensorType(shape, dtype))
    return (x,), call("transpose", [x], TransposeAttrs(axes))


TAKEN = {
    "4x4 bytes": (case((1, 24, 24, 16), (0, 3, 1, 2)), (4, 4)),
    "4x4 bytes with tails": (case((2, 5, 7, 11), (0, 3, 1, 2), "uint8"), (4, 4)),
    "planes to pixels": (case((1, 3, 6, 7), (0, 2, 3, 1)), (3, 4)),
    "pairs to pixels": (case((2, 2, 33), (0, 2, 1)), (2, 4)),
    "pixels to planes": (case((1, 5, 5, 3), (0, 3, 1, 2)), (4, 3)),
    "pixels to pairs": (case((40, 2), (1, 0)), (4, 2)),
    "runs of two bytes": (case((8, 9, 5, 2), (0, 2, 1, 3)), (2, 2)),
    "halfwords": (case((2, 24, 15), (0, 2, 1), "int16"), (2, 2)),
    "axes apart": (case((3, 8, 2, 6), (3, 0, 2, 1)), (4, 4)),
}


@pytest.mark.parametrize("name", sorted(TAKEN))
def test_transposition_equals_meaning(name: str) -> None:
    (params, body), tile = TAKEN[name]
    low = check_group(KERNEL, params, body)
    assert low.func.attrs.kernel == f"arm_dsp.transpose(rows={tile[0]}, columns={tile[1]})"
    assert low.instructions < check_group("generic.copy", params, body).instructions


@pytest.mark.parametrize(
    ("shape", "axes", "dtype"),
    [
        ((1, 8, 8, 4), (0, 2, 1, 3), "int8"),  # runs of words
        ((9, 9), (1, 0), "float32"),
        ((3, 2, 16), (2, 1, 0), "int8"),  # pixels of three that are apart
        ((5, 4), (1, 0), "int8"),  # too small
        ((2, 1, 40), (2, 0, 1), "complex64"),
    ],
)
def test_what_is_left_to_others(shape: tuple[int, ...], axes: tuple[int, ...], dtype: str) -> None:
    assert lowered(KERNEL, *case(shape, axes, dtype)) is None


def test_other_cores() -> None:
    assert lowered(KERNEL, *TAKEN["4x4 bytes"][0], cpu="cortex-m3") is None


def draw_transpose(_kind: str, rng: np.random.Generator) -> Case:
    """A tensor of at most 6,000 bytes or halfwords, two to five axes, in any order; sometimes reshaped before."""
    while True:
        rank = int(rng.integers(2, 6))
        shape = tuple(int(n) for n in rng.choice([1, 2, 3, 4, 5, 7, 8, 9, 16, 21, 64], rank))
        if np.prod(shape) <= 6000:
            break
    x = Var("x", TensorType(shape, str(rng.choice(["int8", "int8", "int8", "uint8", "int16"]))))
    data: Expr = x
    if rng.random() < 0.3:
        shape = (shape[0] * shape[1], *shape[2:], 1)
        data = call("reshape", [x], ReshapeAttrs(shape))
    return (x,), call("transpose", [data], TransposeAttrs(tuple(int(a) for a in rng.permutation(len(shape)))))
