"""Blocks of float32 layers of one row: what they are counted to take, and when their results are tested."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from aot.executor.candidates import group_of
from aot.ir.type import TensorType
from aot.op.common.layer import FLOAT_ACTIVATIONS
from aot.op.nn.dense import DenseFloatAttrs
from aot.relay.expr import Constant, Function, Var, call
from aot.target.target import find_target
from aot.topi.arm_fpu.dense import RowLayer, schedule
from aot.topi.arm_fpu.dot import LARGEST, Clamp
from aot.topi.intrin.asm_text import count_instructions
from tests.topi.drawn_float import KERNELS


@pytest.mark.slow
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("shape", [(1, 16), (8, 128), (16, 131), (17, 19), (64, 10), (128, 3), (256, 2), (257, 40)])
def test_code_of_one_row_is_counted(shape: tuple[int, int], fused: bool) -> None:
    """Without the text, which takes longer to make than to count."""
    for clamp, small, biased in product((Clamp(0.0, LARGEST), Clamp(-LARGEST, LARGEST), Clamp(None, None)), (0, 1), (0, 1)):
        for blocks in schedule(RowLayer(*shape, clamp, fused, bool(small), bool(biased))):
            assert blocks.form.code == 4 * count_instructions(blocks.form.text()), blocks


def test_data_of_one_row_is_screened_where_weights_are_small() -> None:
    x = Var("x", TensorType((1, 16), "float32"))

    def text(weight: float) -> str:
        weights = Constant(np.full((100, 16), weight, np.float32), TensorType((100, 16), "float32"))
        func = Function((x,), call("nn.dense_float", [x, weights], DenseFloatAttrs(*FLOAT_ACTIVATIONS["NONE"])), {"Primitive": 1})
        _, impl = KERNELS["dense_float arm_fpu.dense_row_vmla"]
        return str(impl.lower(group_of(func), find_target("cortex-m4"), "kernel").func)

    assert "screened" in text(1.0)
    assert "screened" not in text(1e19)


def test_floors() -> None:
    """What docs/kernels.md says of layers of one row: instructions of a product, and of a small layer as a whole."""
    relu = Clamp(0.0, LARGEST)

    def instructions(depth: int, channels: int) -> int:
        return sum(b.price[0] for b in schedule(RowLayer(depth, channels, relu, True, small=False, biased=True)))

    assert round((instructions(640, 8) - instructions(320, 8)) / (8 * 320), 3) == 1.109
    assert round(instructions(16, 16) / 256, 3) == 1.344
