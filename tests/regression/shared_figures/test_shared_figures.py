"""The delta of a change holds figures of twelve shared networks too: `--opt size` grew unseen, as none of ours is built so."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from aot.report.measure.gate import baseline_text, load_reports
from scripts import delta
from tests.report.sample_report import FAILURE, sample


def test_twelve_networks_and_every_opt_have_accepted_figures() -> None:
    held = load_reports(delta.ROOT / delta.SHARED_BASELINE)
    opts = {Path(name).name: opt for name, opt in delta.SHARED_NETWORKS.items()}
    assert len(opts) == 12
    assert {r["name"]: r["fingerprint"]["options"]["opt"] for r in held.values()} == opts
    assert set(opts.values()) == {"speed", "balanced", "size", "ram"}
    assert all(r["totals"][t] > 0 for r in held.values() for t in delta.TOTALS)
    assert not any(r["layers"] or r["flash"] for r in held.values())


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one network of its own, and a shared one beside it."""
    root, models = tmp_path / "checkout", tmp_path / "shared" / "models"
    (root / "tests" / "models").mkdir(parents=True)
    (models / "nets").mkdir(parents=True)
    (root / "tests" / "models" / "net_own.tflite").touch()
    (models / "nets" / "theirs.tflite").touch()
    budget = root / "tests" / "budget.toml"
    budget.write_text((delta.ROOT / "tests" / "budget.toml").read_text(encoding="utf-8"))
    (root / delta.BASELINE).write_text(baseline_text([sample("net_own")]))
    for name, value in {"ROOT": root, "BUDGET": budget, "SHARED": models, "SHARED_NETWORKS": {"nets/theirs": "size"}}.items():
        monkeypatch.setattr(delta, name, value)
    return root


def measuring(monkeypatch: pytest.MonkeyPatch, code: int, failures: Sequence[Any] = ()) -> None:
    """Measurements of whatever is asked for, with that many bytes of code."""

    def measure(models: Sequence[Path], board: str, processes: int) -> tuple[list[Any], list[Any]]:
        found = [sample(m.stem) for m in models]
        for report in found:
            if report["name"] == "theirs":
                report["totals"]["code"] = code
        return found, list(failures)

    monkeypatch.setattr(delta, "measure", measure)


def test_a_shared_network_that_grows_fails(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measuring(monkeypatch, 100)
    assert delta.main(["--accept"]) == 0
    assert delta.main(["--base", "."]) == 0
    assert "| theirs@mps2-an386 |" in capsys.readouterr().out
    measuring(monkeypatch, 101)
    assert delta.main(["--base", "."]) == 4
    found = capsys.readouterr()
    assert "101 +1 (+1.00 %)" in found.out
    assert "theirs@mps2-an386: code " in found.err


def test_without_the_corpus_our_own_networks_are_enough(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measuring(monkeypatch, 100)
    assert delta.main(["--accept"]) == 0
    (delta.SHARED / "nets" / "theirs.tflite").unlink()
    assert delta.main(["--base", "."]) == 0
    assert "theirs" not in capsys.readouterr().out


@pytest.mark.parametrize("missing", [True, False], ids=["missing", "failing"])
def test_no_figures_are_accepted_of_some_networks(checkout: Path, monkeypatch: pytest.MonkeyPatch, missing: bool) -> None:
    measuring(monkeypatch, 100, failures=() if missing else (FAILURE,))
    if missing:
        (delta.SHARED / "nets" / "theirs.tflite").unlink()
    assert delta.main(["--accept"]) == 1
    assert not (checkout / delta.SHARED_BASELINE).exists()
