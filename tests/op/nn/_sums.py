"""Layers of int16 data whose sums take more than 32 bits."""

from __future__ import annotations

import numpy as np

from tests.op._differential import check
from tests.op._layer_models import INT16, LayerModel, extremes


def sums_of_64_bits(op: str, shape: tuple[int, ...]) -> None:
    """700 products of nearly 2^22: more than 32 bits hold."""
    model = LayerModel(op, INT16, shape, 5, heavy=True, seed=3)
    check(model.build(), extremes(model), [-32767 * np.ones(shape, np.int16)], host=True)
