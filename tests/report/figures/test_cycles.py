"""Estimated cycles: the table, pairing of loads, taken branches; counts and loops with known cycles in QEMU."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from aot.driver.build import build
from aot.micro.board import load_board
from aot.micro.build.project import prepare
from aot.micro.run.runner import run
from aot.report.figures.attribution import attribute
from aot.report.figures.cycles import Instruction, Profile, base_cycles, build_plugin, can_pair, estimate, profile_cycles
from aot.report.measure.inputs import rule_sets
from aot.target.cpu import CORES, Timing

DIGITS = Path(__file__).resolve().parent.parent.parent.parent / "examples" / "digits" / "digits.tflite"


def timings(core: str) -> Timing:
    found = CORES[f"cortex-{core}"].timing
    assert found is not None
    return found


M0, M3, M4, M7, M33, M55 = (timings(c) for c in ("m0", "m3", "m4", "m7", "m33", "m55"))


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
        ("bx", "lr", 3, 2, 2),
        ("b", "100 <f>", 3, 2, 2),
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
        ("smlal", "r0, r1, r2, r3", 5, 1),
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


def spent(text: str, core: Timing, *, rounds: int = 1) -> int:
    """Cycles of straight code, or, with `rounds`, of a loop whose last line branches back; one instruction a line."""
    code, address = {}, 0
    for line in text.strip().splitlines():
        name, _, operands = line.strip().partition(" ")
        wide = name.endswith(".w")
        code[address] = Instruction(name.removesuffix(".w"), operands, 4 if wide else 2)
        address += 4 if wide else 2
    last = max(code)
    counts = {a: (rounds, rounds - 1 if a == last and rounds > 1 else 0) for a in code}
    return sum(estimate(code, counts, core).values())


@pytest.mark.parametrize(
    ("text", "cycles"),
    [
        ("ldr r0, [r1]\nldr r1, [r2]", 3),
        ("ldr r0, [r1, r2]\nstr r0, [r3, #20]", 3),
        ("ldr r0, [r1, r2]\nstr r1, [r3, r2]", 3),
        ("ldr r0, [r1, r5]\nldr r1, [r2]\nldr r2, [r3, #4]", 4),
        ("ldr r0, [r1]\nldr r2, [r0]", 4),
        ("ldr r0, [r1], #4\nldr r2, [r1], #4", 4),
        ("str r0, [r1]\nldr r2, [r1]", 3),
        ("adds r0, r0, r1\nldr r2, [r3]", 3),
    ],
)
def test_pairs_of_the_manual(text: str, cycles: int) -> None:
    """The first four are the optimised examples of the M3's and M4's manuals, section Load/store timings."""
    assert spent(text, M4) == spent(text, M3) == cycles


# Loops of three rounds, measured with the cycle counter of an STM32 with a Cortex-M4 (docs/cycles.md): (start, loop, cycles).
MEASURED = {
    "narrow, across a word": (("mov r2, r0", "mov.w r0, #1"), ("add r0, r2", "sub.w r1, #1", "cmp r1, #0", "bne 6 <f>"), 16),
    "wide, across a word": (("mov r2, r0", "mov.w r0, #1"), ("mul.w r0, r2", "sub.w r1, #1", "cmp r1, #0", "bne 6 <f>"), 19),
}


@pytest.mark.parametrize("name", MEASURED)
def test_measured_loops(name: str) -> None:
    start, loop, cycles = MEASURED[name]
    code, address, counts = {}, 0, {}
    for line in (*start, *loop):
        mnemonic, _, operands = line.partition(" ")
        code[address] = Instruction(mnemonic.removesuffix(".w"), operands, 4 if mnemonic.endswith(".w") else 2)
        counts[address] = (1 if line in start else 3, 2 if mnemonic == "bne" else 0)
        address += code[address].width
    assert sum(estimate(code, counts, M4).values()) == pytest.approx(cycles, rel=0.15)


@pytest.mark.parametrize(
    ("text", "m4", "m7", "m33", "m55"),
    [
        ("adds r0, r0, r1\nadds r2, r2, r3", 2, 1, 1, 1),
        ("adds r0, r0, r1\nadds r2, r2, r0", 2, 2, 2, 2),
        ("adds r0, r0, r1\nadds r2, r2, r3\nadds r4, r4, r5", 3, 2, 2, 2),
        ("add.w r8, r8, r1\nadd.w r9, r9, r3", 2, 1, 2, 2),
        ("ldr r0, [r1]\nldr r2, [r3]", 3, 1, 2, 2),
        ("ldr r0, [r1]\nadds r0, r0, r2", 3, 3, 3, 3),
        ("ldr r0, [r1]\nadds r3, r3, r2", 3, 1, 1, 1),
        ("smlad.w r0, r1, r2, r0\nsmlad.w r3, r1, r4, r3", 2, 2, 2, 2),
        ("smlad.w r0, r1, r2, r0\nadds r3, r3, r4", 2, 1, 2, 2),
        ("adds r3, r3, r4\nsmlad.w r0, r1, r2, r0", 2, 2, 2, 2),
        ("add.w r0, r1, r2, lsl #2\nsxtb r3, r4", 2, 2, 2, 2),
        ("ldrd.w r0, r1, [r2]", 3, 1, 2, 1),
        ("push {r4, r5, r6, lr}", 5, 2, 4, 2),
    ],
)
def test_cores_that_issue_two(text: str, m4: int, m7: int, m33: int, m55: int) -> None:
    assert [spent(text, c) for c in (M4, M7, M33, M55)] == [m4, m7, m33, m55]


@pytest.mark.parametrize(
    ("text", "cycles"),
    [
        ("vldrb.8.w q0, [r0]\nvmladava.s8.w lr, q0, q1", 3),
        ("vadd.i32.w q0, q1, q2\nvmul.i32.w q3, q4, q5", 4),
        ("adds r0, r0, r1\nvadd.i32.w q0, q1, q2\nadds r0, r0, r1", 4),
        ("vldrb.8.w q0, [r0]\nvmladava.s8.w lr, q0, q1\nvldrb.8.w q1, [r1]\nvmladava.s8.w lr, q0, q1", 5),
        ("vadd.f32.w s0, s1, s2", 1),
    ],
)
def test_vector_instructions_overlap(text: str, cycles: int) -> None:
    assert spent(text, M55) == cycles


def test_a_predicted_loop_costs_no_refill() -> None:
    loop = "subs r1, #1\nbne 0 <f>"
    assert [spent(loop, c, rounds=100) for c in (M0, M4, M7, M33)] == [398, 299, 100, 199]


def test_a_branch_ends_a_pair() -> None:
    branch, add = Instruction("bne", "100 <f>"), Instruction("adds", "r0, r0, r1")
    assert can_pair(add, branch, M7)
    assert not can_pair(branch, add, M7)
    assert not can_pair(add, Instruction("bl", "100 <g>"), M7)


@pytest.mark.parametrize(
    ("operands", "count"), [("{r0}", 1), ("{r4-r7, lr}", 5), ("r0!, {r1, r3}", 2), ("{d8-d11}", 8), ("r0", 0)]
)
def test_registers(operands: str, count: int) -> None:
    assert Instruction("ldmia", operands).words == count


def test_estimate_of_a_loop() -> None:
    code = {
        0: Instruction("movs", "r3, #100"),
        2: Instruction("subs", "r3, #1"),
        4: Instruction("bne", "2 <f>"),
        6: Instruction("bx", "lr"),
        8: Instruction("nop", ""),
    }
    counts = {0: (1, 0), 2: (100, 0), 4: (100, 99), 6: (1, 1)}
    assert estimate(code, counts, M4) == {0: 1, 2: 100, 4: 100 + 99, 6: 2}
    code[2] = Instruction("subs", "r3, #1", 4)  # a wide target across a word's boundary is fetched in two parts
    assert estimate(code, counts, M4)[4] == 100 + 99 * 2


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
    source = Path(__file__).resolve().parent.parent.parent.parent / "aot" / "report" / "figures" / "cycles.c"
    subprocess.run(
        ["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-Wconversion", "-fsyntax-only", str(source)], check=True, timeout=600
    )


LOAD, NOP = "ldr r2, [sp]\n ", "nop\n "
LOOPS = {
    "branches": ("1: subs r1, r1, #1\n bne 1b\n", {"mps2-an386": 299, "microbit": 398}),
    "loads": (f"1: {3 * LOAD} subs r1, r1, #1\n bne 1b\n", {"mps2-an386": 699, "microbit": 998}),
    "single loads": (f"1: {2 * (LOAD + NOP)} subs r1, r1, #1\n bne 1b\n", {"mps2-an386": 899, "microbit": 998}),
    "stack": ("1: push {r2, r3}\n pop {r2, r3}\n subs r1, r1, #1\n bne 1b\n", {"mps2-an386": 899, "microbit": 998}),
}  # fmt: skip
"""100 rounds, and the cycles that the manuals give: 100 * body + 99 * P; P is 1 on the M4 (16-bit target) and 2 on the M0"""


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
        profile = profile_cycles(project, project.image("measure"), sets, functions=frozenset(["digits_run"]), timeout=600)
        assert profile is not None
        found[name] = profile.total
    for name, (_, cycles) in LOOPS.items():
        assert found[name] - found["none"] == cycles[board], name


@pytest.mark.qemu
@pytest.mark.skipif(shutil.which("qemu-system-arm") is None, reason="qemu-system-arm is not installed")
@pytest.mark.parametrize("board", ["mps2-an386", "microbit", "mps2-an500", "mps2-an505", "mps3-an547"])
def test_the_plugin_counts_what_the_board_counts(board: str) -> None:
    place = load_board(board)
    artifact = build(DIGITS, target=place.cpu)
    project = prepare(artifact, place)
    sets = rule_sets(artifact.metadata["inputs"], 1).inputs
    used = {s.name for s in attribute(project, project.model_image()) if s.layers and s.group in ("kernels", "runtime")}
    functions = frozenset({"digits_run", *used})
    profile = profile_cycles(project, project.image("measure"), sets[0], functions=functions, timeout=600)
    assert profile is not None
    exact = run(project, sets).instructions
    assert exact is not None
    counted = sum(profile.instructions.values())
    # the call is the harness's, which on the M0 uses libgcc's multiplication itself, for some 300 instructions
    assert abs(exact - counted) <= (400 if board == "microbit" else 8 + exact / 1000)
    assert 0.5 * counted < profile.total < 2 * exact


def _apart(texts: tuple[str, ...], core: Timing) -> str:
    """Cycles of each text as the page writes them; of a text of two lines those of the second."""
    found = []
    for text in texts:
        before, _, last = text.rpartition("\n")
        lines = [Instruction(*line.split(" ", 1)) for line in (before, last) if line]
        found.append(base_cycles(lines[-1], lines[0] if before else None, core))
    return " / ".join(map(str, found if len(set(found)) > 1 or len(texts) < 3 else found[:1]))


def _transfers(core: Timing) -> str:
    spent = [base_cycles(Instruction("ldm", f"r0, {{r1-r{n}}}"), None, core) - n for n in (1, 2, 5)]
    assert len(set(spent)) == 1
    assert base_cycles(Instruction("ldrd", "r0, r1, [r2]"), None, core) == spent[0] + 2
    return f"{spent[0]}+N"


_PAGE = {
    "data processing, MUL": lambda c: _apart(("adds r0, r1, r2",), c),
    "MLA, MLS": lambda c: _apart(("mla r0, r1, r2, r3",), c),
    "SMULL, UMULL / SMLAL, UMLAL": lambda c: _apart(("smull r0, r1, r2, r3", "umlal r0, r1, r2, r3"), c),
    "SMLAD and other DSP": lambda c: _apart(("smlad r0, r1, r2, r3",), c),
    "SDIV, UDIV (2 to 12)": lambda c: _apart(("sdiv r0, r1, r2",), c),
    "LDR alone / after an independent load": lambda c: _apart(("ldr r0, [r1]", "ldr r0, [r1]\nldr r2, [r3]"), c),
    "LDR that updates its base register": lambda c: _apart(("ldr r0, [r1], #4",), c),
    "STR with immediate / register offset / the latter after a load": lambda c: _apart(
        ("str r0, [r1, #4]", "str r0, [r1, r2]", "ldr r4, [r5]\nstr r0, [r1, r2]"), c
    ),
    "LDM, STM, PUSH, POP of N; LDRD, STRD": _transfers,
    "conditional branch, not taken / taken": lambda c: f"1 / {1 + c.taken}",
    "the same to a 32-bit instruction that crosses a word boundary": lambda c: f"1 / {1 + c.taken + c.wide_target}",
    "BL": lambda c: _apart(("bl 100 <f>",), c),
    "VADD, VMUL / VMLA / VDIV, VSQRT": lambda c: _apart(("vmul.f32 s0, s1, s2", "vmla.f32 s0, s1, s2", "vdiv.f32 s0, s1, s2"), c),
}


def test_the_page_has_the_table_of_the_model() -> None:
    """docs/cycles.md: a cell is empty where the core has no such instruction."""
    page = (DIGITS.parents[2] / "docs" / "cycles.md").read_text(encoding="utf-8")
    table = page.partition("| | M0 | M0+ | M3 | M4 |")[2].partition("\n\n")[0].splitlines()[2:]
    rows = {cells[0]: cells[1:] for cells in ([c.strip() for c in line.strip("|").split("|")] for line in table)}
    assert set(rows) == set(_PAGE)
    cores = [timings(name) for name in ("m0", "m0plus", "m3", "m4")]
    wrong = [(row, cell, _PAGE[row](c)) for row, cells in rows.items() for cell, c in zip(cells, cores, strict=True) if cell]
    assert [(row, cell, made) for row, cell, made in wrong if cell != made] == []


@pytest.mark.parametrize(
    ("code", "known", "model"),
    [
        (c, int(k), int(m))
        for c, k, m in re.findall(
            r"^\| `(LDR.*?)`.*? \| (\d+) \| (\d+) \|$",
            (DIGITS.parents[2] / "docs" / "cycles.md").read_text(encoding="utf-8"),
            re.MULTILINE,
        )
    ],
)
def test_the_page_has_what_the_model_makes_of_pairs(code: str, known: int, model: int) -> None:
    """Its registers are left out there; here each access has its own."""
    lines = []
    for i, word in enumerate(code.split("; ")):
        mnemonic, _, form = word.partition(" ")
        operand = "r5" if "r,r" in form else "#20"
        lines.append(f"{mnemonic.lower()} r{i}, [r{6 + i}, {operand}]")
    assert spent("\n".join(lines), M4) == model
    assert abs(model - known) <= 0.15 * known
