"""The delta table of a change to this repository."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from aot.report.measure.gate import baseline_text
from scripts import delta
from tests.report.sample_report import FAILURE, sample


def test_a_row_tells_what_moved() -> None:
    before = sample("net")
    before["totals"] |= {"instructions": 990, "code": 122}
    now = {f"{name}@mps2-an386": sample(name) for name in ("net", "other")}
    lines = delta.delta_table({"net@mps2-an386": before}, now)
    assert lines[2] == "| net@mps2-an386 | 1,000 +10 (+1.01 %) | 120 -2 (-1.64 %) | 120 | 64 | 30 |"
    assert lines[3].startswith("| other@mps2-an386 | 1,000 new |")


def test_the_accepted_figures_of_a_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_disk = delta.accepted(".")
    assert on_disk is not None
    assert set(on_disk) >= {"net_kws_dscnn@mps2-an386"}
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    monkeypatch.setattr(delta, "ROOT", tmp_path)
    git = ["git", "-c", "user.name=n", "-c", "user.email=e"]
    (tmp_path / "tests").mkdir()
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    for text in (baseline_text([sample("a")]), '{"a@mps2-an386": {"instructions": 1}}'):
        (tmp_path / delta.BASELINE).write_text(text)
        subprocess.run([*git, "add", "."], cwd=tmp_path, check=True)
        subprocess.run([*git, "commit", "-qm", "c"], cwd=tmp_path, check=True)
    then = delta.accepted("HEAD~1")
    assert then is not None
    assert then["a@mps2-an386"]["totals"] == sample("a")["totals"]
    assert delta.accepted("HEAD") is None
    assert delta.accepted("no such revision") is None


def test_what_is_not_exact_or_worse_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = sample("net")
    measured: tuple[list[Any], list[Any]] = ([report], [])
    monkeypatch.setattr(delta, "measure", lambda *_: measured)
    monkeypatch.setattr(delta, "BUDGET", tmp_path / "budget.toml")
    (tmp_path / "budget.toml").write_text(Path(delta.ROOT / "tests" / "budget.toml").read_text())
    (tmp_path / "baseline.json").write_text(baseline_text([report]))
    assert delta.main(["--base", "."]) == 0
    for total in ("instructions", "workspace", "code", "constants", "flash", "stack"):
        report["totals"][total] += 1
        assert delta.main(["--base", "."]) == 4
        assert f"net@mps2-an386: {total} " in capsys.readouterr().err
        report["totals"][total] -= 1
    report["fingerprint"]["compiler"] = "gcc 99"
    assert delta.main(["--base", "."]) == 2
    assert "compiler differs" in capsys.readouterr().err
    report["verdict"] |= {"exact": False, "accepted": False}
    assert delta.main(["--base", "."]) == 5
    measured = [], [FAILURE]
    assert delta.main(["--base", "."]) == FAILURE["exit_code"]
    measured = [], []
    assert delta.main(["--base", "."]) == 1
