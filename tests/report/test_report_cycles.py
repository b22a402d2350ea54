"""Estimated cycles: the table, pairing of loads, taken branches; counts and loops with known cycles in QEMU."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from aot.build import build
from aot.micro.board import load_board
from aot.micro.project import prepare
from aot.micro.runner import run
from aot.report.attribution import attribute
from aot.report.report_cycles import TIMINGS, Instruction, Profile, base_cycles, build_plugin, estimate, profile_cycles, registers
from aot.report.sets import rule_sets

DIGITS = Path(__file__).resolve().parent.parent.parent / "examples" / "digits" / "digits.tflite"
M0, M3, M4 = (TIMINGS[f"cortex-{c}"] for c in ("m0", "m3", "m4"))


@pytest.mark.parametrize(
    ("mnemonic", "operands", "m0", "m3", "m4"),
    [
        ("adds", "r0, r1, r2", 1, 1, 1),
        ("ldr", "r0, [r1, #4]", 2, 2, 2),
        ("ldrsb", "r0, [r1, r2]", 2, 2, 2),
        ("str", "r0, [r1, #4]", 2, 1, 1),
        ("strb", "r0, [r1, r2]", 2, 2, 2),
        ("push", "{r4, r5, r6, lr}", 5, 5, 5),
        ("pop", "{r4, r5, pc}", 7, 6, 6),
        ("ldmia", "r0!, {r1-r4}", 5, 5, 5),
        ("bl", "100 <f>", 4, 3, 3),
        ("bx", "lr", 3, 3, 3),
        ("b", "100 <f>", 3, 3, 3),
        ("bne", "100 <f>", 1, 1, 1),
    ],
)
def test_cycles_of_an_instruction(mnemonic: str, operands: str, m0: int, m3: int, m4: int) -> None:
    assert [base_cycles(Instruction(mnemonic, operands), None, t) for t in (M0, M3, M4)] == [m0, m3, m4]


@pytest.mark.parametrize(
    ("mnemonic", "operands", "m3", "m4"),
    [
        ("mla", "r0, r1, r2, r3", 2, 1),
        ("smull", "r0, r1, r2, r3", 4, 1),
        ("smlad", "r0, r1, r2, r3", 1, 1),
        ("sdiv", "r0, r1, r2", 6, 6),
        ("ldrd", "r0, r1, [r2]", 3, 3),
        ("cbz", "r0, 100 <f>", 1, 1),
        ("bics", "r0, r1", 1, 1),
        ("vdiv.f32", "s0, s1, s2", 14, 14),
        ("vmla.f32", "s0, s1, s2", 3, 3),
        ("vldr", "s0, [r0]", 2, 2),
        ("vpush", "{d8-d9}", 5, 5),
    ],
)
def test_cycles_of_thumb_2(mnemonic: str, operands: str, m3: int, m4: int) -> None:
    assert [base_cycles(Instruction(mnemonic, operands), None, t) for t in (M3, M4)] == [m3, m4]


def test_a_load_behind_an_access_is_paired() -> None:
    load, add = Instruction("ldr", "r0, [r1]"), Instruction("adds", "r0, r0, r1")
    assert [base_cycles(load, p, M4) for p in (None, add, load, Instruction("str", "r0, [r1]"))] == [2, 2, 1, 1]
    assert base_cycles(load, load, M0) == 2


@pytest.mark.parametrize(
    ("operands", "count"), [("{r0}", 1), ("{r4-r7, lr}", 5), ("r0!, {r1, r3}", 2), ("{d8-d11}", 8), ("r0", 0)]
)
def test_registers(operands: str, count: int) -> None:
    assert registers(operands) == count


def test_estimate_of_a_loop() -> None:
    code = {
        0: Instruction("movs", "r3, #100"),
        2: Instruction("subs", "r3, #1"),
        4: Instruction("bne", "2 <f>"),
        6: Instruction("bx", "lr"),
        8: Instruction("nop", ""),
    }
    counts = {0: (1, 0), 2: (100, 0), 4: (100, 99), 6: (1, 1)}
    assert estimate(code, counts, M4) == {0: 1, 2: 100, 4: 100 + 99 * 2, 6: 3}


def test_a_layer_gets_its_share_of_a_shared_function() -> None:
    profile = Profile({"f": 300, "g": 100, "h": 7}, {"f": 450, "g": 250, "h": 7})
    assert profile.total == 707
    assert profile.of(["f"], 100) == 150
    assert profile.of(["f", "g", "unknown"], 200) == 350
    assert profile.of(["unknown"], 100) is None
    assert profile.of(["f"], None) is None


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_the_plugin_builds_without_warnings(tmp_path: Path) -> None:
    found = build_plugin(tmp_path)
    assert found is not None
    assert found.stat().st_size > 0
    source = Path(__file__).resolve().parent.parent.parent / "aot" / "report" / "report_cycles.c"
    subprocess.run(
        ["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-Wconversion", "-fsyntax-only", str(source)], check=True, timeout=60
    )


LOAD, NOP = "ldr r2, [sp]\n ", "nop\n "
LOOPS = {
    "branches": ("1: subs r1, r1, #1\n bne 1b\n", {"mps2-an386": 398, "microbit": 398}),
    "loads": (f"1: {3 * LOAD} subs r1, r1, #1\n bne 1b\n", {"mps2-an386": 798, "microbit": 998}),
    "single loads": (f"1: {2 * (LOAD + NOP)} subs r1, r1, #1\n bne 1b\n", {"mps2-an386": 998, "microbit": 998}),
    "stack": ("1: push {r2, r3}\n pop {r2, r3}\n subs r1, r1, #1\n bne 1b\n", {"mps2-an386": 998, "microbit": 998}),
}  # fmt: skip
"""100 rounds, and the cycles that the manuals give: with P = 2, (100 * body) + 99 * 3 + 1"""


@pytest.mark.qemu
@pytest.mark.skipif(shutil.which("qemu-system-arm") is None, reason="qemu-system-arm is not installed")
@pytest.mark.parametrize("board", ["mps2-an386", "microbit"])
def test_loops_with_known_cycles(board: str) -> None:
    place = load_board(board)
    artifact = build(DIGITS, target=place.cpu)
    sets = rule_sets(artifact.metadata["inputs"], 1).inputs[0]
    found = {}
    for name, body in {"none": "", **{k: v[0] for k, v in LOOPS.items()}}.items():
        text = f"movs r1, #100\\n{body}".replace("\n", "\\n")
        planted = f'  __asm__ volatile(".syntax unified\\n{text}" ::: "r1", "r2", "r3", "cc", "memory");\n  return AOT_OK;'
        source = artifact.files["digits.c"].replace("  return AOT_OK;", planted)
        project = prepare(replace(artifact, files={**artifact.files, "digits.c": source}), place)
        profile = profile_cycles(project, project.image("measure"), sets, functions=frozenset(["digits_run"]), timeout=60)
        assert profile is not None
        found[name] = profile.total
    for name, (_, cycles) in LOOPS.items():
        assert found[name] - found["none"] == cycles[board], name


@pytest.mark.qemu
@pytest.mark.skipif(shutil.which("qemu-system-arm") is None, reason="qemu-system-arm is not installed")
@pytest.mark.parametrize("board", ["mps2-an386", "microbit", "mps2-an500"])
def test_the_plugin_counts_what_the_board_counts(board: str) -> None:
    place = load_board(board)
    artifact = build(DIGITS, target=place.cpu)
    project = prepare(artifact, place)
    sets = rule_sets(artifact.metadata["inputs"], 1).inputs
    used = {s.name for s in attribute(project, project.model_image()) if s.layers and s.group in ("kernels", "runtime")}
    functions = frozenset({"digits_run", *used})
    profile = profile_cycles(project, project.image("measure"), sets[0], functions=functions, timeout=60)
    if place.cpu not in TIMINGS:
        assert profile is None
        return
    assert profile is not None
    exact = run(project, sets).instructions
    assert exact is not None
    counted = sum(profile.instructions.values())
    assert abs(exact - counted) <= 8 + exact / 1000  # the call is the harness's, which itself uses libgcc's multiplication on M0
    assert counted < profile.total < 2 * exact
