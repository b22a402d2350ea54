"""Float layers that could share a kernel: GCC found no registers for its numbers, arguments then, beside those of the blocks."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aot.driver.build import build
from aot.driver.options import Options
from aot.micro.board import load_board
from aot.micro.build.project import prepare
from aot.micro.build.toolchain import find_tool
from aot.micro.run.runner import run
from aot.system.files import data_folder
from aot.testing.builder import ModelBuilder
from tests.topi.intrin.test_intrin import needs_board

SAME: dict[str, Any] = {"padding": "SAME", "stride_w": 1, "stride_h": 1, "dilation_w_factor": 1, "dilation_h_factor": 1}
SHAPES = {"3x3": [(3, 32), (1, 64), (3, 64)], "3x3 and 5x5": [(3, 16), (5, 32), (3, 48), (1, 32), (5, 64), (1, 64)]}
"""Rows and columns of windows, and channels, of one layer after the other; before each a depthwise one alike."""


def network(shapes: list[tuple[int, int]], dtype: str) -> bytes:
    """Convolutions of float32 data, weights of `dtype`."""
    b, rng, depth = ModelBuilder("windows"), np.random.default_rng(1), 16
    first = x = b.tensor("x", (1, 10, 10, depth), "float32")

    def layer(op: str, shape: tuple[int, ...], axis: int, **options: Any) -> int:
        data = rng.normal(0, 0.1, shape).astype("float16" if dtype == "float16" else "float32")
        name, channels = f"{op}{len(b.subgraphs[0].tensors)}", shape[axis]
        if dtype == "int8":
            w = b.tensor(
                name, shape, dtype, scale=[0.01] * channels, axis=axis, data=(data * 100).clip(-127, 127).astype(np.int8)
            )
        else:
            w = b.tensor(name, shape, dtype, data=data)
        if dtype != "float32":
            wide = b.tensor(f"{name}_wide", shape, "float32")
            b.op("DEQUANTIZE", [w], [wide])
            w = wide
        bias = b.tensor(f"{name}_bias", (channels,), "float32", data=rng.normal(size=channels).astype(np.float32))
        y = b.tensor(f"{name}_y", (1, 10, 10, channels), "float32")
        b.op(op, [x, w, bias], [y], **SAME, **options)
        return y

    for size, channels in shapes:
        x = layer("DEPTHWISE_CONV_2D", (1, size, size, depth), 3, depth_multiplier=1)
        x = layer("CONV_2D", (channels, size, size, depth), 0)
        depth = channels
    return b.build([first], [x])


@pytest.mark.qemu
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("name", sorted(SHAPES))
def test_compiles_at_every_level(name: str, dtype: str, tmp_path: Path) -> None:
    files = build(network(SHAPES[name], dtype), target="cortex-m4", name="m").files
    for file, text in files.items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    core = ["-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16", "-std=c99", "-ffp-contract=off"]
    include = f"-I{data_folder('crt') / 'include'}"
    for level in ("-O0", "-Og", "-Os", "-O1", "-O2", "-O3"):
        for frame in ("-fomit-frame-pointer", "-fno-omit-frame-pointer"):
            command = [find_tool("arm-none-eabi-gcc").path, *core, level, frame, include, "-I.", "-c", "m_kernels.c"]
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{level} {frame}: {done.stderr}"


@pytest.mark.qemu
@needs_board
def test_bytes_of_shared_kernels(tmp_path: Path) -> None:
    model = network(SHAPES["3x3 and 5x5"], "float32")
    x = np.random.default_rng(2).standard_normal((1, 10, 10, 16)).astype(np.float32)
    found = []
    for opt in ("balanced", "speed"):
        artifact = build(model, target="cortex-m4", name="m", options=Options(opt=opt))
        found.append(run(prepare(artifact, load_board("mps2-an386"), folder=tmp_path / opt), [[x]]).outputs[0][0])
    assert found[0].tobytes() == found[1].tobytes()
