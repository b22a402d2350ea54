"""A layer whose ADD takes the layer's own data: exact on every kernel, layer by layer and row by row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aot import op as operators
from aot import topi
from aot.driver.build import compile_model
from aot.driver.options import Options
from aot.ir.module import IRModule
from aot.ir.type import TensorType, per_tensor
from aot.op.nn.conv import Conv2DAttrs, DepthwiseConv2DAttrs
from aot.op.qnn.arithmetic import AddAttrs
from aot.op.qnn.quantize import RequantizeAttrs
from aot.relay.expr import Expr, Function, Var, call, const
from aot.relay.interpreter import evaluate
from aot.runtime.module import load

operators.load_all()
topi.load_all()

CHANNELS = 8
ADD = AddAttrs((3, -4), (1 << 30, 1518500250), (0, -1), 1340000000, -18, 1, -128, 127)


def layer(kind: str, x: Expr, rng: np.random.Generator) -> Expr:
    """A layer that keeps the shape, and the sum of its result and its data."""
    k = 1 if kind == "pointwise" else 3
    padding = (k // 2,) * 4
    depthwise = kind == "depthwise"
    shape = (1, k, k, CHANNELS) if depthwise else (CHANNELS, k, k, CHANNELS)
    weight = const(rng.integers(-127, 128, shape).astype(np.int8))
    if depthwise:
        acc = call("nn.depthwise_conv2d", [x, weight], DepthwiseConv2DAttrs((1, 1), padding, (1, 1), -4, -4, 1))
    else:
        acc = call("nn.conv2d", [x, weight], Conv2DAttrs((1, 1), padding, (1, 1), -4, -4))
    acc = call("nn.bias_add", [acc, const(rng.integers(-5000, 5000, CHANNELS).astype(np.int32))])
    scale = RequantizeAttrs((1518500250,) * CHANNELS, (-8,) * CHANNELS, 3, -128, 127, "double")
    return call("qnn.add", [call("qnn.requantize", [acc], scale), x], ADD)


def network(kind: str) -> Function:
    """Two such layers, so that the second one's data lies in the workspace."""
    rng = np.random.default_rng(5)
    x = Var("x", TensorType((1, 7, 6, CHANNELS), "int8", per_tensor(0.5, -4)))
    return Function((x,), layer(kind, layer(kind, x, rng), rng))


@pytest.mark.parametrize("opt", ["balanced", pytest.param("ram", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["conv", *(pytest.param(k, marks=pytest.mark.slow) for k in ("pointwise", "depthwise"))])
def test_data_is_read_twice(kind: str, opt: str, tmp_path: Path) -> None:
    module = IRModule({"main": network(kind)})
    x = np.random.default_rng(1).integers(-128, 128, (1, 7, 6, CHANNELS)).astype(np.int8)
    (want,) = evaluate(network(kind), [x])
    assert len(np.unique(want)) > 40
    built = compile_model(module, target="cortex-m4", name="m", options=Options(opt=opt))
    np.testing.assert_array_equal(built.interpret([x])[0], want)
    np.testing.assert_array_equal(load(built.artifact, cache=tmp_path).run([x])[0], want)
    if opt == "balanced" and kind != "depthwise":
        assert all(c.func.attrs.kernel.startswith("arm_dsp.") for c in built.layers)
