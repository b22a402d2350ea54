from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from aot.driver.build import build
from aot.errors import VerificationError
from aot.executor.artifact import Artifact
from aot.micro.board import emulated_names, load_board
from aot.micro.build.image import Function, _note, _registers, check_image, inspect_image, is_integer_model
from aot.micro.build.project import Project, prepare
from aot.micro.build.toolchain import have_tool
from aot.micro.run.runner import run
from aot.testing.text_model import text_model
from tests.micro import fake

needs_arm = pytest.mark.skipif(not have_tool("arm-none-eabi-gcc"), reason="the cross compiler is not installed")
BOARDS = emulated_names()
DIVIDE = "{ static volatile int64_t q = 5; q = q / tiny_workspace[60]; }"


def _project(folder: Path, *, extra: str = "", kernel: str = "", board: str = "mps2-an386") -> Project:
    prototype = "void tiny_more(void);" if kernel else ""
    artifact = fake.tiny(extra=extra, extra_kernel=prototype + kernel, kernel_prototypes=prototype)
    return prepare(artifact, load_board(board), folder=folder)


@needs_arm
def test_sizes_of_the_model_alone(tmp_path: Path) -> None:
    report = check_image(_project(tmp_path))
    assert report.code == report.code_kernels + report.code_main + report.code_runtime
    assert 60 < report.code_kernels < 200
    assert 60 < report.code_main < 250
    assert report.runtime == ("crt/src/memory.c",)
    assert (report.constants, report.data, report.bss, report.workspace) == (8, 0, 0, 64)
    assert (report.flash, report.ram) == (report.code + 8, 64)
    assert report.harness_code > 1000
    assert report.stack_path[0] == "tiny_run"


@needs_arm
def test_sizes_do_not_depend_on_the_folder(tmp_path: Path) -> None:
    first, second = _project(tmp_path / "a"), _project(tmp_path / "a_much_longer_name" / "b")
    assert inspect_image(first) == inspect_image(second)
    assert first.image().read_bytes() == second.image().read_bytes()


@pytest.mark.slow
@needs_arm
@pytest.mark.parametrize(
    ("extra", "kernel", "problem"),
    [
        ("tiny_more();", "int tiny_r(volatile int *p);\nint tiny_r(volatile int *p) { return *p > 0 ? tiny_r(p) + *p : 0; }\n"
         "void tiny_more(void) { volatile int x = 0; x = tiny_r(&x); }", "tiny_r calls itself|recursion"),
        ("tiny_more();", "static void (*volatile call)(void) = 0;\nvoid tiny_more(void) { call(); }", "calls through a pointer"),
        ("tiny_more();", "void tiny_more(void) { static volatile uint32_t n = 3u;\n"
         "  volatile uint8_t *p = __builtin_alloca(n); p[0] = 1u; p[n - 1u] = 2u; }", "variable size"),
        ("tiny_more();", "void *malloc(unsigned n);\n__attribute__((noinline)) "
         "void *malloc(unsigned n) { static uint8_t b[16]; return n < 16u ? b : 0; }\n"
         "void tiny_more(void) { *(volatile uint8_t *)malloc(4u) = 1u; }", "heap: malloc"),
        ("tiny_more();", "float expf(float x);\nvoid tiny_more(void) { static volatile float f = 1.0f; f = expf(f); }",
         r"integer model links libm.a\("),
    ],
)  # fmt: skip
def test_what_must_not_be_is_found(tmp_path: Path, extra: str, kernel: str, problem: str) -> None:
    with pytest.raises(VerificationError, match=f"E4030 .*({problem})"):
        check_image(_project(tmp_path, extra=extra, kernel=kernel))


@needs_arm
def test_float_models_may_use_libm(tmp_path: Path) -> None:
    kernel = "float expf(float x);\nvoid tiny_more(void) { static volatile float f = 1.0f; f = expf(f); }"
    project = _project(tmp_path, extra="tiny_more();", kernel=kernel)
    layers = [{**layer, "output": {**layer["output"], "dtype": "float32"}} for layer in project.artifact.metadata["layers"]]
    artifact = dataclasses.replace(project.artifact, metadata={**project.artifact.metadata, "layers": layers})
    report = inspect_image(dataclasses.replace(project, artifact=artifact))
    assert any(name.startswith("libm.a(") for name in report.runtime)
    assert not [p for p in report.problems if "links" in p]


def test_conversions_at_the_edges_leave_a_model_an_integer_model() -> None:
    def model(*ops: tuple[str, str]) -> Artifact:
        layers = [{"op": op, "output": {"dtype": dtype}} for op, dtype in ops]
        return dataclasses.replace(fake.tiny(), metadata={"layers": layers})

    assert is_integer_model(model(("QUANTIZE", "int8"), ("CONV_2D", "int8"), ("DEQUANTIZE", "float32")))
    assert not is_integer_model(model(("CONV_2D", "float32")))


@needs_arm
@pytest.mark.parametrize("board", ["mps2-an385", "mps2-an386"])
def test_integers_whose_meaning_is_floats_may_use_libm(tmp_path: Path, board: str) -> None:
    """The reference computes SQRT of int16 in float32; every such model ended in E4030."""
    model = text_model("in x int16[1,8] scale=0.001\n out y int16[1,8] scale=0.0002\n SQRT x -> y")
    place = load_board(board)
    report = inspect_image(prepare(build(model, target=place.cpu), place, folder=tmp_path))
    assert any(name.startswith("libm.a(") for name in report.runtime)
    assert not report.problems


@pytest.mark.parametrize(
    ("mnemonic", "operands", "frame"),
    [
        ("push", "{r4, r5, lr}", 12),
        ("stmdb", "sp!, {r4-r11, lr}", 36),
        ("stmdb", "r1!, {r4-r11, lr}", 0),
        ("vpush", "{d8-d11}", 32),
        ("str.w", "lr, [sp, #-8]!", 8),
        ("sub", "sp, #20", 20),
        ("subw", "sp, sp, #1540\t@ 0x604", 1540),
        ("add", "sp, #20", 0),
        ("pop", "{r4, pc}", 0),
    ],
)
def test_frames_from_instructions(mnemonic: str, operands: str, frame: int) -> None:
    function = Function("f", 0)
    _note(function, mnemonic, operands)
    assert function.frame == frame


def test_registers() -> None:
    assert _registers("{r0, r4-r7, lr}") == 24


@pytest.mark.qemu
@needs_arm
@pytest.mark.skipif(not have_tool("qemu-system-arm"), reason="QEMU is not installed")
@pytest.mark.parametrize("board", BOARDS)
def test_bound_is_above_what_is_measured(board: str, tmp_path: Path) -> None:
    """The division is libgcc's: a frame that only the disassembly shows."""
    for extra in ("", DIVIDE):
        project = _project(tmp_path, extra=extra, board=board)
        measured = run(project, fake.input_sets(1)).stack_bytes
        bound = check_image(project).stack_bound
        assert measured is not None
        assert measured <= bound <= measured + 64
