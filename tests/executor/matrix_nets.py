"""Networks of layers with one matrix and their kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from aot.driver.build import compile_model
from aot.driver.options import Options
from aot.executor.emit import LoweredOutput
from aot.ir.module import IRModule
from aot.relay.expr import Call, Expr, Function, Var, call, const, post_order
from aot.relay.interpreter import evaluate
from tests.topi.generic.test_copy import ADD
from tests.topi.layers import Layer, build

WIDTH = 40
STEP = Layer("dense", (1, WIDTH), (WIDTH, WIDTH), rounding="single", per_channel=False, out_zp=0, spread=120.0)
SUM = replace(ADD, zero_point=0)


def network(biases: Sequence[int]) -> Function:
    """Layers of one matrix one after the other, each with its own bias and an ADD of a constant behind it."""
    dense, _, requant = [e for e in post_order(build(STEP).body) if isinstance(e, Call)]
    x = Var("x", dense.args[0].type)  # type: ignore[arg-type]
    body: Expr = x
    for bias in biases:
        acc = call("nn.dense", [body, dense.args[1]], dense.attrs)
        body = call("qnn.requantize", [call("nn.bias_add", [acc, const(np.full(WIDTH, bias, np.int32))])], requant.attrs)
        other = const((np.arange(WIDTH) % 11 - 5).astype(np.int8).reshape(1, WIDTH))
        body = call("qnn.add", [body, other], SUM)
    return Function((x,), body)


def compiled(func: Function, options: Options) -> tuple[LoweredOutput, list[str]]:
    """The network and its kernels; what it computes is checked."""
    exe = compile_model(IRModule({"main": func}), options=options)
    data = np.random.default_rng(3).integers(-128, 128, (1, WIDTH)).astype(np.int8)
    (expected,), (actual,) = evaluate(func, [data]), exe.interpret([data])
    np.testing.assert_array_equal(actual, expected)
    assert len(np.unique(expected)) > 10
    return exe, [layer.func.attrs.kernel.partition("(")[0] for layer in exe.layers]
