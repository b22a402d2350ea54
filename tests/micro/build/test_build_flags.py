"""Generated C compiles without warnings and is exact however it is built.

All kernels are in the programs: those of layers over random layers, all others as they take part in the smallest models of
every operator.  With AOT_FULL=1 every combination of compiler, -O level, frame pointer and float ABI, else a sample of them.
"""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from aot import op as operators
from aot import topi
from aot.driver.build import build
from aot.micro.board import load_board
from aot.micro.build.project import prepare
from aot.micro.build.toolchain import find_tool, have_tool
from aot.micro.run.runner import run
from aot.system.files import data_folder
from aot.topi.strategy import _IMPLS as REGISTERED
from tests.micro.build.build_flags import (
    ABIS,
    ALL,
    COMPILERS,
    CORE,
    FRAMES,
    LEVELS,
    MODELS,
    Flags,
    clang,
    flagged,
)  # fmt: skip
from tests.micro.build.kernel_cases import drawn_cases, kernels_of, operator_cases
from tests.topi.batch import Batch

FULL = os.environ.get("AOT_FULL") == "1"
SAMPLE = [
    Flags(c, o, FRAMES[(i + k) % 2], tuple(ABIS)[(i + k) % 3]) for i, o in enumerate(LEVELS) for k, c in enumerate(COMPILERS)
]
"""Each level with each compiler."""
CHOSEN = ALL if FULL else SAMPLE
FEW = ALL if FULL else [SAMPLE[6], SAMPLE[1], SAMPLE[12]]
BOARD = "mps2-an386"

pytestmark = [
    pytest.mark.qemu,
    pytest.mark.skipif(not (have_tool("arm-none-eabi-gcc") and have_tool("qemu-system-arm")), reason="needs arm gcc and QEMU"),
]
operators.load_all()
topi.load_all()


@cache
def drawn() -> Batch:
    return Batch(drawn_cases(2 if FULL else 1))


@cache
def small() -> Batch:
    return Batch(operator_cases())


@pytest.mark.parametrize("how", CHOSEN, ids=str)
def test_layers_are_exact(how: Flags, tmp_path: Path) -> None:
    batch = drawn()
    assert batch.wrong(flagged(batch.project(BOARD, tmp_path), how)) == []


@pytest.mark.parametrize("how", FEW, ids=str)
def test_operators_are_exact(how: Flags, tmp_path: Path) -> None:
    batch = small()
    assert batch.wrong(flagged(batch.project(BOARD, tmp_path), how)) == []


def test_the_sample_meets_everything() -> None:
    """Each compiler with each level, each ABI and each kind of frame; and every kernel of the registry in one of the programs."""
    for kind in ("level", "frame", "abi"):
        everything = {(f.compiler, getattr(f, kind)) for f in ALL}
        assert {(f.compiler, getattr(f, kind)) for f in SAMPLE} == everything
    assert {i.name for kernels in REGISTERED.values() for i in kernels} == kernels_of([*drawn_cases(1), *operator_cases()])


@pytest.mark.parametrize("how", CHOSEN, ids=str)
def test_model_is_exact(how: Flags, tmp_path: Path) -> None:
    """A whole network, its main function too."""
    artifact = build(MODELS / "net_sww.tflite", target="cortex-m4")
    project = flagged(prepare(artifact, load_board(BOARD), folder=tmp_path), how)
    with np.load(MODELS / "net_sww.golden.npz") as golden:
        found = run(project, [[golden["in0_0"]]])
        np.testing.assert_array_equal(found.outputs[0][0].ravel(), golden["out0_0"].ravel())


# --- flags that nothing else can make up for


def compile_text(text: str, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    (folder / "x.c").write_text(text, encoding="utf-8")
    include = f"-I{data_folder('crt') / 'include'}"
    return subprocess.run([*command, include, "-c", "x.c"], cwd=folder, capture_output=True, text=True, check=False)


def test_big_endian_is_refused(tmp_path: Path) -> None:
    done = compile_text('#include "aot/kernel.h"\n', tmp_path, find_tool("arm-none-eabi-gcc").path, *CORE, "-mbig-endian")
    assert done.returncode != 0
    assert '#error "generated kernels and their constants are for little-endian processors' in done.stderr


@pytest.mark.parametrize("compiler", COMPILERS)
def test_fast_math_is_refused_where_there_are_floats(compiler: str, tmp_path: Path) -> None:
    command = [*Flags(compiler, "-O2", "", "hard").command(), "-ffreestanding", "-ffast-math", "-I."]
    for model, floats in (("dequantize", True), ("add", False)):
        files = build(MODELS / f"{model}.tflite", target="cortex-m4", name="m").files
        for name in ("m_internal.h", "m_kernels.c"):
            (tmp_path / name).write_text(files[name], encoding="utf-8")
        done = compile_text(files["m_kernels.c"], tmp_path, *command)
        assert (done.returncode != 0) == floats, done.stderr
        assert ("compile this file without -ffast-math" in done.stderr) == floats


def test_no_c_library_is_needed(tmp_path: Path) -> None:
    """Clang for bare metal comes without <string.h>."""
    files = build(MODELS / "net_sww.tflite", target="cortex-m4", name="m").files
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    for name in ("m.c", "m_kernels.c", "m_params.c"):
        target = [clang(), "--target=arm-none-eabi", "-nostdlibinc", "-ffreestanding", "-I.", *CORE]
        done = compile_text(files[name], tmp_path, *target)
        assert done.returncode == 0, done.stderr


def test_position_independent_code_compiles(tmp_path: Path) -> None:
    project = drawn().project(BOARD, tmp_path)
    how = Flags("gcc", "-O2", "-fpic -msingle-pic-base", "hard")
    assert flagged(project, how).compiled("unit_kernels.c").is_file()


@pytest.mark.parametrize("flags", ["-mno-unaligned-access", "-mcpu=cortex-m3", "-std=gnu17"])
def test_other_flags(flags: str, tmp_path: Path) -> None:
    """No unaligned access, a core without DSP, the compiler's own dialect."""
    batch = drawn()
    how = Flags("gcc", "-O2", flags, "soft" if "m3" in flags else "hard")
    assert batch.wrong(flagged(batch.project(BOARD, tmp_path), how)) == []
