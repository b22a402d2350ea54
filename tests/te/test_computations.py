"""Operators written as tensor expressions: every schedule gives numpy's bytes, interpreted, on this machine and on boards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from aot import te
from aot.api import build
from aot.micro.board import load_board
from aot.micro.build.project import prepare
from aot.micro.build.toolchain import have_tool
from aot.micro.run.runner import run as run_on_board
from aot.runtime.functions import CModule
from aot.support.dtype import numpy_dtype
from aot.tir.function import PrimFunc
from aot.tir.interpreter import run
from tests.te.computations import ALL, Array, Computation

CASES = [
    pytest.param(make, name, id=f"{make().name}-{name}", marks=[] if i == 1 else pytest.mark.slow)
    for make in ALL
    for i, name in enumerate(("default", *make().schedules))
]


def scheduled(c: Computation, name: str) -> te.Schedule:
    return c.default() if name == "default" else c.schedules[name]()


def interpreted(func: PrimFunc, c: Computation, inputs: list[Array]) -> list[Array]:
    """The outputs of a function whose buffers are named as the tensors."""
    outputs = [np.full(t.shape, 0x55, numpy_dtype(t.dtype)) for t in c.args[-c.outputs :]]
    run(func, {t.name: a for t, a in zip(c.args, [*inputs, *outputs], strict=True)})
    return outputs


@pytest.mark.parametrize(("make", "schedule"), CASES)
def test_interpreter_and_host(make: Callable[[], Computation], schedule: str) -> None:
    c = make()
    module = build(scheduled(c, schedule), c.args, target="host", name="f")
    assert isinstance(module, CModule)
    lowered = te.lower(scheduled(c, schedule), c.args, "f")["f"]
    assert isinstance(lowered, PrimFunc)
    inputs = c.data(5)
    wanted = c.meaning(*inputs)
    outputs = [np.zeros(t.shape, numpy_dtype(t.dtype)) for t in c.args[-c.outputs :]]
    module["f"](*inputs, *outputs)
    for got in (interpreted(lowered, c, inputs), interpreted(module.prim_func("f"), c, inputs), outputs):
        for a, b in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.qemu
@pytest.mark.parametrize("board", ["mps2-an386", "microbit"])
@pytest.mark.parametrize(("make", "schedule"), CASES)
def test_boards(make: Callable[[], Computation], schedule: str, board: str, tmp_path: Path) -> None:
    if not have_tool("arm-none-eabi-gcc"):
        pytest.skip("arm-none-eabi-gcc is not installed")
    c, kind = make(), load_board(board)
    module = build(scheduled(c, schedule), c.args, target=f"c -mcpu={kind.cpu}", name="f")
    assert isinstance(module, CModule)
    inputs = c.data(6)
    result = run_on_board(prepare(module.artifact(), kind, folder=tmp_path), [inputs])
    for a, b in zip(result.outputs[0], c.meaning(*inputs), strict=True):
        np.testing.assert_array_equal(a, b)
