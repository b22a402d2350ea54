"""aot report and aot profile on a chain and on a window that moves, as a user runs them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import aot
from aot.executor.artifact import Artifact
from aot.frontend.chain import pack
from aot.micro.board import load_board
from aot.micro.build.project import prepare
from aot.report.figures.schema import load_schema
from aot.report.measure.inputs import rule_sets
from aot.report.measure.report import bundle, checksum, make_report, to_text
from aot.report.measure.verify import expected_outputs
from tests.cli.helper import Cli
from tests.driver.chain_nets import chain_net

SLIDING = Path(__file__).parents[1] / "models" / "net_kws_dscnn.tflite"
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
needs_qemu = pytest.mark.skipif(shutil.which("qemu-system-arm") is None, reason="qemu-system-arm is not installed")


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """In a folder with all.toml, a chain of drawn models at 1,000 rows a second."""
    monkeypatch.chdir(tmp_path)
    chain = chain_net(3)
    lines = [f"rate = {chain.rate}"]
    for stage in chain.stages:
        Path(f"{stage.name}.tflite").write_bytes(stage.model)
        lines += ["[[stage]]", f'model = "{stage.name}.tflite"']
        lines += [] if stage.slide is None else [f"slide = {stage.slide}"]
    Path("all.toml").write_text("\n".join(lines), encoding="utf-8")
    return Cli(capsys)


def reported(folder: str) -> dict[str, Any]:
    """The only report there, which has the published form."""
    data = json.loads(Path(folder, "report.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(load_schema()).validate(data)
    (report,) = data["reports"]
    return dict(report)


@needs_qemu
@pytest.mark.qemu
def test_the_load_of_a_chain_is_that_of_verify_on_the_page_too(cli: Cli) -> None:
    asked = ("all.toml", "--random", "20", "--clock", "2MHz")
    told = cli("report", *asked, "-o", "made")
    assert told.code == 0, told.err
    report, verified = reported("made"), cli("verify", *asked, "--json").json
    assert report["verdict"]["exact"]
    assert report["pushes"] == verified["pushes"]
    assert report["load"] == verified["load"] == aot.verify("all.toml", random=20, clock="2MHz", profile=False).load
    average, most = report["pushes"]["average"], report["pushes"]["most"]
    assert 0 < average <= most
    assert report["load"]["highest"] == most * report["load"]["pushes_per_second"] / 2e6
    said = f"{average:,} instructions on average, {most:,} at most, over 20"
    load = f"at 2 MHz and one instruction per cycle the longest push needs {100 * report['load']['highest']:.1f} % of its time"
    for text in (told.out, *(Path("made", name).read_text(encoding="utf-8") for name in ("report.html", "report.md"))):
        assert said in text
        assert load in text
    assert "no total changed" in cli("diff", "made", "made").out


@needs_qemu
@pytest.mark.qemu
def test_the_report_of_a_window_compares_with_whole_windows(cli: Cli) -> None:
    made = cli("report", SLIDING, "--slide", "input=2", "--random", "3", "--format", "json", "-o", "made")
    assert made.code == 0, made.err
    report = reported("made")
    assert report["verdict"]["sets_exact"] == 3
    assert set(report["pushes"]) == {"average", "most"}
    assert "load" not in report
    assert "E1306" in cli("report", SLIDING, "--clock", "1MHz", "--format", "json", "-o", "other").err


@needs_gcc
def test_a_chain_whose_outputs_differ_is_a_verdict() -> None:
    """Which layer it is cannot be said: the references' tensors are those of whole windows, stage by stage."""
    model = pack(chain_net(3))
    artifact = aot.build(model, target="host", name="chain")
    assert isinstance(artifact, Artifact)
    sets = rule_sets(artifact.metadata["inputs"], 3)
    right, _ = expected_outputs(model, sets, oracle="litert", outputs=1)
    wrong = replace(sets, expected=tuple([[a ^ 1 for a in outputs] for outputs in right]))
    report = dict(make_report(model, artifact, prepare(artifact, load_board("host")), wrong))
    assert report["verdict"]["sets_exact"] == 0
    assert report["verdict"]["divergence"] is None
    assert "pushes" not in report, "this machine counts no instructions"
    jsonschema.Draft202012Validator(load_schema()).validate(json.loads(to_text(bundle([report]))))


@needs_qemu
@pytest.mark.qemu
def test_cycles_that_firmware_counted_of_a_chain(cli: Cli) -> None:
    made = cli("compile", "all.toml", "-o", "c")
    assert made.code == 0, made.err
    layers = json.loads(Path("c", "metadata.json").read_text(encoding="utf-8"))["layers"]
    lines = [f"aot-profile 1 all layers {len(layers)} runs 2 hz 48000000"]
    for layer in layers:
        size = prod(layer["output"]["shape"]) * np.dtype(layer["output"]["dtype"]).itemsize
        lines.append(f"aot-layer {layer['index']} {2000 + 20 * layer['index']} 2 {size}")
    Path("log.txt").write_text("\n".join([*lines, f"aot-profile-end {checksum(lines)}"]), encoding="utf-8")
    told = cli("profile", "all.toml", "--from", "log.txt", "--json")
    assert told.code == 0, told.err
    (report,) = told.json["reports"]
    assert [layer["cycles"] for layer in report["layers"]] == [1000 + 10 * k for k in range(len(layers))]
    assert report["load"]["instructions_per_second"] > 0
