"""A plug-in that prints: --json is one object on standard output all the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.helper import Cli


@pytest.mark.parametrize("model", ["net_kws_dscnn.tflite", "none.tflite"])
def test_json_is_json(tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str) -> None:
    plugin = tmp_path / f"chatty_{model.partition('.')[0]}.py"
    plugin.write_text("print('hello from the plug-in')\n", encoding="utf-8")
    file = Path(__file__).parents[2] / "models" / model
    done = Cli(capsys)("compile", file, "--plugin", plugin, "-o", tmp_path / "out", "--json")
    assert isinstance(json.loads(done.out), dict)
    assert "hello from the plug-in" in done.err
