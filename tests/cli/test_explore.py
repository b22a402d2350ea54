"""aot explore: the table, the page, the limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.helper import Cli

MODEL = Path(__file__).resolve().parents[2] / "tests" / "models" / "max_pool.tflite"


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


def test_builds_and_their_commands(cli: Cli, tmp_path: Path) -> None:
    done = cli("explore", MODEL, "--json", "--html", tmp_path / "page.html", "--steps", "0")
    assert done.code == 0, done.err
    found = done.json
    least = min(found["points"], key=lambda p: p["ram_bytes"])
    assert least["pareto"]
    assert "--feed-rows" in least["options"]
    assert found["boards"]["mps2-an386"] == found["points"][0]["command"]
    assert "--feed-rows" in (tmp_path / "page.html").read_text()
    words = found["points"][0]["command"].split()[1:]
    compiled = cli(*words, "-o", tmp_path / "out", "--json")
    assert compiled.code == 0, compiled.err
    assert compiled.json["metadata"]["workspace"]["size"] == found["points"][0]["ram_bytes"]


def test_limits(cli: Cli) -> None:
    assert "--feed-rows" in cli("explore", MODEL, "--ram", "100", "--steps", "0", "--json").json["chosen"]
    done = cli("explore", MODEL, "--ram", "10", "--steps", "0")
    assert done.code == 4
    assert done.err.startswith("E2021 nothing fits; aot compile ")
