"""Every float32 kernel of arm_fpu over random layers: interpreter, C on this machine with ASan and UBSan, instructions in QEMU.

With AOT_FULL=1 2,000 layers a kernel in each of the three, else a few.
"""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from aot.executor.candidates import candidates, group_of
from aot.executor.config import SelectionConfig
from aot.ir.type import TensorType
from aot.op.math.arithmetic import BinaryAttrs
from aot.op.nn.conv import Conv2DFloatAttrs, DepthwiseConv2DFloatAttrs
from aot.op.nn.dense import BatchMatmulAttrs
from aot.relay.expr import Constant, Function, Var, call
from aot.relay.interpreter import evaluate
from aot.target.target import find_target
from tests.topi.drawn import Case
from tests.topi.drawn_float import KERNELS, random_cases, stored_weights
from tests.topi.runs import interpreted

every_kernel = pytest.mark.parametrize("name", sorted(KERNELS))


@every_kernel
def test_some_in_the_interpreter(name: str) -> None:
    interpreted(islice(random_cases(name, 4), 2))


def test_strips_are_for_speed_without_a_limit_of_ram() -> None:
    x = Var("x", TensorType((1, 8, 8, 16), "float32"))
    weight = Constant(np.ones((1, 3, 3, 16), np.float32), TensorType((1, 3, 3, 16), "float32"))
    func = Function(
        (x,), call("nn.depthwise_conv2d_float", [x, weight], DepthwiseConv2DFloatAttrs((1, 1), (1, 1, 1, 1))), {"Primitive": 1}
    )

    def kernels(policy: SelectionConfig) -> str:
        return " ".join(c.kernel for c in candidates(func, find_target("cortex-m4"), "kernel", policy))

    assert kernels(SelectionConfig("speed")) == "arm_fpu.strip(columns=4)"
    assert "strip" not in kernels(SelectionConfig("speed", workspace_limit=10_000))
    assert "strip" not in kernels(SelectionConfig("balanced"))


@pytest.mark.parametrize(("dilation", "packed"), [((2, 2), True), ((2, 1), False), ((1, 3), True)])
def test_dilated_windows_of_several_rows_are_packed(dilation: tuple[int, int], packed: bool) -> None:
    x = Var("x", TensorType((1, 12, 12, 8), "float32"))
    weight = Constant(np.ones((8, 3, 3, 8), np.float32), TensorType((8, 3, 3, 8), "float32"))
    attrs = Conv2DFloatAttrs((1, 1), (0, 0, 0, 0), dilation)
    func = Function((x,), call("nn.conv2d_float", [x, weight], attrs), {"Primitive": 1})
    found = candidates(func, find_target("cortex-m4"), "kernel", SelectionConfig())
    assert any("packed" in c.kernel for c in found) is packed
    assert not any("generic" in c.kernel for c in found)


def test_one_row_of_results_of_a_column_of_taps() -> None:
    """A single row of results whose windows have several rows is none of a pointwise layer."""
    x = Var("x", TensorType((1, 2, 4, 17), "float32"))
    weight = stored_weights(np.random.default_rng(1), (9, 3, 1, 17))
    attrs = Conv2DFloatAttrs((2, 1), (0, 0, 1, 0), lo=-1.0, hi=1.0)
    func = Function((x,), call("nn.conv2d_float", [x, weight], attrs), {"Primitive": 1})
    _, impl = KERNELS["conv2d_float arm_fpu.conv2d_stored_vmla"]
    data = np.random.default_rng(2).standard_normal(x.type.shape).astype(np.float32)
    (expected,) = evaluate(func, [data])
    lowered = impl.lower(group_of(func), find_target("cortex-m4"), "kernel")
    interpreted([Case("one row", lowered, [data], expected)])


@pytest.mark.parametrize("swapped", [False, True])
def test_scores_of_an_attention_and_their_scale_are_one_kernel(swapped: bool) -> None:
    x, y = Var("x", TensorType((2, 9, 12), "float32")), Var("y", TensorType((2, 9, 12) if swapped else (2, 12, 9), "float32"))
    scores = call("nn.batch_matmul", [x, y], BatchMatmulAttrs(False, swapped, acc_dtype="float32"))
    scale = Constant(np.full((1,), 0.3, np.float32), TensorType((1,), "float32"))
    func = Function((x, y), call("multiply", [scores, scale], BinaryAttrs()), {"Primitive": 1})
    found = candidates(func, find_target("cortex-m4"), "kernel", SelectionConfig("balanced"))
    best = min(found, key=lambda c: c.instructions or 1 << 60)
    assert best.kernel == "arm_fpu.matmul_vmla(unroll=8)"
