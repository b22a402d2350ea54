"""Layers given to CMSIS-NN: against a stand-in of its interface, and against the library itself where AOT_CMSIS_NN names it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import aot
from aot import relay
from aot.driver.options import Options
from aot.errors import UsageError
from aot.executor.candidates import group_of
from aot.frontend.tflite import from_tflite
from aot.ir import IRModule
from aot.relay.expr import Function
from aot.runtime.module import load
from aot.testing import Quant
from aot.tir.interpreter import run
from aot.topi.generic.softmax import without_table
from tests.op._one_op import Spec, one_op

STUB = Path(__file__).parent / "stub"
MODELS = Path(__file__).resolve().parents[1] / "models"
RNG = np.random.default_rng(3)


def network() -> IRModule:
    """Every function that is called: padding, strides, dilation, multiplier, addition, pooling, a fully connected layer."""
    x = relay.var("x", shape=(1, 9, 8, 3), dtype="int8")
    w = RNG.integers(-127, 128, (8, 3, 3, 3)).astype(np.int8)
    y = relay.nn.conv2d(x, w, RNG.integers(-500, 500, 8).astype(np.int32), padding=1, input_zp=4)
    y = relay.clip(relay.qnn.requantize(y, [0.002 * (i + 1) for i in range(8)], zero_point=-7), -7, 120)
    z = relay.nn.depthwise_conv2d(y, RNG.integers(-127, 128, (1, 3, 3, 8)).astype(np.int8), padding=1, input_zp=-7)
    z = relay.qnn.requantize(z, 0.004, zero_point=5)
    y = relay.qnn.add(y, z, scales=(0.1, 0.2, 0.25), zero_points=(-7, 5, 3))
    y = relay.nn.avg_pool2d(relay.nn.max_pool2d(y, 3, strides=2, padding=1), 2)
    y = relay.nn.depthwise_conv2d(y, RNG.integers(-127, 128, (1, 2, 2, 16)).astype(np.int8))
    y = relay.nn.conv2d(relay.qnn.requantize(y, 0.003), RNG.integers(-127, 128, (5, 1, 1, 16)).astype(np.int8))
    y = relay.reshape(relay.qnn.requantize(y, 0.004), (1, -1))
    y = relay.nn.dense(y, RNG.integers(-127, 128, (6, y.type.shape[1])).astype(np.int8), np.arange(6, dtype=np.int32))
    return IRModule.from_expr(relay.qnn.requantize(y, 0.01, zero_point=1))


def kernels(artifact: aot.Artifact) -> list[str]:
    return [layer["kernel"] for layer in artifact.metadata["layers"]]


def check_bytes(module: IRModule, path: Path, *, least: int, target: str = "cortex-m4", sets: int = 3) -> None:
    """The C with the library gives the bytes of the graph; at least so many layers are the library's."""
    main = module["main"]
    assert isinstance(main, Function)
    artifact = aot.build(module, target=target, name="net", options=Options(byoc=("cmsis-nn",), byoc_path=path))
    assert sum(k.startswith("cmsis-nn.") for k in kernels(artifact)) >= least, kernels(artifact)
    built = load(artifact)
    for _ in range(sets):
        inputs = [RNG.integers(-128, 128, p.type.shape).astype(p.type.dtype) for p in main.params]
        for found, expected in zip(built.run(inputs), relay.evaluate(main, inputs), strict=True):
            assert found.tobytes() == expected.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cortex-m4", "cortex-m0", "cortex-m55"])
def test_every_function_against_the_stand_in(target: str) -> None:
    check_bytes(network(), STUB, least=7 if target == "cortex-m55" else 8, target=target)


@pytest.mark.slow
@pytest.mark.parametrize("oracle", ["litert", "tflm"])
def test_model_against_the_stand_in(oracle: str) -> None:
    module = from_tflite((MODELS / "net_kws_dscnn.tflite").read_bytes(), oracle=oracle)
    check_bytes(module, STUB, least=10 if oracle == "litert" else 11, sets=1)


def softmax_network(dtype: str, depth: int) -> bytes:
    result = Quant(1 / 256, -128) if dtype == "int8" else Quant(1 / 65536, -32768)
    return one_op("SOFTMAX", [Spec((3, depth), "int8", Quant(0.1, 5))], [Spec((3, depth), dtype, result)], beta=0.75)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "depth"), [("int8", 10), ("int8", 511), ("int16", 300)])
def test_softmax(dtype: str, depth: int) -> None:
    check_bytes(from_tflite(softmax_network(dtype, depth)), Path(os.environ.get("AOT_CMSIS_NN", STUB)), least=1)


def test_the_meaning_of_softmax_has_no_table() -> None:
    """What the interpreter runs for the call; rows that are too long for the library stay ours."""
    model = softmax_network("int8", 40)
    main = from_tflite(model)["main"]
    assert isinstance(main, Function)
    func = without_table(group_of(main), "meaning")
    data, out = RNG.integers(-128, 128, 120).astype(np.int8), np.zeros(120, np.int8)
    data[:40] = data[40]
    run(func, {func.inputs[0].name: data, func.outputs[0].name: out})
    assert out.reshape(3, 40).tolist() == relay.evaluate(main, [data.reshape(3, 40)])[0].tolist()
    assert not func.consts
    for depth, ours in ((511, False), (512, True)):
        artifact = aot.build(softmax_network("int8", depth), name="net", options=Options(byoc=("cmsis-nn",)))
        assert kernels(artifact)[0].startswith("cmsis-nn.") != ours


@pytest.mark.slow
def test_against_the_library_itself() -> None:
    where = os.environ.get("AOT_CMSIS_NN")
    if where is None:
        pytest.skip("AOT_CMSIS_NN names no folder of CMSIS-NN's Include and Source")
    check_bytes(network(), Path(where), least=8)


def test_some_patterns_only() -> None:
    artifact = aot.build(network(), name="net", options=Options(byoc=("cmsis-nn=add,max_pool2d",)))
    assert sorted(k for k in kernels(artifact) if k.startswith("cmsis-nn")) == ["cmsis-nn.add", "cmsis-nn.max_pool2d"]
    assert '#include "arm_nnfunctions.h"' in artifact.files["net_internal.h"]


def test_context_buffers_are_planned() -> None:
    plain = aot.build(network(), name="net")
    given = aot.build(network(), name="net", options=Options(byoc=("cmsis-nn",)))
    assert "ctx" in given.files["net_kernels.c"]
    assert given.metadata["workspace"]["size"] > 0
    assert "ctx" not in plain.files["net_kernels.c"]


def test_layers_that_round_once_stay_and_are_named() -> None:
    from aot.byoc.cmsis_nn_patterns import refusals
    from aot.relay.transform import graph_pipeline

    module = from_tflite((MODELS / "net_kws_dscnn.tflite").read_bytes())
    lines = refusals(graph_pipeline()(module)["main"])  # type: ignore[arg-type]
    assert len(lines) == 1
    assert "FULLY_CONNECTED" in lines[0]
    assert "rounded once" in lines[0]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"byoc": ("no-such",)}, "E5121"),
        ({"byoc": ("cmsis-nn=conv3d",)}, "E5121"),
        ({"byoc": (3,)}, "E5121"),
        ({"byoc": ("cmsis-nn",), "byoc_path": Path("no/such")}, "E5122"),
    ],
)
def test_wrong_options(options: dict[str, object], code: str) -> None:
    with pytest.raises(UsageError, match=code):
        Options(**options)  # type: ignore[arg-type]


def test_a_folder_that_is_no_library(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="E5122"):
        aot.build(network(), name="net", options=Options(byoc=("cmsis-nn",), byoc_path=tmp_path))
