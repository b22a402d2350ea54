"""The delta table of a change to this repository."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from scripts import delta
from tests.report.sample_report import sample

NOW = {"instructions": 1000, "code_bytes": 120, "constant_bytes": 120, "workspace_bytes": 64, "stack_bytes": 30}


def test_a_row_tells_what_moved() -> None:
    now = delta.figures_of([sample("net"), sample("other")])
    assert now["net@mps2-an386"] == NOW
    before = {"net@mps2-an386": NOW | {"instructions": 990, "code_bytes": 122}}
    lines = delta.delta_table(before, now)
    assert lines[2] == "| net@mps2-an386 | 1,000 +10 (+1.01 %) | 120 -2 (-1.64 %) | 120 | 64 | 30 |"
    assert lines[3].startswith("| other@mps2-an386 | 1,000 new |")
    assert delta.worse(before, now) == ["net@mps2-an386: instructions 1,000 is more than the accepted 990"]
    assert delta.worse({}, now) == []


def test_the_accepted_figures_of_a_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert delta.accepted(".")
    if shutil.which("git") is None or not (delta.ROOT / ".git").exists():
        pytest.skip("this is no git checkout")
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=delta.ROOT, capture_output=True, text=True, check=True).stdout.strip()
    assert set(delta.accepted(head) or {}) >= {"net_kws_dscnn@mps2-an386"}
    assert delta.accepted("no such revision") is None


def test_what_is_not_exact_or_worse_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    report = sample("net_kws_dscnn")
    monkeypatch.setattr(delta, "measure", lambda *_: ([report], []))
    monkeypatch.setattr(delta, "accepted", lambda revision: {"net_kws_dscnn@mps2-an386": NOW})
    assert delta.main([]) == 0
    report["totals"]["workspace"] += 1
    assert delta.main([]) == 4
    assert "workspace_bytes 65 is more than the accepted 64" in capsys.readouterr().err
    report["verdict"]["exact"] = False
    assert delta.main([]) == 1
    monkeypatch.setattr(delta, "measure", lambda *_: ([], [{"model": "x.tflite"}]))
    assert delta.main([]) == 1
