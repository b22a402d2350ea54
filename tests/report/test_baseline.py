"""The figures of tests/baseline.json hold on our own networks, and the comparison notices when one does not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from scripts import corpus

MODELS = Path(__file__).resolve().parent.parent / "models"
NETS = sorted(p.stem for p in MODELS.glob("net_*.tflite"))


def row(**figures: int) -> corpus.Row:
    return corpus.Row("net", "mps2-an386", "litert", "exact", "", 0.0, figures)


def test_a_worse_figure_is_noticed() -> None:
    baseline = {"net@mps2-an386": {"instructions": 100, "code_bytes": 10}}
    assert corpus.regressions([row(instructions=100, code_bytes=9)], baseline) == []
    (found,) = corpus.regressions([row(instructions=101, code_bytes=10)], baseline)
    assert found == "net@mps2-an386: instructions 101 is more than 100"
    assert corpus.regressions([row(instructions=999)], {}) == []


def test_update_keeps_the_other_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "baseline.json"
    path.write_text('{"other@host": {"instructions": 1}}')
    monkeypatch.setattr(corpus, "BASELINE", path)
    corpus.update_baseline([row(instructions=5)])
    assert json.loads(path.read_text()) == {"net@mps2-an386": {"instructions": 5}, "other@host": {"instructions": 1}}


def test_what_fails_is_a_row_and_no_exception() -> None:
    (found,) = corpus.verify_model(MODELS / "conv2d_same.tflite", ["no such board"], "litert")
    assert found.verdict == "FAILED"
    assert "E5020" in found.detail
    assert not found.ok


@pytest.mark.qemu
@pytest.mark.parametrize("name", NETS)
@pytest.mark.skipif(shutil.which("qemu-system-arm") is None, reason="qemu-system-arm is not installed")
def test_our_networks_are_exact_and_no_worse_than_the_baseline(name: str) -> None:
    rows = corpus.verify_model(MODELS / f"{name}.tflite", ["mps2-an386"], "litert")
    assert [r.verdict for r in rows] == ["exact"], rows[0].detail
    baseline = json.loads(corpus.BASELINE.read_text(encoding="utf-8"))
    assert rows[0].key in baseline
    assert corpus.regressions(rows, baseline) == []
