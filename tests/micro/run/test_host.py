from __future__ import annotations

import copy
import dataclasses
from pathlib import Path

import numpy as np
import pytest

from aot.errors import TargetError, ToolchainError, UsageError, VerificationError
from aot.micro.board import load_board
from aot.micro.build.project import choose_places, prepare
from aot.micro.build.toolchain import find_tool, have_tool, how_to_get, known_tools
from aot.micro.run.runner import run
from tests.micro import fake

needs_gcc = pytest.mark.skipif(not have_tool("gcc"), reason="gcc is not installed")
HOST = load_board("host")


@needs_gcc
@pytest.mark.parametrize("io", ["arena", "user"])
def test_outputs_of_all_sets(tmp_path: Path, io: str) -> None:
    sets = fake.input_sets(5)
    result = run(prepare(fake.tiny(io=io), HOST, folder=tmp_path), sets)
    assert len(result.outputs) == 5
    for inputs, outputs in zip(sets, result.outputs, strict=True):
        np.testing.assert_array_equal(outputs[0], fake.expected(*inputs)[1])
        assert outputs[0].dtype == np.int16
    assert (result.instructions, result.stack_bytes) == (None, None)
    # a, b, t; the last 24 bytes are never written, nor is the gap after a; y lies over a
    assert (result.workspace_touched, result.workspace_extent) == (40, 40)


@needs_gcc
def test_touched_counts_every_written_byte_whatever_its_value(tmp_path: Path) -> None:
    extra = "tiny_workspace[45] = 0xA5u; tiny_workspace[47] = 0x5Au; tiny_workspace[63] = 0xA5u;"
    result = run(prepare(fake.tiny(extra=extra), HOST, folder=tmp_path), fake.input_sets(1))
    assert (result.workspace_touched, result.workspace_extent) == (43, 64)


@needs_gcc
def test_trace_has_every_layer(tmp_path: Path) -> None:
    sets = fake.input_sets(3)
    result = run(prepare(fake.tiny(), HOST, folder=tmp_path), sets, mode="trace")
    assert len(result.outputs) == 1
    for layer, wanted in zip(result.layers, fake.expected(*sets[0]), strict=True):
        np.testing.assert_array_equal(layer.output, wanted)


@needs_gcc
def test_second_build_is_free_and_a_change_is_seen(tmp_path: Path) -> None:
    project = prepare(fake.tiny(), HOST, folder=tmp_path)
    image = project.image()
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()}
    assert prepare(fake.tiny(), HOST, folder=tmp_path).image() == image
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()} == before
    assert prepare(fake.tiny(status="AOT_ERROR_STATE"), HOST, folder=tmp_path).image() != image


@needs_gcc
def test_default_folder_is_named_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOT_CACHE", str(tmp_path))
    first, second = prepare(fake.tiny(), HOST), prepare(fake.tiny(status="AOT_ERROR_STATE"), HOST)
    assert first.folder.parent == second.folder.parent == tmp_path / "build"
    assert first.folder != second.folder


@needs_gcc
def test_status_of_the_model_is_reported(tmp_path: Path) -> None:
    with pytest.raises(VerificationError, match="E4022 the model returned status -3 on set 0"):
        run(prepare(fake.tiny(status="AOT_ERROR_STATE"), HOST, folder=tmp_path), fake.input_sets(1))


@needs_gcc
def test_sanitizers_stop_the_program(tmp_path: Path) -> None:
    extra = "{ static volatile uint32_t i = 64u; tiny_workspace[i] = 1u; }"
    with pytest.raises(VerificationError, match=r"E4021 host: .*(AddressSanitizer|runtime error)"):
        run(prepare(fake.tiny(extra=extra), HOST, folder=tmp_path, sanitize=True), fake.input_sets(1))
    good = run(prepare(fake.tiny(), HOST, folder=tmp_path, sanitize=True), fake.input_sets(1))
    np.testing.assert_array_equal(good.outputs[0][0], fake.expected(*fake.input_sets(1)[0])[1])


@needs_gcc
def test_crash_is_reported(tmp_path: Path) -> None:
    extra = "{ static volatile uintptr_t i = 16u; *(volatile int8_t *)i = 1; }"
    with pytest.raises(VerificationError, match="E4021 host: killed by SIGSEGV"):
        run(prepare(fake.tiny(extra=extra), HOST, folder=tmp_path), fake.input_sets(1))


@needs_gcc
def test_time_limit(tmp_path: Path) -> None:
    extra = "for (volatile uint32_t i = 1u; i != 0u;) {}"
    with pytest.raises(ToolchainError, match=r"E3010 host did not finish within 0.2 s"):
        run(prepare(fake.tiny(extra=extra), HOST, folder=tmp_path), fake.input_sets(1), timeout=0.2)


@needs_gcc
def test_compiler_and_linker_errors_are_coded(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"E3002 the compiler rejected tiny.c: .*undeclared"):
        prepare(fake.tiny(extra="x = 1;"), HOST, folder=tmp_path).image()
    missing = fake.tiny(extra="tiny_more();", kernel_prototypes="void tiny_more(void);")
    with pytest.raises(ToolchainError, match=r"E3003 the linker failed: .*tiny_more"):
        prepare(missing, HOST, folder=tmp_path).image()


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        ([], "no input set"),
        ([[np.zeros(8, np.int8)]], "set 0 has 1 arrays, but the model has 2 inputs"),
        ([[np.zeros(8, np.int16), np.zeros(8, np.int16)]], 'input 0 "a".* got int16.8., expected int8.8.'),
        ([[np.zeros(7, np.int8), np.zeros(8, np.int16)]], "got int8.7."),
    ],
)
def test_wrong_inputs(tmp_path: Path, sets: list[list[np.ndarray]], message: str) -> None:
    with pytest.raises(UsageError, match=f"E5022.*{message}"):
        run(prepare(fake.tiny(), HOST, folder=tmp_path), sets)


def test_tools_are_found_or_explained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not have_tool("gcc")
    for name in known_tools():
        with pytest.raises(ToolchainError, match=f"E3001 {name} is not on PATH; on Debian: apt-get install"):
            find_tool(name)
        assert how_to_get(name).startswith("apt-get install")
    monkeypatch.setenv("AOT_QEMU_SYSTEM_ARM", "/nowhere/qemu")
    with pytest.raises(ToolchainError, match="is not at /nowhere/qemu"):
        find_tool("qemu-system-arm")


def _sized(*, workspace: int, constants: int) -> dict:
    metadata = copy.deepcopy(dict(fake.tiny().metadata))
    metadata["workspace"]["size"], metadata["constants"]["size"] = workspace, constants
    return metadata


def test_too_large_is_refused_with_both_numbers(tmp_path: Path) -> None:
    artifact = dataclasses.replace(fake.tiny(), metadata=_sized(workspace=20000, constants=300000))
    with pytest.raises(TargetError) as caught:
        prepare(artifact, load_board("microbit"), folder=tmp_path)
    texts = [str(p) for p in caught.value.problems]
    assert texts[0].startswith("E2010 workspace of 20,000 bytes does not fit; free bytes: RAM 14,")
    assert texts[1].startswith("E2011 constants of 300,000 bytes do not fit; free bytes: FLASH 262,144")
    assert not list(tmp_path.iterdir())


def test_regions_are_taken_in_order() -> None:
    board = load_board("mps3-an547")
    small = choose_places(board, _sized(workspace=400_000, constants=1_000_000))
    large = choose_places(board, _sized(workspace=600_000, constants=3_000_000))
    assert (small.workspace, small.constants) == ("DTCM", "SSRAM")
    assert (large.workspace, large.constants) == ("SRAM", "DDR")
