"""The tiled and tensorized matrix product of the examples: its bytes, and its instructions beside our own dense kernel's."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import aot
from aot.executor.artifact import Artifact
from aot.micro.board import load_board
from aot.micro.build.project import prepare
from aot.micro.build.toolchain import have_tool
from aot.micro.run.runner import run as run_on_board
from aot.runtime.functions import CModule
from aot.testing.ops import dense_model
from aot.tir.interpreter import run
from tests.te.computations import Array

BOARD = "mps2-an386"


def example() -> ModuleType:
    path = Path(__file__).parents[2] / "examples" / "python" / "tiled_matmul.py"
    spec = importlib.util.spec_from_file_location("tiled_matmul", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


EXAMPLE = example()


def built(schedule: str, target: str) -> CModule:
    s, args = getattr(EXAMPLE, schedule)()
    module = aot.build(s, args, target=target, name="mmult")
    assert isinstance(module, CModule)
    return module


def operands() -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(9)
    x, y = (rng.integers(-128, 128, (n, EXAMPLE.K), dtype=np.int8) for n in (EXAMPLE.M, EXAMPLE.N))
    return x, y, x.astype(np.int32) @ y.astype(np.int32).T


@pytest.mark.parametrize("schedule", ["plain", "tiled", "tensorized"])
def test_interpreter_and_host(schedule: str) -> None:
    module = built(schedule, "host")
    x, y, wanted = operands()
    outputs = [np.full(wanted.shape, 0x55, np.int32) for _ in range(2)]
    run(module.prim_func("mmult"), {"A": x, "B": y, "C": outputs[0]})
    module["mmult"](x, y, outputs[1])
    for got in outputs:
        np.testing.assert_array_equal(got, wanted)


def instructions(artifact: Artifact, inputs: list[Array], folder: Path) -> tuple[Array, int]:
    result = run_on_board(prepare(artifact, load_board(BOARD), folder=folder), [inputs])
    assert result.instructions is not None
    return result.outputs[0][0], result.instructions


@pytest.mark.qemu
def test_no_slower_than_the_dense_kernel(tmp_path: Path) -> None:
    """Dense also requantises its results; a bar of 1.1 is what the project asks for."""
    if not have_tool("arm-none-eabi-gcc"):
        pytest.skip("arm-none-eabi-gcc is not installed")
    x, y, wanted = operands()
    counts: dict[str, int] = {}
    for schedule in ("plain", "tiled", "tensorized"):
        result, counts[schedule] = instructions(built(schedule, "c -mcpu=cortex-m4").artifact(), [x, y], tmp_path / schedule)
        np.testing.assert_array_equal(result, wanted)
    model = dense_model(input_shape=(EXAMPLE.M, EXAMPLE.K), units=EXAMPLE.N)
    dense = aot.build(model, target="cortex-m4", name="dense")
    assert isinstance(dense, Artifact)
    assert "arm_dsp" in str(dense.metadata["layers"])
    _, counts["dense"] = instructions(dense, [x], tmp_path / "dense")
    print(counts)
    assert counts["tensorized"] <= 1.1 * counts["dense"]
    assert counts["tensorized"] < counts["tiled"] < counts["plain"]
