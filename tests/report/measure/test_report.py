"""Reports of real models: every byte has an owner, the schema holds, and the same work gives the same bytes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from aot.driver.build import build
from aot.driver.reading import NamedBytes
from aot.executor.artifact import Artifact
from aot.micro.board import Machine, load_board
from aot.micro.build.image import check_image
from aot.micro.build.project import Project, prepare
from aot.report.figures.attribution import GROUPS, attribute, berkeley, group_of, sections_of, shares
from aot.report.figures.schema import load_schema
from aot.report.figures.size import choice_rows, compile_report, next_faster, next_lines
from aot.report.measure.divergence import histogram
from aot.report.measure.gate import check_comparable, check_report, compare
from aot.report.measure.inputs import golden_sets, open_npz, rule_sets
from aot.report.measure.report import Job, bundle, make_report, run_jobs, to_text
from aot.report.measure.verify import verify
from aot.report.render.pages import report_html, report_markdown
from aot.system.executors import local
from tests.micro.run.test_gdb import gdb_board
from tests.report.measure.test_verify import broken
from tests.report.sample_report import FAILURE, host_sample, sample
from tests.scale import cases

ROOT = Path(__file__).resolve().parent.parent.parent.parent
DIGITS = ROOT / "examples" / "digits" / "digits.tflite"
NETS = sorted(p.stem for p in (ROOT / "tests" / "models").glob("net_*.tflite"))

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
needs_arm = pytest.mark.skipif(shutil.which("arm-none-eabi-gcc") is None, reason="arm-none-eabi-gcc is not installed")


@cache
def compiled(path: Path, cpu: str) -> Artifact:
    return build(path, target=cpu)


def project_of(board: str, *, path: Path = DIGITS, artifact: Artifact | None = None) -> Project:
    place = load_board(board)
    return prepare(artifact or compiled(path, place.cpu), place)


def report_of(project: Project, *, path: Path = DIGITS) -> dict[str, Any]:
    sets = rule_sets(project.artifact.metadata["inputs"], 2)
    return dict(make_report(path.read_bytes(), project.artifact, project, sets))


def validate(*reports: dict[str, Any]) -> None:
    """Against the published schema, as it comes back from a file."""
    data = json.loads(to_text(bundle(reports, [FAILURE])))
    jsonschema.Draft202012Validator(load_schema()).validate(data)


def arm_size(elf: Path) -> dict[str, int]:
    """What arm-none-eabi-size prints."""
    done = subprocess.run(["arm-none-eabi-size", elf.name], cwd=elf.parent, capture_output=True, text=True, check=True)
    return dict(zip(("text", "data", "bss"), map(int, done.stdout.splitlines()[1].split()), strict=False))


def check_sums(report: dict[str, Any], project: Project) -> None:
    """Every byte is attributed once, whichever way it is counted."""
    flash, firmware = report["flash"], report["firmware"]
    for block, elf in ((flash, project.model_image()), (firmware, project.image("measure"))):
        size = arm_size(elf)
        assert block["size"] == size
        assert block["bytes"] == size["text"] + size["data"] == sum(block["groups"].values())
        assert block["groups"]["other"] < block["bytes"] / 100
    assert sum(s["bytes"] for s in flash["symbols"]) == flash["bytes"]
    for column, group in (("code", "kernels"), ("weights", "weights"), ("tables", "tables")):
        assert sum(row[column] for row in flash["layers"]) == flash["groups"][group], column
    assert flash["bytes"] == report["totals"]["code"] + report["totals"]["constants"] == check_image(project).flash


def test_the_schema_is_a_schema_and_takes_the_samples() -> None:
    jsonschema.Draft202012Validator.check_schema(load_schema())
    validate(sample(), host_sample())


def test_the_report_of_a_compilation_has_a_schema_of_its_own() -> None:
    data = json.loads(to_text(compile_report(compiled(DIGITS, "host").metadata)))
    jsonschema.Draft202012Validator(load_schema("aot-compile-1")).validate(data)
    for schema in ("aot-compile-1", "aot-verify-1"):
        jsonschema.Draft202012Validator.check_schema(load_schema(schema))


@pytest.mark.parametrize("path", ["totals.flash", "flash.groups", "layers", "fingerprint.outputs.crc32", "verdict.exact"])
def test_the_schema_notices_what_is_missing(path: str) -> None:
    report = sample()
    place: Any = report
    *way, last = path.split(".")
    for step in way:
        place = place[step]
    place["more"] = place.pop(last)
    with pytest.raises(jsonschema.ValidationError):
        validate(report)


@needs_gcc
def test_a_report_of_the_host() -> None:
    report = report_of(project_of("host"))
    validate(report)
    assert report["verdict"]["exact"]
    assert report["flash"] is None
    assert report["totals"]["instructions"] is None
    assert report["totals"]["workspace"] == report["plan"]["size"] > 0
    again = report_of(project_of("host"))
    assert to_text(bundle([report])) == to_text(bundle([again]))
    check_comparable({"x": json.loads(to_text(report))}, {"x": again}, allow=())


@needs_arm
def test_every_byte_of_the_digits_has_an_owner() -> None:
    project = project_of("mps2-an386")
    elf = project.model_image()
    symbols = attribute(project, elf)
    assert berkeley(sections_of(elf)) == arm_size(elf)
    assert sum(s.bytes for s in symbols) == sum(s.size for s in sections_of(elf) if s.in_flash)
    assert {s.group for s in symbols} <= set(GROUPS) - {"startup"}
    used = {i for s in symbols if s.group in ("kernels", "weights") for i in s.layers}
    assert used == {layer["index"] for layer in project.artifact.metadata["layers"]}
    assert all(s.layers for s in symbols if s.group in ("kernels", "weights", "tables"))
    assert {s.group for s in attribute(project, project.image("measure"))} >= {"startup", "main", "runtime"}


@needs_arm
def test_runtime_functions_list_the_layers_that_call_them() -> None:
    project = project_of("microbit")
    (multiply,) = [s for s in attribute(project, project.model_image()) if s.name == "__aeabi_lmul"]
    assert multiply.group == "runtime"
    assert multiply.file == "libgcc.a(_muldi3.o)"
    assert 4 in multiply.layers, "rounds with a product of 64 bits"
    assert 0 not in multiply.layers, "has a kernel with products of 16 bits"


@needs_arm
def test_a_byte_more_of_constants_is_found() -> None:
    artifact = compiled(DIGITS, "cortex-m4")
    source = artifact.files["digits_params.c"]
    table = next(line for line in source.splitlines() if "digits_exps_" in line and "[256]" in line)
    longer = source.replace(table, table.replace("[256]", "[257]"))
    others = {n: t.replace("digits_exps_5[256]", "digits_exps_5[257]") for n, t in artifact.files.items()}
    planted = replace(artifact, files=others | {"digits_params.c": longer})
    sizes = []
    for project in (project_of("mps2-an386"), project_of("mps2-an386", artifact=planted)):
        found = {s.name: s.bytes for s in attribute(project, project.model_image())}
        sizes.append(found["digits_exps_5"])
    assert sizes[1] - sizes[0] == 4


@pytest.mark.parametrize(
    ("symbol", "file", "size", "group"),
    [
        ("net_conv2d_0", "net_kernels.c", 8, "kernels"),
        ("net_params_0", "net_params.c", 256, "weights"),
        ("net_tensor_1", "net_params.c", 8, "weights"),
        ("net_params_0_1", "net_params.c", 8, "weights"),
        ("net_exps_5", "net_params.c", 1024, "tables"),
        ("net_positions_5", "net_params.c", 8, "tables"),
        ("net_table_5", "net_params.c", 256, "tables"),
        ("net_table_5_1", "net_params.c", 65536, "weights"),
        ("net_run", "net.c", 8, "main"),
        ("memmove", "crt/src/memory.c", 8, "runtime"),
        ("__aeabi_ldivmod", "libgcc.a(_aeabi_ldivmod.o)", 8, "runtime"),
        ("Reset_Handler", "crt/src/startup.c", 8, "startup"),
        ("main", "main.c", 8, "startup"),
        ("[.text]", "", 2, "other"),
    ],
)
def test_groups(symbol: str, file: str, size: int, group: str) -> None:
    assert group_of(symbol, file, model="net", size=size) == group


def test_shares_add_up() -> None:
    assert shares(10, (2, 5, 7)) == {2: 4, 5: 3, 7: 3}
    assert shares(1, (0, 1)) == {0: 1, 1: 0}


def test_next_faster_candidate() -> None:
    def candidate(kernel: str, instructions: int, code: int) -> dict[str, Any]:
        return {"kernel": kernel, "instructions": instructions, "constants": 100, "code": code, "scratch": 8}

    candidates = [candidate("fast", 50, 900), candidate("middle", 80, 500), candidate("small", 100, 200)]
    assert next_faster({"kernel": "small", "candidates": candidates}) == {
        "kernel": "middle", "instructions": -20, "flash": 300, "scratch": 0,
    }  # fmt: skip
    assert next_faster({"kernel": "fast", "candidates": candidates}) is None
    assert next_faster({"kernel": "unknown", "candidates": candidates}) is None
    layer = {"index": 3, "op": "CONV_2D", "kernel": "small", "macs": 9, "constants": 7, "scratch": 8, "output": {"shape": [1, 2]}}
    text = "middle: -20 instructions, +300 B flash, +0 B scratch"
    assert choice_rows([{**layer, "candidates": candidates}]) == [(3, "CONV_2D", "small", 9, 100, 7, 8, "1x2", text)]
    step = next_faster({"kernel": "small", "candidates": candidates})
    lines = next_lines([{**layer, "instructions": 104, "next_faster": step}, {**layer, "next_faster": None}])
    assert lines == [f"L3 CONV_2D 104 instructions: {text}"]


def fake_work(job: Job) -> dict[str, Any]:
    if job.model.path.stem == "broken":
        raise ValueError("planted")
    return sample(job.model.path.stem, job.board)


@pytest.mark.parametrize("processes", [1, 2])
def test_failures_hide_nothing(processes: int) -> None:
    jobs = [Job(NamedBytes(Path(f"{n}.tflite"), b""), b, {}) for n in ("a", "broken", "c") for b in ("host", "mps2-an386")]
    ended: list[tuple[str, bool]] = []
    pool = local(processes)
    reports, failures = run_jobs(
        fake_work, jobs, pool=lambda _: pool, done=lambda j, good: ended.append((j.model.path.stem, good))
    )
    assert [(r["name"], r["board"]) for r in reports] == [(n, b) for n in ("a", "c") for b in ("host", "mps2-an386")]
    assert [(f["model"], f["board"], f["exit_code"]) for f in failures] == [
        ("broken.tflite", "host", 1), ("broken.tflite", "mps2-an386", 1),
    ]  # fmt: skip
    assert failures[0]["problems"][0]["code"] == "E9001"
    assert "ValueError: planted" in failures[0]["problems"][0]["message"]
    assert sorted(ended) == sorted((j.model.path.stem, j.model.path.stem != "broken") for j in jobs)
    jsonschema.Draft202012Validator(load_schema()).validate(json.loads(to_text(bundle(reports, failures))))


def ending_work(job: Job) -> dict[str, Any]:
    if job.model.path.stem == "ends":
        os._exit(9)
    return sample(job.model.path.stem, job.board)


def test_a_process_that_ends_hides_nothing() -> None:
    """What its processes cannot finish fails; what runs on another executor does not."""
    jobs = [Job(NamedBytes(Path(f"{n}.tflite"), b""), b, {}) for n, b in (("ends", "host"), ("good", "mps2-an386"))]
    pools = {"host": local(2), "mps2-an386": local(1)}
    reports, failures = run_jobs(ending_work, jobs, pool=pools.__getitem__, done=lambda j, good: None)
    assert [r["name"] for r in reports] == ["good"]
    assert [(f["model"], f["problems"][0]["code"]) for f in failures] == [("ends.tflite", "E5508")]


@pytest.mark.qemu
@needs_arm
@pytest.mark.parametrize("board", ["mps2-an386", "microbit", "mps3-an547"])
def test_a_report_of_the_digits(board: str) -> None:
    project = project_of(board)
    report = report_of(project)
    validate(report)
    check_sums(report, project)
    assert report["verdict"]["exact"]
    totals = report["totals"]
    assert totals["instructions"] > totals["macs"] / 16 > 0  # a vector has 16 bytes
    assert totals["stack"] <= totals["stack_bound"]
    assert totals["ram"] == totals["workspace"] + totals["stack_bound"] + report["ram"]["state"] + report["ram"]["runtime"]
    spent = sum(x["instructions"] for x in report["layers"])
    assert 0.9 * totals["instructions"] < spent < 1.1 * totals["instructions"]
    assert totals["estimated_cycles"] > totals["instructions"] / 2
    for _ in range(cases(10)):
        assert to_text(bundle([report])) == to_text(bundle([report_of(project)]))


@pytest.mark.qemu
@needs_arm
def test_counted_cycles_stand_beside_estimates() -> None:
    """A board of kind gdb by SysTick as a cycle counter (a cycle is 1.25 instructions), and its twin in the emulator."""
    usual = load_board("mps2-an386")
    board = gdb_board("mps2-an386", counter="systick", hz=25_000_000)
    assert board.gdb is not None
    server = tuple("shift=5,sleep=off" if word.startswith("shift=0") else word for word in board.gdb.server)
    twin = Machine(usual.machine, usual.qemu_cpu, usual.tick)
    board = replace(board, gdb=replace(board.gdb, server=server), tick=Fraction(1), like=twin)
    report = report_of(prepare(compiled(DIGITS, "cortex-m4"), board))
    validate(report)
    totals = report["totals"]
    assert report["verdict"]["exact"]
    assert totals["clock_hz"] == 25_000_000
    assert abs(totals["cycles"] - 0.8 * totals["instructions"]) < 60
    for layer in report["layers"]:
        assert abs(layer["cycles"] - 0.8 * layer["instructions"]) < 40
        assert layer["estimated_cycles"] is None or layer["estimated_cycles"] > layer["instructions"] / 2
    page = report_html([report], [], [])
    assert ">cycles</button>" in page
    assert "cycles, estimated" in page or totals["estimated_cycles"] is None


@pytest.mark.qemu
@needs_arm
@pytest.mark.parametrize("name", NETS)
def test_every_byte_of_our_networks_has_an_owner(name: str) -> None:
    path = ROOT / "tests" / "models" / f"{name}.tflite"
    project = project_of("mps2-an386", path=path)
    report = report_of(project, path=path)
    validate(report)
    check_sums(report, project)


@pytest.mark.qemu
@needs_arm
def test_one_planted_instruction_is_caught_by_the_gate() -> None:
    artifact = compiled(DIGITS, "cortex-m4")
    source = artifact.files["digits.c"]
    assert source.count("  return AOT_OK;") == 1
    planted = source.replace("  return AOT_OK;", '  __asm__ volatile("nop");\n  return AOT_OK;')
    before = report_of(project_of("mps2-an386"))
    worse = report_of(project_of("mps2-an386", artifact=replace(artifact, files={**artifact.files, "digits.c": planted})))
    over = {f.metric: f.value - (f.baseline or 0) for f in check_report(worse, None, before) if f.state == "over"}
    assert over["instructions"] == 1
    better = {f.metric for f in check_report(before, None, worse) if f.state == "improved"}
    assert "instructions" in better


def with_constant(artifact: Artifact, size: int) -> Artifact:
    """The network with a constant of `size` bytes more that its main function refers to."""
    declaration = f"extern const int8_t digits_planted[{size}];\n"
    params = artifact.files["digits_params.c"] + f"\n{declaration}const int8_t digits_planted[{size}] = {{1}};\n"
    use = f'  {declaration}  __asm__ volatile("" : : "r"(digits_planted));\n  return AOT_OK;'
    main = artifact.files["digits.c"].replace("  return AOT_OK;", use)
    return replace(artifact, files={**artifact.files, "digits.c": main, "digits_params.c": params})


@pytest.mark.qemu
@needs_arm
def test_one_planted_byte_is_caught_by_the_gate() -> None:
    """The linker ends .rodata on 8 bytes, so one byte more takes none or 8 of the flash; its symbol tells the byte itself."""
    artifact = compiled(DIGITS, "cortex-m4")
    eight, nine, ten = (report_of(project_of("mps2-an386", artifact=with_constant(artifact, n))) for n in (8, 9, 10))
    over = {f.metric: f.value - (f.baseline or 0) for f in check_report(nine, None, eight) if f.state == "over"}
    assert over == {"constants": 8}
    assert "constants" in {f.metric for f in check_report(eight, None, nine) if f.state == "improved"}
    assert not [f for f in check_report(ten, None, nine) if f.state != "ok"]
    for before, after in ((eight, nine), (nine, ten)):
        moved = {s["name"]: s["change"] for s in compare(before, after)["symbols"]}
        assert moved["digits_planted"] == 1


@needs_gcc
def test_outputs_that_differ_are_a_verdict_with_a_reproducer(tmp_path: Path) -> None:
    artifact, layer = broken(compiled(DIGITS, "host"), 4), 4
    project = prepare(artifact, load_board("host"))
    sets = rule_sets(artifact.metadata["inputs"], 3)
    report = dict(make_report(DIGITS.read_bytes(), artifact, project, sets, folder=tmp_path))
    validate(report)
    found = report["verdict"]["divergence"]
    assert report["verdict"]["sets_exact"] < 3
    assert found["layers"][0]["layer"] == report["verdict"]["first_divergence"]["layer"] == layer
    assert sum(h["count"] for h in found["histogram"]) > 0
    path = tmp_path / found["reproducer"]
    meta = artifact.metadata
    again = golden_sets(open_npz(path), path, inputs=meta["inputs"], outputs=meta["outputs"], oracle="litert")
    assert np.array_equal(again.inputs[0][0], sets.inputs[found["set"]][0])
    assert verify(DIGITS.read_bytes(), artifact, project, again, profile=False).sets_exact == 0
    assert f"<h3>Differences of set {found['set']}</h3>" in report_html([report], [], [])
    assert "### digits@host differs" in report_markdown([report], [], [])
    assert found["one_layer"]["model"] == "digits@host.layer4.tflite"


def test_histogram() -> None:
    want = [[np.array([0, 5, -128], np.int8), np.array([1.0], np.float32)], [np.array([7, 7, 7], np.int8)]]
    got = [[np.array([1, 5, 127], np.int8), np.array([2.0], np.float32)], [np.array([6, 8, 7], np.int8)]]
    assert histogram(want, got) == [
        {"difference": -1, "count": 1}, {"difference": 1, "count": 2}, {"difference": 10, "count": 1},
    ]  # fmt: skip
