"""aot.check, aot.verify, aot.report and aot.load: a model in every form, what comes back, and how a notebook shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aot
from aot.errors import AotError
from aot.report.calls import ModelReport
from tests.report.sample_report import host_sample, sample

MODEL = Path(__file__).parents[1] / "models" / "dense.tflite"
ONES = np.ones((1, 19), np.int8)


@pytest.mark.parametrize("form", [str, Path, Path.read_bytes])
def test_check_takes_a_model_in_every_form(form: Any) -> None:
    found = aot.check(form(MODEL), name="dense")
    assert found.ok
    assert (found.name, found.macs, found.constant_bytes) == ("dense", 95, 120)
    assert repr(found).startswith("Check(dense for cortex-m4: workspace 23 B")
    assert {"host", "mps2-an386"} <= {place["board"] for place in found.boards if place["fits"]}


def test_check_returns_all_problems_of_a_model() -> None:
    found = aot.check(b"no model at all, though long enough", name="odd")
    assert not found.ok
    assert [p.code for p in found.problems] == ["E1002"]
    assert (found.workspace_bytes, found.macs) == (0, 0)
    assert "E1002" in repr(found)
    assert "E1002" in found._repr_html_()


def test_options_are_keywords() -> None:
    assert aot.build(MODEL, opt="size").metadata["opt"] == "size"
    assert aot.check(MODEL, ram_budget=10**6).metadata is not None
    assert aot.build(MODEL, slide={}).metadata["options"] == aot.build(MODEL).metadata["options"]


def test_load_calls_the_compiled_code() -> None:
    net = aot.load(MODEL)
    by_artifact = aot.load(aot.build(MODEL, opt="size"))
    assert np.array_equal(net(ONES), by_artifact(x=ONES))
    assert net(ONES).shape == (1, 5)
    assert [t["name"] for t in (*net.inputs, *net.outputs)] == ["x", "y"]
    assert repr(net) == "HostModel(dense: (x: int8[1, 19]) -> (y: int8[1, 5]))"
    assert "0.05" in net._repr_html_()


def test_verify_and_report_on_this_machine() -> None:
    found = aot.verify(MODEL, board="host", inputs=[[ONES]])
    assert found.exact
    assert repr(found).startswith("Verification(dense on host: 1/1 sets bit-exact")
    report = aot.report(MODEL, board="host", random=2)
    assert isinstance(report, ModelReport)
    assert report.ok
    assert report.totals["workspace"] == 23
    assert [x["op"] for x in report.layers] == ["FULLY_CONNECTED"]


@pytest.mark.parametrize("data", [sample(), host_sample()])
def test_a_report_saves_itself(data: dict[str, Any], tmp_path: Path) -> None:
    report = ModelReport(data)
    for end, start in ((".html", "<!doctype html>"), (".md", "#"), (".json", "{")):
        assert report.save(tmp_path / f"r{end}").read_text(encoding="utf-8").lstrip("<!- ").startswith(start.lstrip("<!- "))
    assert report._repr_html_().startswith("<iframe")
    with pytest.raises(AotError, match="E5009"):
        report.save(tmp_path / "r.pdf")


def test_notebooks_show_plan_and_layers_and_nothing_as_code() -> None:
    text = aot.build(MODEL, name="dense")._repr_html_()
    assert text.count("<table>") == 2
    assert "FULLY_CONNECTED" in text
    net = aot.build(MODEL)
    odd = dict(net.metadata["layers"][0], name="<script>alert(1)</script>")
    changed = aot.Artifact(net.name, net.files, {**net.metadata, "layers": [odd]})
    assert "<script>" not in changed._repr_html_()
    assert "script" in changed._repr_html_()


@pytest.mark.parametrize(
    ("code", "call"),
    [
        ("E5001", lambda: aot.check("absent.tflite")),
        ("E5001", lambda: aot.verify("absent.tflite")),
        ("E5074", lambda: aot.check(3)),
        ("E5074", lambda: aot.report(None)),
        ("E5074", lambda: aot.check(MODEL, ramm_budget=3)),
        ("E5074", lambda: aot.build(MODEL, options=aot.Options(), opt="ram")),
        ("E5074", lambda: aot.load(aot.build(MODEL), opt="ram")),
        ("E5009", lambda: aot.verify(MODEL, board="host", opt="fast")),
        ("E5010", lambda: aot.check(MODEL, target="cortex-a9")),
        ("E5020", lambda: aot.verify(MODEL, board="nowhere")),
        ("E5017", lambda: aot.verify(MODEL, board="host", inputs=[[ONES]], random=3)),
        ("E5018", lambda: aot.verify(MODEL, board="host", random=0)),
        ("E5022", lambda: aot.verify(MODEL, board="host", inputs=[[np.ones(4, np.int8)]])),
        ("E5018", lambda: aot.verify(MODEL, board="host", clock="fast")),
        ("E5018", lambda: aot.report(MODEL, board="host", clock=0)),
        ("E1306", lambda: aot.verify(MODEL, board="host", clock="64MHz")),
        ("E1306", lambda: aot.report(MODEL, board="host", clock=64_000_000)),
        ("E5022", lambda: aot.load(MODEL)(ONES, ONES)),
        ("E5022", lambda: aot.load(MODEL)(z=ONES)),
        ("E5022", lambda: aot.load(MODEL)(ONES, x=ONES)),
        ("E5022", lambda: aot.load(MODEL)()),
    ],
)
def test_wrong_use(code: str, call: Any) -> None:
    with pytest.raises(AotError, match=code):
        call()
