from __future__ import annotations

import copy
import dataclasses
from pathlib import Path

import numpy as np
import pytest

from aot.errors import TargetError, ToolchainError, UsageError, VerificationError
from aot.micro.board import emulated_names, load_board
from aot.micro.build.project import prepare
from aot.micro.build.toolchain import have_tool
from aot.micro.run import runner
from aot.micro.run.runner import run
from tests.micro import fake

pytestmark = [
    pytest.mark.qemu,
    pytest.mark.skipif(not have_tool("arm-none-eabi-gcc"), reason="the cross compiler is not installed"),
    pytest.mark.skipif(not have_tool("qemu-system-arm"), reason="QEMU is not installed"),
]
BOARDS = emulated_names()


def _count(board: str, folder: Path, iterations: int, *, first: int = 0xFFFFFF) -> int:
    project = prepare(fake.spin(iterations), load_board(board), folder=folder)
    project = dataclasses.replace(project, defines={"AOT_COUNTER_FIRST": f"{first}u"})
    instructions = run(project, fake.input_sets(1)).instructions
    assert instructions is not None
    return instructions


@pytest.mark.parametrize("io", ["arena", "user"])
@pytest.mark.parametrize("board", BOARDS)
def test_runs_alike_on_every_board(board: str, io: str, tmp_path: Path) -> None:
    sets = fake.input_sets(4)
    project = prepare(fake.tiny(io=io), load_board(board), folder=tmp_path)
    first, second = run(project, sets), run(project, sets)
    for inputs, outputs in zip(sets, first.outputs, strict=True):
        np.testing.assert_array_equal(outputs[0], fake.expected(*inputs)[1])
    assert first.instructions == second.instructions
    assert first.instructions is not None
    assert 100 < first.instructions < 1000
    assert (first.workspace_touched, first.workspace_extent) == (40, 40)
    assert first.stack_bytes is not None
    assert 16 <= first.stack_bytes <= 128


@pytest.mark.parametrize("board", BOARDS)
def test_counts_are_exact(board: str, tmp_path: Path) -> None:
    """A loop of two instructions: whatever the phase of the timer, the difference is exactly two per iteration."""
    base = _count(board, tmp_path, 0x100001)
    for more in (1, 2, 7, 19, 20, 21, 1000, 123456):
        assert _count(board, tmp_path, 0x100001 + more) - base == 2 * more


@pytest.mark.parametrize("board", ["mps2-an386", "mps3-an547", "microbit"])
def test_counts_are_exact_wherever_the_timer_wraps(board: str, tmp_path: Path) -> None:
    """The wrap before, within and after the counter's own readings, and within the measured region."""
    reference = _count(board, tmp_path, 0x100)
    for first in [*range(1, 60, 3), 8, 16]:
        assert _count(board, tmp_path, 0x100, first=first) == reference, f"first wrap after {first} ticks"


@pytest.mark.slow
@pytest.mark.parametrize("board", ["mps2-an386", "mps2-an505"])
def test_more_than_24_bits_of_ticks(board: str, tmp_path: Path) -> None:
    base = _count(board, tmp_path, 0x100001)
    assert _count(board, tmp_path, 0x20100001) - base == 2 * 0x20000000


@pytest.mark.parametrize("board", BOARDS)
def test_profile_adds_up(board: str, tmp_path: Path) -> None:
    project = prepare(fake.tiny(), load_board(board), folder=tmp_path)
    whole = run(project, fake.input_sets(1)).instructions
    profile = run(project, fake.input_sets(1), mode="profile")
    assert whole is not None
    assert profile.instructions is not None
    assert abs(profile.instructions - whole) <= 4  # setting up a probe's arguments takes one or two instructions more or less
    parts = [layer.instructions or 0 for layer in profile.layers]
    assert [layer.index for layer in profile.layers] == [0, 1]
    assert 0 <= whole - sum(parts) <= 20
    assert min(parts) > 30


@pytest.mark.parametrize("board", BOARDS)
def test_trace(board: str, tmp_path: Path) -> None:
    sets = fake.input_sets(1)
    result = run(prepare(fake.tiny(), load_board(board), folder=tmp_path), sets, mode="trace")
    for layer, wanted in zip(result.layers, fake.expected(*sets[0]), strict=True):
        np.testing.assert_array_equal(layer.output, wanted)


def _bad(body: str) -> str:
    return f"void tiny_bad(void);\nvoid tiny_bad(void) {{ {body} }}"


def _run_bad(board: str, folder: Path, kernel: str) -> None:
    artifact = fake.tiny(extra="tiny_bad();", extra_kernel=kernel, kernel_prototypes="void tiny_bad(void);")
    run(prepare(artifact, load_board(board), folder=folder), fake.input_sets(1), timeout=600)


@pytest.mark.parametrize("board", BOARDS)
def test_fault_names_the_function(board: str, tmp_path: Path) -> None:
    with pytest.raises(VerificationError, match=f"E4020 {board}: fault at pc 0x[0-9a-f]+ in tiny_bad, called from tiny_run"):
        _run_bad(board, tmp_path, _bad('__asm__ volatile("udf #0");'))


@pytest.mark.parametrize("board", BOARDS)
def test_stack_overflow_is_told(board: str, tmp_path: Path) -> None:
    deep = (
        "int32_t tiny_deep(volatile int32_t *p);\n"
        "int32_t tiny_deep(volatile int32_t *p) {\n"
        "  volatile int32_t a[64]; a[0] = *p; if (*p == 7) return 0; return tiny_deep(a) + a[0];\n}\n"
    )
    with pytest.raises(VerificationError, match=f"E4020 {board}: stack overflow: .* stack of [0-9]+ bytes"):
        _run_bad(board, tmp_path, deep + _bad("volatile int32_t x = 1; (void)tiny_deep(&x);"))


def test_time_limit(tmp_path: Path) -> None:
    artifact = fake.tiny(extra="for (volatile uint32_t i = 1u; i != 0u;) {}")
    with pytest.raises(ToolchainError, match="E3010 mps2-an386 did not finish within 1 s"):
        run(prepare(artifact, load_board("mps2-an386"), folder=tmp_path), fake.input_sets(1), timeout=1)


def test_linker_overflow_has_the_numbers(tmp_path: Path) -> None:
    """More code than the metadata says: only the linker can see it."""
    artifact = fake.tiny()
    params = artifact.files["tiny_params.c"] + "extern const uint8_t tiny_huge[];\nconst uint8_t tiny_huge[300000] = {1};\n"
    kernel = "extern const uint8_t tiny_huge[];\n" + _bad("(void)*(const volatile uint8_t *)tiny_huge;")
    artifact = fake.tiny(extra="tiny_bad();", extra_kernel=kernel, kernel_prototypes="void tiny_bad(void);")
    artifact = dataclasses.replace(artifact, files={**artifact.files, "tiny_params.c": params})
    with pytest.raises(TargetError, match=r"E2012 region FLASH of microbit has 262,144 bytes; 30\d,\d{3} are needed"):
        prepare(artifact, load_board("microbit"), folder=tmp_path).image()


@pytest.mark.parametrize("board", BOARDS)
def test_large_memories_are_real(board: str, tmp_path: Path) -> None:
    """The last byte of the workspace and constants far apart are reached, in whatever region was chosen."""
    workspace, constants = (10_000, 200_000) if board == "microbit" else (1_000_000, 2_000_000)
    words = constants // 4
    kernel = (
        "extern uint8_t tiny_workspace[];\nextern const uint32_t tiny_big[];\n"
        + _bad(f"tiny_workspace[{workspace - 1}] = (uint8_t)(tiny_big[0] + tiny_big[{words - 1}]);")
    )  # fmt: skip
    base = fake.tiny(
        extra=f"tiny_bad(); if (tiny_workspace[{workspace - 1}] != 9u) return -77;",
        extra_kernel=kernel, kernel_prototypes="void tiny_bad(void);",
    )  # fmt: skip
    files = dict(base.files)
    files["tiny.h"] = files["tiny.h"].replace("64u", f"{workspace}u")
    big = f"extern const uint32_t tiny_big[];\nconst uint32_t tiny_big[{words}] = {{4u, [{words - 1}] = 5u}};\n"
    files["tiny_params.c"] += big
    metadata = copy.deepcopy(dict(base.metadata))
    metadata["workspace"]["size"], metadata["constants"]["size"] = workspace, constants
    artifact = dataclasses.replace(base, files=files, metadata=metadata)
    result = run(prepare(artifact, load_board(board), folder=tmp_path), fake.input_sets(1))
    assert (result.workspace_touched, result.workspace_extent) == (41, workspace)


@pytest.mark.parametrize("stack", [8, 16, 32, 40, 48])
@pytest.mark.parametrize("board", BOARDS)
def test_a_stack_too_small_to_report_its_overflow(board: str, stack: int, tmp_path: Path) -> None:
    tiny_stack = dataclasses.replace(load_board(board), stack=stack)
    with pytest.raises(VerificationError, match=f"E4020 {board}: stack overflow: .* stack of {stack} bytes"):
        run(prepare(fake.tiny(), tiny_stack, folder=tmp_path), fake.input_sets(1), timeout=600)


@pytest.mark.parametrize("board", BOARDS)
def test_the_known_loop_is_counted_right(board: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a few instructions; the tolerance is far below the least difference of two values that a board could have."""
    monkeypatch.setattr(runner, "_CHECK_EXTRA", 6)
    run(prepare(fake.tiny(), load_board(board), folder=tmp_path), fake.input_sets(1))


@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize(("num", "den"), [(1, 2), (2, 1), (41, 40), (255, 256), (128, 125), (200, 201)])
def test_a_wrong_tick_is_refused(board: str, num: int, den: int, tmp_path: Path) -> None:
    right = load_board(board).tick
    assert right is not None
    wrong = right * num / den
    if wrong.numerator > 256 or wrong.numerator % 7 == 0:
        pytest.skip("the counter takes no such value")
    project = prepare(fake.tiny(), dataclasses.replace(load_board(board), tick=wrong), folder=tmp_path)
    for mode in ("measure", "profile"):
        with pytest.raises(UsageError, match=r"E5024 .* a loop of 200,000 instructions was counted as") as caught:
            run(project, fake.input_sets(1), mode=mode)
        assert f"use [{right.numerator}, {right.denominator}]" in str(caught.value)
