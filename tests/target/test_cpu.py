"""A core of a known instruction set is one row of the table: whatever depends on the core follows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import aot
from aot.micro.board import load_board, parse_board
from aot.micro.draft import draft, read_linker_script
from aot.micro.new.library import arm_name, processor, rust_target, target_of
from aot.micro.run.zephyr import cpu_of
from aot.report.figures.cycles import estimate_text, timing_of
from aot.target.cpu import CORES, Core, architecture_of
from tests.cli.helper import Cli
from tests.micro.draft.test_linker_script import CUBE

MODEL = Path(__file__).parents[1] / "models" / "net_kws_dscnn.tflite"


@pytest.fixture
def new_core(monkeypatch: pytest.MonkeyPatch) -> Core:
    """A Cortex-M52: the instruction set of an M55."""
    like = CORES["cortex-m55"]
    flags = ("-march=armv8.1-m.main+dsp+mve.fp", "-mthumb", "-mfloat-abi=hard")
    assert like.timing is not None
    core = replace(like, name="cortex-m52", gcc_flags=flags, timing=replace(like.timing, timed_as=like.name))
    monkeypatch.setitem(CORES, core.name, core)
    return core


def test_models_compile_as_for_the_core_that_is_alike(new_core: Core) -> None:
    one, other = (aot.build(MODEL, target=name) for name in (new_core.name, "cortex-m55"))
    assert one.files["net_kws_dscnn_kernels.c"].replace("cortex-m52", "cortex-m55") == other.files["net_kws_dscnn_kernels.c"]
    assert one.files["net_kws_dscnn_params.c"].replace("cortex-m52", "cortex-m55") == other.files["net_kws_dscnn_params.c"]


def test_lists_and_estimates_have_it(new_core: Core, capsys: pytest.CaptureFixture[str]) -> None:
    assert "cortex-m52" in Cli(capsys)("targets").out
    assert timing_of("cortex-m52+nomve") == new_core.timing
    assert estimate_text("cortex-m52", "12") == "12 cycles, estimated as on a Cortex-M55"


def test_boards_may_have_it(new_core: Core) -> None:
    text = draft(read_linker_script(CUBE), name="b", source="b.ld", cpu=new_core.name)
    board = parse_board(f'caches = ["instruction"]\n{text}', "b/board.toml")
    assert (board.cpu, board.flags, board.caches) == (new_core.name, new_core.gcc_flags, ("instruction",))
    assert board.gdb is not None
    assert board.gdb.counter == "dwt"


def test_projects_know_it(new_core: Core) -> None:
    assert target_of("zephyr", new_core.name) == "cortex-m3"
    assert target_of("make", new_core.name) == new_core.name
    assert arm_name(new_core.name) == "M52"


def test_what_follows_from_the_architecture() -> None:
    """As packs, rustc and Zephyr have it, also of cores that a compiler knows and for which there is no row."""
    assert [arm_name(c) for c in ("cortex-m0plus", "cortex-m4+nofpu", "cortex-m35p", "mine")] == ["M0+", "M4", "M35P", "M3"]
    assert [architecture_of(c) for c in ("cortex-m7", "cortex-m23", "cortex-m55+nomve", "z80")] == [
        "Armv7E-M", "Armv8-M Baseline", "Armv8.1-M", "",
    ]  # fmt: skip
    triples = {
        "cortex-m1": "thumbv6m-none-eabi",
        "cortex-m23": "thumbv8m.base-none-eabi",
        "cortex-m55": "thumbv8m.main-none-eabihf",
    }
    assert {c: rust_target((f"-mcpu={c}", "-mfloat-abi=hard")) for c in triples} == triples
    assert processor(("-mcpu=cortex-m33", "-mfloat-abi=soft")) == {"fpu": "off", "trustzone": "off"}
    assert processor(load_board("microbit").flags) == {}
    targets = {"cortex-m4": "cortex-m4+nofpu", "cortex-m85": "cortex-m3", "cortex-m0": "cortex-m0", "cortex-m3": "cortex-m3"}
    assert {c: target_of("zephyr", c) for c in targets} == targets
    assert cpu_of("CONFIG_CPU_CORTEX_M0PLUS=y\n") == "cortex-m0plus"
