"""Our own networks are held against tests/baseline.json as a user's are: by `aot report` with a budget and a baseline."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import jsonschema
import pytest

from aot.report.figures.schema import load_schema
from aot.report.measure.gate import baseline, baseline_text, compare, keep, load_reports
from scripts import corpus
from tests.cli.helper import Cli
from tests.report.sample_report import host_sample, sample

TESTS = Path(__file__).resolve().parent.parent.parent
MODELS = TESTS / "models"
NETS = sorted(p.stem for p in MODELS.glob("net_*.tflite"))

needs_qemu = pytest.mark.skipif(shutil.which("qemu-system-arm") is None, reason="qemu-system-arm is not installed")


def test_a_baseline_has_a_schema_and_is_short() -> None:
    schema = load_schema("aot-baseline-1")
    jsonschema.Draft202012Validator.check_schema(schema)
    text = (TESTS / "baseline.json").read_text(encoding="utf-8")
    assert len(text) < 64 << 10
    known = load_reports(TESTS / "baseline.json")
    assert sorted(known) == [f"{name}@mps2-an386" for name in NETS]
    for content in (text, baseline_text([sample(), host_sample()])):
        jsonschema.Draft202012Validator(schema).validate(json.loads(content))
    assert baseline_text(known.values()) == text


def test_a_baseline_keeps_all_that_a_comparison_reads(tmp_path: Path) -> None:
    before, after = sample(), sample()
    after["totals"]["instructions"] += 1
    after["layers"][1] |= {"instructions": 101, "code": 41, "kernel": "other"}
    after["flash"]["symbols"][3]["bytes"] += 1
    after["fingerprint"]["compiler"] = "gcc 99"
    assert keep(keep(before)) == keep(before)
    assert compare(keep(before), keep(after)) == compare(before, after) == compare(keep(before), after)
    (tmp_path / "b.json").write_text(baseline_text([before]))
    assert load_reports(tmp_path / "b.json") == {"net@mps2-an386": baseline([before])["reports"][0]}


def test_what_fails_is_a_row_and_no_exception() -> None:
    (found,) = corpus.verify_model(MODELS / "conv2d_same.tflite", ["no such board"], "litert")
    assert found.verdict == "FAILED"
    assert "E5020" in found.detail
    assert not found.ok


@pytest.mark.qemu
@pytest.mark.parametrize("name", NETS)
@needs_qemu
def test_our_networks_are_exact_on_their_golden_sets(name: str) -> None:
    rows = corpus.verify_model(MODELS / f"{name}.tflite", ["mps2-an386"], "litert")
    assert [r.verdict for r in rows] == ["exact"], rows[0].detail


@pytest.mark.qemu
@pytest.mark.parametrize("name", NETS)
@needs_qemu
def test_our_networks_are_no_worse_than_the_baseline(name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    model, budget = MODELS / f"{name}.tflite", TESTS / "budget.toml"
    done = Cli(capsys)("report", model, "--budget", budget, "--format", "json", "--output", tmp_path)
    differing = set(re.findall(r"(\w+) differs: ", done.err))
    if done.code == 2 and differing and differing <= {"compiler", "emulator"}:
        pytest.skip(f"figures of another tool chain are no measure: {done.err.strip()}")
    assert done.code == 0, done.err
    assert f"{name}@mps2-an386" not in done.out.partition("not in the baseline: ")[2]


@pytest.mark.qemu
@needs_qemu
def test_the_gate_of_our_networks_notices_one_more(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    known = load_reports(TESTS / "baseline.json")["net_sww@mps2-an386"]
    lower = keep(known) | {"totals": dict(known["totals"]) | {"instructions": known["totals"]["instructions"] - 1}}
    (tmp_path / "baseline.json").write_text(baseline_text([lower]))
    (tmp_path / "budget.toml").write_text((TESTS / "budget.toml").read_text())
    model = MODELS / "net_sww.tflite"
    allowed = ["--allow", "compiler", "--allow", "emulator"]
    done = Cli(capsys)("report", model, "--budget", tmp_path / "budget.toml", "--format", "json", "--output", tmp_path, *allowed)
    assert done.code == 4
    assert "E2020 net_sww@mps2-an386: instructions " in done.err
