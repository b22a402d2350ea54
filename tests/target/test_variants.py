"""Cores without a part of their instruction set."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aot.driver.build import build
from aot.errors import UsageError
from aot.micro.board import load_board
from aot.micro.build.project import prepare
from aot.micro.run.runner import run
from aot.target.target import find_target
from tests.micro.projects import DIGITS, need, sh
from tests.models.golden import FOLDER, load_golden, sets_of
from tests.topi.intrin.test_intrin import needs_board

NETWORKS = sorted(path.stem for path in FOLDER.glob("net_*.tflite"))


def test_features_go() -> None:
    assert find_target("cortex-m4+nofpu").features == find_target("cortex-m4").features - {"fpu", "vfp"}
    assert find_target("cortex-m33+nodsp+nofpu").features == find_target("cortex-m3").features
    assert find_target("cortex-m55+nomve").has("dsp")
    assert not find_target("cortex-m55+nofpu").has("mve")
    assert find_target("cortex-m85+nofpu").gcc_flags == ("-march=armv8.1-m.main+dsp", "-mthumb", "-mfloat-abi=soft")


@pytest.mark.parametrize("name", ["cortex-m3+nofpu", "cortex-m4+fpu", "cortex-m4+nofpu+nofpu", "cortex-m4+nodiv", "m4+nofpu"])
def test_what_there_is_not(name: str) -> None:
    with pytest.raises(UsageError, match="E5010"):
        find_target(name)


@pytest.mark.parametrize(
    "name",
    [
        "cortex-m4+nofpu",
        pytest.param("cortex-m55+nofpu", marks=pytest.mark.slow),
        pytest.param("cortex-m55+nomve", marks=pytest.mark.slow),
        pytest.param("cortex-m85", marks=pytest.mark.slow),
        pytest.param("cortex-m85+nomve", marks=pytest.mark.slow),
        pytest.param("cortex-m85+nodsp", marks=pytest.mark.slow),
        pytest.param("cortex-m33+nodsp+nofpu", marks=pytest.mark.slow),
    ],
)
def test_generated_code_fits_the_flags(tmp_path: Path, name: str) -> None:
    need("arm-none-eabi-gcc")
    artifact = build(DIGITS, target=name)
    artifact.export(tmp_path)
    flags = " ".join(find_target(name).gcc_flags)
    crt = Path(__file__).resolve().parent.parent.parent / "crt" / "include"
    sh(f"arm-none-eabi-gcc {flags} -O2 -std=c99 -I. -I{crt} -c digits_kernels.c digits.c", cwd=tmp_path)
    assert artifact.metadata["target"]["cpu"] == name


def test_vectors_of_integers_alone_are_enough_to_build(tmp_path: Path) -> None:
    """A core configured with MVE but without its floating point: blocks that need that are compiled as C."""
    need("arm-none-eabi-gcc")
    artifact = build(FOLDER / "graph_float_io.tflite", target="cortex-m55")
    artifact.export(tmp_path)
    text = (tmp_path / "graph_float_io_kernels.c").read_text(encoding="utf-8")
    assert ".f32" in text
    crt = Path(__file__).resolve().parent.parent.parent / "crt" / "include"
    flags = "-mcpu=cortex-m55+nomve.fp -mthumb -mfloat-abi=hard"
    sh(f"arm-none-eabi-gcc {flags} -O2 -std=c99 -I. -I{crt} -c graph_float_io_kernels.c", cwd=tmp_path)


@pytest.mark.qemu
@needs_board
@pytest.mark.parametrize("model", [*NETWORKS, "graph_float_io", "logistic", "quantize_shift", "softmax_wide"])
@pytest.mark.parametrize("name", ["cortex-m55+nomve", "cortex-m55+nofpu", "cortex-m85", "cortex-m85+nomve", "cortex-m85+nodsp"])
def test_networks_are_exact(tmp_path: Path, model: str, name: str) -> None:
    """On the board of the Cortex-M55, whose core has what any of these has."""
    target, board = find_target(name), load_board("mps3-an547")
    artifact = build(FOLDER / f"{model}.tflite", target=name)
    project = prepare(artifact, replace(board, cpu=name, flags=target.gcc_flags), folder=tmp_path)
    golden = load_golden(model)
    result = run(project, sets_of(golden, "in"))
    for found, expected in zip(result.outputs, sets_of(golden, "out"), strict=True):
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one.reshape(-1), other.reshape(-1), strict=True)
