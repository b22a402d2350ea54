"""Residual ADDs behind layers, four bytes at a time, against the operators' meaning."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aot.executor.candidates import group_of
from aot.ir.type import TensorType
from aot.op.qnn.arithmetic import AddAttrs
from aot.relay.expr import Function, Var, call, const
from aot.relay.interpreter import evaluate
from aot.target.target import find_target
from aot.tir.builder import IRBuilder
from aot.tir.function import PrimFunc
from aot.topi.arm_dsp.elementwise import ADD as SUMS
from aot.topi.layer.elementwise import Factors, factors_of
from aot.topi.layer.fused import match_layer, residual_factors
from tests.topi.batch import Batch
from tests.topi.drawn import KERNELS, make_case, with_residual
from tests.topi.generic.test_copy import ADD
from tests.topi.groups import check_group, data_of, lowered
from tests.topi.intrin.test_intrin import needs_board
from tests.topi.layers import Layer, build
from tests.topi.oncore import interpret, run_on

M4 = find_target("cortex-m4")
LAYER = Layer("conv", (1, 4, 4, 8), (8, 1, 1, 8), out_zp=3)
FACTORS = [Factors(3145728, -2097152, 1 << 21, 22), Factors((1 << 23) - 1, 1 - (1 << 23), 0, 20), Factors(0, 1, -5, 0)]
LIMITS = [(-128, 127), (-20, 100), (5, 127), (-128, -1), (3, 3)]


def sums(f: Factors, count: int) -> PrimFunc:
    b = IRBuilder("sums")
    x, y, out = b.input("x", (count,), "int8"), b.input("y", (count,), "int8"), b.output("out", (count,), "int8")
    b.block(SUMS.block(f, count), x, y, out, *f.numbers, count)
    return b.finish()


@pytest.mark.parametrize("factors", FACTORS)
@pytest.mark.parametrize("limits", LIMITS)
def test_block_in_the_interpreter(factors: Factors, limits: tuple[int, int]) -> None:
    factors = replace(factors, lo=limits[0], hi=limits[1])
    rng = np.random.default_rng(1)
    x, y = rng.integers(-128, 128, (2, 64)).astype(np.int8)
    found = interpret(sums(factors, 64), {"x": x, "y": y})["out"]
    total = x.astype(np.int64) * factors.a + y.astype(np.int64) * factors.b + factors.bias
    np.testing.assert_array_equal(found, np.clip(total >> factors.shift, *limits))


@pytest.mark.qemu
@needs_board
@pytest.mark.parametrize("factors", FACTORS)
@pytest.mark.parametrize("limits", LIMITS)
def test_every_pair_on_the_core(tmp_path: Path, factors: Factors, limits: tuple[int, int]) -> None:
    factors = replace(factors, lo=limits[0], hi=limits[1])
    if factors.clamped and factors.b <= 1 - (1 << 23):
        pytest.skip("factors_of makes no such sum: less the lower limit it leaves 32 bits")
    x, y = (v.reshape(-1).astype(np.int8) for v in np.meshgrid(np.arange(-128, 128), np.arange(-128, 128)))
    func = sums(factors, x.size)
    actual, result = run_on(func, {"x": x, "y": y}, board="mps2-an386", folder=tmp_path)
    total = x.astype(np.int64) * factors.a + y.astype(np.int64) * factors.b + factors.bias
    np.testing.assert_array_equal(actual["out"], np.clip(total >> factors.shift, *limits))
    assert result.instructions is not None
    assert result.instructions < (6.85 if factors.clamped else 6.1) * x.size + 100


def test_which_tails_are_sums() -> None:
    func = with_residual(build(LAYER), LAYER)
    layer = match_layer(group_of(func))
    assert layer is not None
    found = residual_factors(layer, M4)
    assert found is not None
    assert found == factors_of(layer.epilogue[0].attrs)
    assert residual_factors(layer, find_target("cortex-m3")) is None
    attrs: AddAttrs = layer.epilogue[0].attrs
    clamped = factors_of(replace(attrs, lo=0))
    assert clamped is not None
    assert clamped.clamped
    plain = match_layer(group_of(build(LAYER)))
    assert plain is not None
    assert residual_factors(plain, M4) is None


@pytest.mark.qemu
@needs_board
@pytest.mark.parametrize("name", ["conv2d_chain", "conv2d_chain_common", "conv2d_w8", "conv2d_w8_common"])
def test_blocks_with_a_sum_behind_them_compile(tmp_path: Path, name: str) -> None:
    """GCC refused the chain's block, which takes all registers, with the constants of a sum in the same expression."""
    layer = Layer("conv", (1, 2, 7, 7), (5, 1, 3, 7), strides=(3, 2), per_channel=False)
    kernel = KERNELS[f"conv arm_dsp.{name}"][1]
    cases = [make_case(kernel, replace(layer, out_zp=z), tail=tail) for z in (-128, 0) for tail in ("add", "relu")]
    assert Batch([case for case in cases if case is not None]).run("mps2-an386", tmp_path) == []
    assert any(cases)


@pytest.mark.parametrize("shape", [(16,), (1, 3, 3, 7), (1, 1, 18, 1), (1, 21)])
def test_alone_in_the_interpreter(shape: tuple[int, ...]) -> None:
    x, y = Var("x", TensorType(shape, "int8")), Var("y", TensorType(shape, "int8"))
    check_group("arm_dsp.add", (x, y), call("qnn.add", [x, y], ADD))
    check_group("arm_dsp.add", (x,), call("qnn.add", [x, x], ADD))
    still = const(data_of(y, 7))
    for args in ([x, still], [still, x]):
        check_group("arm_dsp.add", (x,), call("qnn.add", args, ADD))
    flat = const(data_of(y, 8).reshape(-1))
    if shape[-1] == flat.data.size:
        check_group("arm_dsp.add", (x,), call("qnn.add", [x, flat], ADD))
    other = Var("y", TensorType((1,), "int8"))
    assert lowered("arm_dsp.add", (x, other), call("qnn.add", [x, other], ADD)) is None
    assert lowered("arm_dsp.add", (x, y), call("qnn.add", [x, y], ADD), cpu="cortex-m3") is None


@pytest.mark.qemu
@needs_board
def test_alone_on_the_core(tmp_path: Path) -> None:
    x, y = Var("x", TensorType((1, 30, 31, 5), "int8")), Var("y", TensorType((1, 30, 31, 5), "int8"))
    body = call("qnn.add", [x, y], ADD)
    low = lowered("arm_dsp.add", (x, y), body)
    assert low is not None
    data = [data_of(v, i) for i, v in enumerate((x, y))]
    inputs = {b.name: d.reshape(-1) for b, d in zip(low.func.inputs, data, strict=True)}
    outputs, result = run_on(low.func, inputs, board="mps2-an386", folder=tmp_path)
    (expected,) = evaluate(Function((x, y), body), data)
    np.testing.assert_array_equal(outputs["out"], expected.reshape(-1))
    assert result.instructions is not None
    assert 0.95 * low.instructions < result.instructions < 1.05 * low.instructions + 60
